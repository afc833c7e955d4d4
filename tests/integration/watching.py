"""What a driver told, and a wire between it and its server that can be hurt."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    NodeRefused,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.drivers.zookeeper import ZooKeeperDriver

CLUSTER = "default"
CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST


def now() -> Moment:
    """The machine's clocks."""
    return Moment(time.monotonic_ns() // 1000, time.time_ns() // 1000)


class Recorder:
    """An observer that keeps what it was told, in order."""

    def __init__(self, driver: ZooKeeperDriver) -> None:
        self.driver = driver
        self.all: list[ClusterObservation] = []
        self._told = threading.Condition()

    def __call__(self, observation: ClusterObservation) -> None:
        with self._told:
            self.all.append(observation)
            self._told.notify_all()

    def wait(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait until what was told makes `condition` true; fails with what was told when it does not."""
        deadline = time.monotonic() + timeout
        with self._told:
            while not condition():
                assert time.monotonic() < deadline, f"not within {timeout} s, of {self.all[-12:]}"
                self._told.wait(0.05)  # not everything that is waited for is told

    def wait_complete(self, snapshots: int = 1, timeout: float = 10.0) -> None:
        """Wait until everything has been read for the n-th time."""
        self.wait(lambda: self.snapshots() >= snapshots, timeout)

    def wait_value(self, path: str, data: bytes | None, timeout: float = 10.0) -> None:
        """Wait until `data`, or nothing (None), is what was last seen at `path`."""
        self.wait(lambda: self.values(path)[-1:] == [data], timeout)

    def wait_names(self, path: str, *names: str) -> None:
        """Wait until these are the children last seen of `path`."""
        self.wait(lambda: self.names(path)[-1:] == [names])

    def wait_view(self, *states: ConnectionState, timeout: float = 10.0) -> None:
        """Wait until the connection has gone through exactly these states."""
        self.wait(lambda: len(self.view()) >= len(states), timeout)
        assert self.view() == list(states)

    def snapshots(self) -> int:
        return sum(isinstance(told, SnapshotCompleted) for told in self.all)

    def view(self) -> list[ConnectionState]:
        return [told.connection for told in self.all if isinstance(told, ViewObserved)]

    def nodes(self, path: str) -> list[NodeObserved]:
        return [told for told in self.all if isinstance(told, NodeObserved) and told.path == path]

    def values(self, path: str) -> list[bytes | None]:
        """The values seen at `path`, None where there was nothing."""
        return [told.data if told.position else None for told in self.nodes(path)]

    def standing(self) -> dict[str, bytes]:
        """The last value seen at each path where there is one."""
        last = {told.path: told for told in self.all if isinstance(told, NodeObserved)}
        return {path: told.data for path, told in last.items() if told.position}

    def names(self, path: str) -> list[tuple[str, ...]]:
        return [told.names for told in self.all if isinstance(told, ChildrenObserved) and told.path == path]

    def refused(self, path: str) -> list[str]:
        return [told.reason for told in self.all if isinstance(told, NodeRefused) and told.path == path]


class Wire:
    """A TCP relay to one server. It can be cut, and put bytes of its own into what the server says."""

    def __init__(self, target: str) -> None:
        host, port = target.split(":")
        self._target = (host, int(port))
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut(self) -> None:
        """Break what is connected now."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def inject(self, data: bytes) -> None:
        """Say `data` to the clients as if the server had."""
        for client in self._connections[::2]:
            client.sendall(data)

    def close(self) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = socket.create_connection(self._target, 5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._connections += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_relay, args=(source, sink), daemon=True).start()


def _relay(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    source.close()
