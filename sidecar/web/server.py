"""Serves the application, with the limits of `connections`, on a thread of its own."""

import logging
import socket
import threading
from ipaddress import ip_address
from typing import Final

from waitress import wasyncore

from sidecar.web.application import Application
from sidecar.web.connections import MOST_UNREAD, BoundedServer

_JOIN_SECONDS: Final = 5.0


class WebServer:
    """Serves `application` with the limits of `connections`."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Binds the port; of `::` in both families. Raises OSError when it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = family == socket.AF_INET6 and ip_address(host).is_unspecified and socket.has_dualstack_ipv6()
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=both)
        self.port: Final[int] = bound.getsockname()[1]
        """The bound port, also if `port` was 0."""
        self._connections: dict[int, object] = {}
        self._server = BoundedServer(application, bound, self._connections)
        application.overloaded = lambda: self.unread > MOST_UNREAD
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not read yet."""
        return self._server.unread

    def start(self) -> None:
        """Start to answer."""
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering. May be called twice, and before `start`."""
        if not self._connections:
            return
        # Workers first: they wake the server's thread through a descriptor that `_close` closes.
        self._server.end_workers(_JOIN_SECONDS)
        if self._thread.ident is None:
            self._close()
            return
        # The connections belong to the server's thread: woken, it closes them, finds none left, and ends.
        with self._server.trigger.lock:
            self._server.trigger.thunks.append(self._close)
            self._server.trigger.pull_trigger()
        self._thread.join(_JOIN_SECONDS)

    def _close(self) -> None:
        wasyncore.close_all(self._connections, ignore_all=True)
