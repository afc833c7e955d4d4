"""What messages are sent to: receivers that accept everything, and servers that answer with whatever bytes they are given."""

import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from sidecar.lab.receivers import HttpReceiver, MailReceiver

_SECONDS: Final = 30.0


@contextmanager
def webhook() -> Iterator[HttpReceiver]:
    """A webhook that accepts everything."""
    receiver = HttpReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


@contextmanager
def mailbox() -> Iterator[MailReceiver]:
    """A mail server that accepts everything."""
    receiver = MailReceiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()


class RawServer:
    """Answers each request of `json://` with these bytes, as long as anybody reads them, and closes; with a reset, if told so."""

    def __init__(self, answer: Callable[[], Iterable[bytes]], *, reset: bool = False) -> None:
        self._answer = answer
        self._reset = reset
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"json://127.0.0.1:{self._socket.getsockname()[1]}/"
        self.requests = 0
        self.sent = 0
        """Bytes that the last caller took."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(_SECONDS)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                self._handle(connection)

    def _handle(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS)
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(65536)
        self.requests += 1
        self.sent = 0
        for part in self._answer():
            connection.sendall(part)
            self.sent += len(part)
        if self._reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
