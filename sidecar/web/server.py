"""Serves the application on a thread of its own, with limits for connections, which waitress leaves to a proxy in front of it.

Health has a thread of its own, so that no other request delays it.
"""

import logging
import socket
import threading
import time
from collections import Counter
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from sidecar.web.application import HEALTH, Application

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CONNECTIONS: Final = 50
"""Beyond, the oldest connection of the client with the most is closed."""
REQUEST_SECONDS: Final = 15.0
"""Within which a complete request must arrive."""
ANSWER_SECONDS: Final = 30.0
"""Within which an answer must be read, counted from the complete request."""
MOST_UNREAD: Final = 16 << 20
"""Bytes of unread answers, beyond which only health is answered. Each thread can add one more answer."""

_SEND_BUFFER: Final = 128 << 10
"""The send buffer of a connection, in the kernel, which would let it grow to megabytes and counts it as our memory."""
_THREADS: Final = 4
_TICK_SECONDS: Final = 1
_JOIN_SECONDS: Final = 5.0
_NEVER_ON_DISK: Final = 256 << 20
"""Bytes of an answer that may wait in memory instead of a file. The largest answers are some megabytes."""


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.since = time.monotonic()
        """Start (monotonic) of the wait for a request, or for the client to read the answer."""
        self._answered = False
        super().__init__(*arguments, **options)

    def service(self) -> None:
        super().service()
        self.since = time.monotonic()

    def is_overdue(self, now: float) -> bool:
        """Called by the server's thread about every second."""
        answered = bool(self.requests or self.total_outbufs_len)
        if answered != self._answered:
            self._answered, self.since = answered, now
        return now - self.since > (ANSWER_SECONDS if answered else REQUEST_SECONDS)


class _BoundedServer(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Serves `application` on a listening socket until all `connections` are closed. `run` is called by its thread."""

    channel_class = _Channel
    next_channel_cleanup = 0.0

    def __init__(self, application: "WSGIApplication", bound: socket.socket, connections: dict[int, object]) -> None:
        adjustments = Adjustments(
            sockets=[bound],
            threads=_THREADS,
            cleanup_interval=_TICK_SECONDS,
            outbuf_overflow=_NEVER_ON_DISK,
            max_request_header_size=16_384,
            max_request_body_size=16_384,
            ident=None,
            clear_untrusted_proxy_headers=True,
            asyncore_use_poll=True,
        )
        self._health = ThreadedTaskDispatcher()
        self._health.set_thread_count(1)
        info = (bound.family, bound.type, bound.proto, bound.getsockname())
        super().__init__(application, connections, _sock=bound, adj=adjustments, bind_socket=False, sockinfo=info)

    @property
    def unread(self) -> int:
        """Bytes of answers that clients have not read yet."""
        return sum(channel.total_outbufs_len for channel in list(self.active_channels.values()))

    def add_task(self, task: Any) -> None:
        path = getattr(task.requests[0], "path", None) if task.requests else None
        (self._health if path in HEALTH else self.task_dispatcher).add_task(task)

    def readable(self) -> bool:
        now = time.time()
        if now >= self.next_channel_cleanup:
            self.next_channel_cleanup = now + _TICK_SECONDS
            self.maintenance(now)
        return bool(self.accepting)

    def maintenance(self, now: float) -> None:  # noqa: ARG002  waitress passes wall-clock time, which can jump
        moment = time.monotonic()
        for channel in list(self.active_channels.values()):
            if channel.is_overdue(moment):
                channel.handle_close()  # `will_close` would wait for the client to read

    def handle_accept(self) -> None:
        super().handle_accept()
        channels = list(self.active_channels.values())
        if len(channels) > CONNECTIONS:
            [(busiest, _)] = Counter(channel.addr[0] for channel in channels).most_common(1)
            theirs = [channel for channel in channels if channel.addr[0] == busiest]
            min(theirs, key=lambda channel: channel.since).handle_close()

    def set_socket_options(self, conn: socket.socket) -> None:
        super().set_socket_options(conn)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)

    def end_workers(self, seconds: float) -> None:
        """Stop the threads that answer requests."""
        self._health.shutdown(timeout=seconds)
        self.task_dispatcher.shutdown(timeout=seconds)


class WebServer:
    """Serves `application`."""

    def __init__(self, application: Application, host: str, port: int) -> None:
        """Binds the port; of `::` in both families. Raises OSError when it cannot."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = family == socket.AF_INET6 and ip_address(host).is_unspecified and socket.has_dualstack_ipv6()
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=both)
        self.port: Final[int] = bound.getsockname()[1]
        """The bound port, also if `port` was 0."""
        self._connections: dict[int, object] = {}
        self._server = _BoundedServer(application, bound, self._connections)
        application.overloaded = lambda: self.unread > MOST_UNREAD
        self._thread = threading.Thread(target=self._server.run, name="web", daemon=True)

    @property
    def unread(self) -> int:
        return self._server.unread

    def start(self) -> None:
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
