"""Servers that are no ZooKeeper, whatever they answer, and a proxy that holds back four-letter words."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(behaviour: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does that with each connection; its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def converse(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            behaviour(connection)

    def accept() -> None:
        with suppress(OSError):  # closed
            while True:
                threading.Thread(target=converse, args=(listener.accept()[0],), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)


def holding_back_words(address: str) -> Callable[[socket.socket], None]:
    """A proxy to the server at that address, which closes a connection that begins with a four-letter word."""
    host, _, port = address.partition(":")

    def relay(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(4096):
                sink.sendall(part)
            sink.shutdown(socket.SHUT_WR)

    def behaviour(client: socket.socket) -> None:
        if (first := client.recv(4)) == b"srvr":
            return
        with socket.create_connection((host, int(port))) as server:
            server.sendall(first)
            asking = threading.Thread(target=relay, args=(client, server), daemon=True)
            asking.start()
            relay(server, client)
            client.shutdown(socket.SHUT_RDWR)
            asking.join()

    return behaviour


def silent(connection: socket.socket) -> None:
    """It reads, and answers nothing."""
    while connection.recv(4096):
        pass


def garbage(connection: socket.socket) -> None:
    """It answers what is too short, with what acts on a terminal, and hangs up."""
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x05hello\x1b[2J\xff")


def endless(connection: socket.socket) -> None:
    """It answers without end, in part as a server would."""
    while True:
        connection.sendall(
            b"\x00\x00\x40\x00" + b"Mode: follower\nLatency min/avg/max: 0/1.2.3/4\nOutstanding: 1\n" * 400
        )


def trickling(connection: socket.socket) -> None:
    """It answers ten bytes a second."""
    connection.recv(4096)
    connection.sendall(b"\x00\x00\x00\x25")
    while True:
        connection.sendall(b"x")
        connection.settimeout(0.1)
        with suppress(TimeoutError):
            connection.recv(1)
