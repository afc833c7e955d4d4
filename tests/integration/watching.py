"""What a driver told, what a sidecar would record of it, and wires and networks between it and its server that can be hurt."""

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self, TypeVar

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    NodeObserved,
    NodeRefused,
    Observation,
    SnapshotCompleted,
    Started,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy import Policy
from sidecar.core.records import AnyRecord
from sidecar.core.state import State
from sidecar.core.step import Append, step
from sidecar.drivers.zookeeper import ZooKeeperDriver

CLUSTER = "default"
CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
_TICK = SECOND // 4
_CLONE_NEWNET = 0x40000000
_COMMAND_SECONDS = 10.0

T = TypeVar("T")


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

    def seconds_until(self, state: ConnectionState, since: Moment) -> float:
        """How long after `since` the connection was first seen to be in `state`."""
        return next(
            (told.at.steady - since.steady) / SECOND
            for told in list(self.all)
            if isinstance(told, ViewObserved) and told.connection is state and told.at.steady >= since.steady
        )

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


def recorded(told: Sequence[ClusterObservation], until: Moment, policy: Policy) -> list[AnyRecord]:
    """What a fresh sidecar records of what was `told`, its clock ticking four times a second, `until` then."""
    state, records = State(), list[AnyRecord]()

    def take(observation: Observation) -> None:
        nonlocal state
        state, effects = step(policy, state, observation)
        records.extend(effect.record for effect in effects if isinstance(effect, Append))

    last = told[0].at
    take(Started(last))
    for observation in [*told, Ticked(until)]:
        while last.steady + _TICK < observation.at.steady:
            last = Moment(last.steady + _TICK, last.wall + _TICK)
            take(Ticked(last))
        take(observation)
    return records


class Wire:
    """A TCP relay to one server. It can be cut, fall silent, and put bytes of its own into what the server says."""

    def __init__(self, target: str, listener: socket.socket | None = None) -> None:
        """`listener` takes the connections, in whatever network it was made."""
        host, port = target.split(":")
        self._target = (host, int(port))
        self._connections: list[socket.socket] = []
        self._silence = threading.Event()
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

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
                try:
                    server = socket.create_connection(self._target, 5)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                self._connections += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=_relay, args=(source, sink, self._silence), daemon=True).start()


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
            threading.Thread(target=_relay, args=(source, sink, threading.Event()), daemon=True).start()


class PrivateNetwork:
    """A network namespace that holds a loopback and nothing else. Needs root, and Debian's `iproute2`.

    It lasts until it was closed and the threads and sockets made in it are gone.
    """

    def __init__(self) -> None:
        self._inside = ThreadPoolExecutor(1, thread_name_prefix="private-network")
        self.run(_leave_for_a_new_network)
        self._command("ip", "link", "set", "lo", "up")

    def run(self, act: Callable[[], T]) -> T:
        """Call `act` in the network: sockets that it opens, and threads that it starts, are of this network."""
        return self._inside.submit(act).result()

    def drop_packets(self) -> None:
        """From now on every packet vanishes, and nobody is told."""
        self._command("tc", "qdisc", "replace", "dev", "lo", "root", "pfifo", "limit", "0")

    def pass_packets(self) -> None:
        self._command("tc", "qdisc", "delete", "dev", "lo", "root")

    def close(self) -> None:
        self._inside.shutdown()

    def _command(self, *command: str) -> None:
        def call() -> subprocess.CompletedProcess[str]:
            return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False)

        done = self.run(call)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _leave_for_a_new_network() -> None:
    """Of this thread alone; `os.unshare` is Python 3.12's."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")


def _relay(source: socket.socket, sink: socket.socket, silence: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            if not silence.is_set():
                sink.sendall(data)
    if not silence.is_set():  # else that one side has hung up is not told to the other
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
    source.close()
