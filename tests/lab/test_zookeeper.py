"""The lab's ZooKeeper is a real one that can be hurt and healed."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.zookeeper_client import connected
from tests.lab import zookeeper as zookeeper_module
from tests.lab.lab_error import LabError
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

pytestmark = pytest.mark.e2e


def _write(zookeeper: ZooKeeper, path: str, data: bytes) -> None:
    with connected(zookeeper.address) as client:
        client.create(path, data, makepath=True)


def test_it_keeps_address_and_data_over_a_kill(zookeeper: ZooKeeper) -> None:
    """Killed with -9 and started again, it answers at the same address with what was written before."""
    address = zookeeper.address
    before = time.time()
    _write(zookeeper, "/flink/lab", b"kept")
    zookeeper.kill()
    with pytest.raises(LabError, match=f"could not read /flink/lab from ZooKeeper at {address}"):
        zookeeper.read("/flink/lab")
    zookeeper.start()
    node = zookeeper.read("/flink/lab")
    assert node is not None
    assert (zookeeper.address, node[0]) == (address, b"kept")
    assert before - 1 < node[1] < time.time() + 1


def test_a_node_that_is_not_there_is_none(zookeeper: ZooKeeper) -> None:
    """A missing node differs from an empty one."""
    _write(zookeeper, "/empty", b"")
    empty = zookeeper.read("/empty")
    assert empty is not None
    assert empty[0] == b""
    assert zookeeper.read("/nothing") is None


@pytest.mark.timing
def test_paused_it_is_silent_and_resumed_it_answers(zookeeper: ZooKeeper) -> None:
    """A stopped server costs a reader seconds, not forever."""
    zookeeper.pause()
    started = time.monotonic()
    assert not zookeeper.is_ready()
    with pytest.raises(LabError, match="could not read"):
        zookeeper.read("/zookeeper")
    assert time.monotonic() - started < 15
    zookeeper.resume()
    assert zookeeper.is_ready()
    assert zookeeper.read("/zookeeper") is not None


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another process listens and sends nothing."""
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        yield port


def test_a_port_taken_in_between_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flink_2_home: Path, java: Path, taken_port: int
) -> None:
    """When another process takes the chosen port first, the server starts on another one."""
    ports = [taken_port, (other := free_port())]
    monkeypatch.setattr(zookeeper_module, "free_port", lambda: ports.pop(0))
    server = ZooKeeper(tmp_path, flink_2_home, java)
    server.start()
    assert (server.address, server.is_ready()) == (f"127.0.0.1:{other}", True)
    server.stop()
    assert not server.running


def test_a_server_that_dies_at_its_start_is_one_line_with_its_last_words(tmp_path: Path, java: Path) -> None:
    """The error names the log file and the line in it that matters."""
    (tmp_path / "home" / "lib").mkdir(parents=True)
    server = ZooKeeper(tmp_path / "zookeeper", tmp_path / "home", java)
    with pytest.raises(LabError) as caught:
        server.start()
    message = str(caught.value)
    assert message.startswith(f"ZooKeeper ended with exit code 1 while starting; the end of {server.log}: Caused by: ")
    assert message.endswith("QuorumPeerMain")
    assert "\n" not in message
