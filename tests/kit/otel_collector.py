"""An OpenTelemetry collector on 127.0.0.1, as far as the protocol goes: it reads requests by the protobuf that opentelemetry-proto
publishes, and answers as a real one may. No Debian package and no wheel has a real collector.
"""

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from sidecar.settings.model import OtlpSettings


class Reply(NamedTuple):
    """An answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


ACCEPTED = Reply()


def partly(rejected: int, why: str) -> Reply:
    """All but so many log events are accepted."""
    partial = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=why)
    return Reply(body=ExportLogsServiceResponse(partial_success=partial).SerializeToString())


class OtelCollector:
    """Keeps what it accepted. `judge` decides about each request."""

    def __init__(self) -> None:
        self.judge: Callable[[list[LogRecord]], Reply] = lambda _events: ACCEPTED
        self.events: list[LogRecord] = []
        self.resources: list[Resource] = []
        self.headers: list[Mapping[str, str]] = []
        self.requests = 0
        self.hangs = threading.Event()
        """Set: nothing is answered any more."""
        self.stopped = threading.Event()
        self.port = 0

    @property
    def settings(self) -> OtlpSettings:
        """Of a sidecar that exports to it."""
        return OtlpSettings(f"http://127.0.0.1:{self.port}")

    def ids(self) -> list[str]:
        """The ids of the records that were accepted."""
        return [str(attributes(event.attributes)["id"]) for event in self.events]

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer one request."""
        self.requests += 1
        assert headers["Content-Type"] == "application/x-protobuf"
        assert headers["Content-Encoding"] == "gzip"
        assert path == "/v1/logs"
        [logs] = ExportLogsServiceRequest.FromString(gzip.decompress(body)).resource_logs
        events = [event for scope in logs.scope_logs for event in scope.log_records]
        reply = self.judge(events)
        if reply.status == 200:
            self.events += events
            self.resources.append(logs.resource)
            self.headers.append(headers)
        return reply


@contextmanager
def otel_collector() -> Iterator[OtelCollector]:
    """A collector that runs until the block ends."""
    collector = OtelCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if collector.hangs.is_set():
                collector.stopped.wait(30)
                return
            reply = collector.take(self.path, dict(self.headers), body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield collector
        finally:
            collector.stopped.set()
            server.shutdown()


def attributes(pairs: Iterator[KeyValue] | list[KeyValue]) -> dict[str, object]:
    """Attributes as Python has them."""
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> object:
    kind = str(value.WhichOneof("value"))
    return [_plain(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)
