"""kazoo's environment: its thread, sockets, time limits, and its log, which has the reasons of failed connections."""

import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from sidecar.drivers.zookeeper.security import Address, Security

_NOT_REASONS = {"Transition to CONNECTING", "Session has expired"}
_PREAMBLES = ("Connection dropped: ", "Connection time-out: ", "socket connection error: ")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is untyped
    """kazoo's threads and sockets, with a callback when the thread ends, and shorter time limits (kazoo's: the session timeout)."""

    def __init__(self, connection_timeout: float, security: Security, ended: Callable[[], None]) -> None:
        super().__init__()
        self.serving = False
        self._connection_timeout = connection_timeout
        self._security = security
        self._peer: tuple[Address, str] | None = None
        self._refusal: str | None = None
        self._ended = ended

    def start(self) -> None:
        """Start without kazoo's two workers, which are not used."""
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_socket_pair(self) -> tuple["_PipeEnd", "_PipeEnd"]:
        read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        return _PipeEnd(read_end), _PipeEnd(write_end)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception:  # noqa: BLE001  a server may answer anything; kazoo has logged the error
                return
            finally:
                self._ended()

        thread = threading.Thread(target=run, name="zookeeper-client", daemon=True)
        thread.start()
        return thread

    def create_connection(self, address: Address, hostname: str, timeout: float, **_options: Any) -> socket.socket:
        self._peer = self._refusal = None
        connection = self._security.connect(address, hostname, min(timeout, self._connection_timeout))
        self._peer = address, hostname
        return connection

    def refused(self, reason: str) -> None:
        """The server accepted the connection, but refuses to serve it."""
        self._refusal = reason

    def explained(self, reason: str) -> str:
        """Why the connection failed; kazoo logged `reason`."""
        if self._refusal is not None:
            return self._refusal
        return reason if self.serving or self._peer is None else self._security.explain(reason, *self._peer)

    def select(self, readable: Any, writable: Any, _exceptional: Any, timeout: float) -> Any:
        if unread := [stream for stream in readable if isinstance(stream, ssl.SSLSocket) and stream.pending()]:
            return unread, [], []  # decrypted with the last record: poll does not report these bytes
        if not self.serving:  # the handshake: a frozen server accepts connections and sends nothing
            timeout = min(timeout, self._connection_timeout)
        poll = select.poll()  # kazoo creates an epoll each time: several system calls
        streams = {stream.fileno(): stream for stream in (*readable, *writable)}
        for stream in readable:
            poll.register(stream, select.POLLIN)
        for stream in writable:
            poll.register(stream, select.POLLOUT)
        ready = [streams[descriptor] for descriptor, _ in poll.poll(timeout * 1000)]
        return (
            [stream for stream in readable if stream in ready],
            [stream for stream in writable if stream in ready],
            [],
        )


class _PipeEnd:
    """One end of a pipe that wakes kazoo's connection thread: one byte for each request.

    kazoo's pair of sockets blocks the sender when some 280 bytes are unread. That happens when a connection breaks: kazoo drops the
    requests, but not their bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def recv(self, size: int) -> bytes:
        return os.read(self._descriptor, size)

    def send(self, data: bytes) -> int:
        with suppress(BlockingIOError):  # thousands of bytes are unread: the thread wakes anyway
            return os.write(self._descriptor, data)
        return 0

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class FailureReasons(logging.Handler):
    """Reads from kazoo's log why a connection failed."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        super().__init__()
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if reason not in _NOT_REASONS:
            for preamble in _PREAMBLES:
                reason = reason.removeprefix(preamble)
            if record.exc_info and record.exc_info[1]:
                reason = f"{reason}: {record.exc_info[1]!r}"
            self._failed(reason)
