"""A way to a server that can be shut for some of its clients."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class Gate:
    """A TCP relay to one server. Whoever comes while the server is down is kept waiting: all get through together when it is back."""

    def __init__(self, target: str, serves: Callable[[], bool]) -> None:
        """`serves` tells whether the server at `target` would take a client now."""
        host, port = target.split(":")
        self._target = (host, int(port))
        self._serves = serves
        self._shut = False
        self._closed = threading.Event()
        self._connections: set[socket.socket] = set()
        self._relayed = 0
        self._passed_at = 0.0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, name="gate", daemon=True)
        self._accepting.start()

    def shut(self) -> None:
        """Break what is connected, and refuse whoever comes."""
        self._shut = True
        for connection in tuple(self._connections):
            _break(connection)

    def open(self) -> None:
        self._shut = False

    def is_still(self, clients: int, seconds: float) -> bool:
        """Whether that many clients are connected to the server, and none has said or heard anything for so long."""
        with self._lock:
            return self._relayed == clients and time.monotonic() - self._passed_at >= seconds

    def close(self) -> None:
        """The end: it cannot be opened again."""
        self._closed.set()
        self.shut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(5)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self._connections.add(client)
                threading.Thread(target=self._serve, args=(client,), name="gate", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while not (self._shut or self._serves()):
                self._closed.wait(0.01)
            if not self._shut:
                with socket.create_connection(self._target, 5) as server:
                    self._relay(client, server)
        self._connections.discard(client)

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        server.settimeout(None)
        with self._lock:
            self._relayed += 1
        answers = threading.Thread(target=self._copy, args=(server, client), name="gate", daemon=True)
        answers.start()
        self._copy(client, server)
        answers.join(5)
        with self._lock:
            self._relayed -= 1

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._passed_at = time.monotonic()
                sink.sendall(data)
        _break(source)
        _break(sink)


def _break(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
