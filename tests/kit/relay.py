"""Relays between a client and its server, which can be cut, shut and fall silent."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

_COMMAND_SECONDS = 10.0


class Wire:
    """A TCP relay to one server. It can be cut, fall silent, and put bytes of its own into what the server says."""

    def __init__(self, target: str, listener: socket.socket | None = None) -> None:
        """`listener` takes the connections, in whatever network it was made."""
        host, port = target.split(":")
        self._target = (host, int(port))
        self._connections: list[socket.socket] = []
        self._silence = threading.Event()
        self._shut = False
        self._asking, self._pace = Pace(), Pace()
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def sent(self) -> int:
        """Bytes towards the server so far, TLS and all."""
        return self._asking.passed

    @property
    def received(self) -> int:
        """Bytes from the server so far."""
        return self._pace.passed

    def cut(self) -> None:
        """Break what is connected now."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """Neither close nor relay: not what is connected, nor what connects from now on."""
        self._silence.set()

    def speak_again(self) -> None:
        """Relay what connects from now on. What is connected stays as it is: silent for ever."""
        self._silence = threading.Event()

    def shut(self) -> None:
        """Reset what is connected, and what connects from now on."""
        self._shut = True
        connections, self._connections = self._connections, []
        for connection in connections:
            _reset(connection)

    def delay(self, seconds: float) -> None:
        """From now on, each piece is late by so many seconds, in both directions."""
        self._asking.late = self._pace.late = seconds

    def mend(self) -> None:
        """Relay what connects from now on, and pass on at once. What is silent stays so."""
        self._shut = False
        self.speak_again()
        self.delay(0)
        self.trickle(0)

    def trickle(self, seconds_a_byte: float) -> None:
        """From now on, what the server says passes byte by byte: on what is connected, and on what connects."""
        self._pace.seconds_a_byte = seconds_a_byte

    def inject(self, data: bytes) -> None:
        """Say `data` to the clients as if the server had."""
        for client in self._connections[::2]:
            client.sendall(data)

    def close(self) -> None:
        """Break what is connected, and refuse what wants to be. May be called twice."""
        self.cut()
        with suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                if self._shut:
                    _reset(client)
                    continue
                try:
                    server = socket.create_connection(self._target, 5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._connections += [client, server]
                for source, sink, pace in ((client, server, self._asking), (server, client, self._pace)):
                    threading.Thread(target=_relay, args=(source, sink, self._silence, pace), daemon=True).start()


class Pace:
    """How fast a relay is, and how many bytes have passed."""

    def __init__(self) -> None:
        self.seconds_a_byte = self.late = 0.0
        self.passed = 0

    def send(self, data: bytes, sink: socket.socket) -> None:
        """Send `data`, which takes its time."""
        self.passed += len(data)
        time.sleep(self.late)
        while data and self.seconds_a_byte:
            sink.sendall(data[:1])
            data = data[1:]
            time.sleep(self.seconds_a_byte)
        sink.sendall(data)


class Endpoint:
    """Something that listens, and serves each client on a thread of its own."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self, client: socket.socket) -> None:
        """Do what `client` wants."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=self.serve, args=(self._listener.accept()[0],), daemon=True).start()


class Proxy(Endpoint):
    """An HTTP proxy that knows CONNECT and nothing else. Its connections last until both ends have hung up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        """Where its clients wanted to go."""

    def serve(self, client: socket.socket) -> None:
        client.settimeout(_COMMAND_SECONDS)
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(65536)
        verb, target, _ = head.decode().split(" ", 2)
        assert verb == "CONNECT"
        self.asked.append(target)
        host, port = target.split(":")
        server = socket.create_connection((host, int(port)), _COMMAND_SECONDS)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, sink in ((client, server), (server, client)):
            source.settimeout(None)
            threading.Thread(target=_relay, args=(source, sink, threading.Event(), Pace()), daemon=True).start()


class Gate:
    """A TCP relay to one server. Whoever comes while the server is down is kept waiting: all get through together when it is back."""

    def __init__(self, target: str, serves: Callable[[], bool]) -> None:
        """`serves` returns whether the server at `target` would take a client now."""
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


def _reset(connection: socket.socket) -> None:
    """RST: what was on the way is lost, as when a network is cut."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _break(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _relay(source: socket.socket, sink: socket.socket, silence: threading.Event, pace: Pace) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not silence.is_set():
                pace.send(data, sink)
    if not silence.is_set():  # else that one side has hung up is not reported to the other
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    source.close()
