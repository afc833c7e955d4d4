"""Connections that may take neither forever nor more than their share: what waitress leaves to a proxy in front of it.

Health is answered by a thread of its own, so that no other request delays it.
"""

import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

CONNECTIONS: Final = 50
"""Above, the oldest connection of the client that has most is closed."""
REQUEST_SECONDS: Final = 15.0
"""So long a connection may be without a complete request."""
ANSWER_SECONDS: Final = 30.0
"""Within which an answer must be read, from the complete request on."""
MOST_UNREAD: Final = 16 << 20
"""Bytes of all answers that clients have not read yet: above, only health is answered. Those in work come on top, one a thread."""
HEALTH: Final = frozenset({"/livez", "/readyz"})

_SEND_BUFFER: Final = 128 << 10
"""Of a connection, in the kernel: it would let it grow to megabytes, and counts it as our memory."""
_THREADS: Final = 4
_TICK_SECONDS: Final = 1
_NEVER_ON_DISK: Final = 256 << 20
"""Bytes of an answer that may wait in memory: there may be no disk to write to, and the largest answers are some megabytes."""


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """One connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.since = time.monotonic()
        """When it began to wait for a request, or to be answered."""
        self._answered = False
        super().__init__(*arguments, **options)

    def service(self) -> None:
        super().service()
        self.since = time.monotonic()

    def is_overdue(self, now: float) -> bool:
        """To be asked by the server's thread, about every second."""
        answered = bool(self.requests or self.total_outbufs_len)
        if answered != self._answered:
            self._answered, self.since = answered, now
        return now - self.since > (ANSWER_SECONDS if answered else REQUEST_SECONDS)


class Server(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Serves `application` on a listening socket until its connections in `connections` are closed; `run` is its thread's."""

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
        place = (bound.family, bound.type, bound.proto, bound.getsockname())
        super().__init__(application, connections, _sock=bound, adj=adjustments, bind_socket=False, sockinfo=place)

    @property
    def unread(self) -> int:
        """Bytes of answers that wait for their clients."""
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

    def maintenance(self, now: float) -> None:  # noqa: ARG002  as waitress declares it: that of a clock that may be set
        moment = time.monotonic()
        for channel in list(self.active_channels.values()):
            if channel.is_overdue(moment):
                channel.handle_close()  # `will_close` would wait for a client that does not read

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
        """Have no request answered any more."""
        self._health.shutdown(timeout=seconds)
        self.task_dispatcher.shutdown(timeout=seconds)
