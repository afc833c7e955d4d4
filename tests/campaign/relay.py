"""A TCP relay between one sidecar and its store. It can be cut, fall silent, trickle and be slow."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final

_CHUNK: Final = 65536
_CONNECT_SECONDS: Final = 5.0
_TRICKLE_SECONDS: Final = 0.01


class Line(StrEnum):
    """What the relay does with what it is given."""

    GOOD = "good"
    CUT = "cut"
    """What is connected is broken, what connects is refused at once."""
    SILENT = "silent"
    """Nothing is closed, and nothing is passed on: half-open."""
    TRICKLE = "trickle"
    """One byte every 10 ms from the store."""
    SLOW = "slow"
    """Each piece is late by a second."""


class Relay:
    """Relays to `target()`, `host:port`, which may change. Set `line` at any time."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self._line = Line.GOOD
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="relay", daemon=True)
        self._thread.start()

    @property
    def line(self) -> Line:
        return self._line

    @line.setter
    def line(self, line: Line) -> None:
        self._line = line
        if line is Line.CUT:
            self._break_all()

    def close(self) -> None:
        """Break everything, and listen no more."""
        self._line = Line.CUT
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break_all()
        self._thread.join(5)

    def _break_all(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            _reset(connection)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._line is Line.CUT:
            _reset(client)
            return
        host, _, port = self._target().partition(":")
        try:
            server = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        with self._lock:
            self._connections += [client, server]
        threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
        threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_store: bool) -> None:
        muted = False
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                muted = muted or self._line is Line.SILENT  # for good: whoever holds the connection has to notice
                if not muted:
                    self._pass_on(data, sink, from_store)
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, data: bytes, sink: socket.socket, from_store: bool) -> None:
        if self._line is Line.SLOW:
            time.sleep(1.0)
        position = 0
        while position < len(data):
            step = len(data)
            if self._line is Line.TRICKLE and from_store:
                time.sleep(_TRICKLE_SECONDS)
                step = 1
            sink.sendall(data[position : position + step])
            position += step


def _reset(connection: socket.socket) -> None:
    """RST: what was on the way is lost, as when a network is cut."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
