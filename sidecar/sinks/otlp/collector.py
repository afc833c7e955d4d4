"""Requests to an OpenTelemetry collector: bounded in time and size, without redirects, and without a secret in a reason."""

import gzip
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from sidecar.core.bounds import COLLECTOR
from sidecar.core.sanitize import clean
from sidecar.net.retry_after import asked_wait
from sidecar.settings.model import OtlpSettings

_CONNECT_SECONDS: Final = 4.0
_ANSWER_SECONDS: Final = 10.0
_MOST_SHOWN: Final = 200
_LONGEST_PAUSE: Final = 300.0
_REFUSED: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""What was sent is at fault, so it is not sent again. All else (credentials, a wrong path) may be mended at the collector."""


class CollectorError(Exception):
    """The collector could not take it now: one line. `pause`: for how many seconds it asked to wait."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class RefusedError(CollectorError):
    """The collector will never take this."""


class Collector:
    """One collector. Certificates are read again for each connection."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._secrets = sorted((secret.reveal() for secret in settings.headers.values()), key=len, reverse=True)

    @property
    def name(self) -> str:
        """Where it is, for the log."""
        return self._settings.endpoint

    def export(self, request: ExportLogsServiceRequest) -> ExportLogsServiceResponse:
        """Send log events; the answer. Raises CollectorError, RefusedError."""
        status, headers, body = self._post(
            f"{self._settings.endpoint}/v1/logs", gzip.compress(request.SerializeToString())
        )
        if status == HTTPStatus.OK:
            answer = ExportLogsServiceResponse()
            with suppress(DecodeError):  # accepted: all that is lost is how many of them were rejected
                answer.ParseFromString(body)
            return answer
        reason = f"{self.name} answered {status} {self._excerpt(body)}".rstrip()
        if status in _REFUSED:
            raise RefusedError(reason)
        raise CollectorError(reason, min(asked_wait(headers) or 0.0, _LONGEST_PAUSE))

    def _post(self, url: str, content: bytes) -> tuple[int, Mapping[str, str], bytes]:
        headers = {
            "User-Agent": "flink-ha-sidecar",
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "Accept-Encoding": "identity",
            **{name: secret.reveal() for name, secret in self._settings.headers.items()},
        }
        try:
            context = self._settings.tls.context() if self._settings.tls else None
            with PoolManager(
                ssl_context=context, timeout=Timeout(connect=_CONNECT_SECONDS, total=_ANSWER_SECONDS), retries=False
            ) as pool:
                response = pool.request("POST", url, body=content, headers=headers, preload_content=False)
                with response:
                    return response.status, response.headers, response.read(COLLECTOR.most_bytes, decode_content=False)
        except (HTTPError, OSError, ValueError) as error:
            raise CollectorError(f"{self.name} did not answer: {self._excerpt(str(error).encode())}") from error

    def _excerpt(self, body: bytes) -> str:
        """The beginning of what it says, in one line, without our secrets."""
        text = body.decode(errors="replace")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return clean(text, _MOST_SHOWN)
