"""HTTP: health for the kubelet, metrics for Prometheus, leaders for people and scripts. Everything is read from the newest snapshot."""

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from msgspec import json
from waitress import wasyncore
from waitress.server import create_server

from sidecar.core.leaders import leaders
from sidecar.core.moment import SECOND, Moment
from sidecar.core.snapshot import Snapshot

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

STALE_SECONDS: Final = 30
"""A snapshot older than this means that the owner's thread does not move."""
_THREADS: Final = 4
_CONNECTIONS: Final = 50
_IDLE_SECONDS: Final = 15
_JOIN_SECONDS: Final = 5.0

_Answer = tuple[HTTPStatus, str, bytes]
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"


class Application:
    """The WSGI application."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], metrics: Callable[[], bytes], clock: Callable[[], Moment]
    ) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._routes: Final[dict[str, Callable[[], _Answer]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": lambda: (HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._metrics()),
            "/api/v1/leaders": lambda: (HTTPStatus.OK, _JSON, json.encode(leaders(self._snapshot()))),
        }

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        status, content_type, body = self._answer(environ.get("REQUEST_METHOD", ""), environ.get("PATH_INFO", ""))
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        start_response(f"{status.value} {status.phrase}", headers)
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]

    def _answer(self, method: str, path: str) -> _Answer:
        route = self._routes.get(path)
        if route is None:
            return HTTPStatus.NOT_FOUND, _TEXT, ("there is: " + " ".join(self._routes) + "\n").encode()
        if method not in {"GET", "HEAD"}:
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET\n"
        return route()

    def _livez(self) -> _Answer:
        age = (self._clock().steady - self._snapshot().at.steady) / SECOND
        if age > STALE_SECONDS:
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"the owner's thread has not moved for {age:.0f} s\n".encode()
        return HTTPStatus.OK, _TEXT, b"ok\n"

    def _readyz(self) -> _Answer:
        snapshot = self._snapshot()
        if snapshot.ready:
            return HTTPStatus.OK, _TEXT, b"ok\n"
        blind = [
            f"{name}: {cluster.view.connection or 'not connected yet'}"
            for name, cluster in snapshot.state.clusters.items()
            if not cluster.view.complete
        ]
        reason = "the store is not seen whole: " + ", ".join(blind) if blind else "starting"
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, (reason + "\n").encode()


class WebServer:
    """Serves `application` from a bounded number of threads; slow or idle clients are cut off."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Binds the port. Raises OSError when it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family)
        self.port: Final[int] = bound.getsockname()[1]
        """The bound port: of interest when 0 was asked for."""
        self._connections: dict[int, object] = {}
        self._server = create_server(
            application,
            map=self._connections,
            sockets=[bound],
            threads=_THREADS,
            connection_limit=_CONNECTIONS,
            channel_timeout=_IDLE_SECONDS,
            cleanup_interval=_IDLE_SECONDS,
            max_request_header_size=16_384,
            max_request_body_size=16_384,
            ident=None,
            clear_untrusted_proxy_headers=True,
        )
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering. May be called twice, and before `start`."""
        if not self._connections:
            return
        if self._thread.ident is None:
            self._close()
        else:
            # The connections belong to the server's thread: it closes them, finds none left, and ends.
            self._server.trigger.pull_trigger(self._close)
            self._thread.join(_JOIN_SECONDS)
        self._server.task_dispatcher.shutdown(timeout=_JOIN_SECONDS)

    def _close(self) -> None:
        wasyncore.close_all(self._connections, ignore_all=True)
