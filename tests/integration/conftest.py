"""Real servers for the drivers to look at."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.lab.distribution import flink_home
from sidecar.lab.java import find_java
from sidecar.lab.zookeeper import ZooKeeper
from tests.integration.watching import CLUSTER, Recorder, now

Watch = Callable[..., Recorder]


def _tell(line: str) -> None:
    print(f"lab: {line}", file=sys.stderr)  # noqa: T201  pytest shows it beside a failure


def _server(folder: Path) -> ZooKeeper:
    server = ZooKeeper(folder, flink_home("2.3.0", _tell), find_java())
    server.start()
    return server


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One server for all tests that do it no harm, each below its own namespace."""
    server = _server(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.kill()


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server for one test to hurt."""
    server = _server(tmp_path / "zookeeper")
    yield server
    server.kill()


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test writes to."""
    return "/flink/" + re.sub(r"\W+", "-", request.node.name).strip("-")


@pytest.fixture
def flink(shared_zookeeper: ZooKeeper, namespace: str) -> Iterator[KazooClient]:
    """Somebody who writes below the namespace: what Flink is to the driver."""
    client = KazooClient(shared_zookeeper.address)
    client.start(10)
    client.ensure_path(namespace)
    client.chroot = namespace
    yield client
    client.stop()
    client.close()


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Starts drivers, `watch(quorum, namespace, …)`, and stops them when the test is over."""
    drivers = []

    def start(
        quorum: str, namespace: str, *, session_timeout: float = 6.0, connection_timeout: float = 3.0
    ) -> Recorder:
        driver = ZooKeeperDriver(
            quorum, namespace, CLUSTER, now, session_timeout=session_timeout, connection_timeout=connection_timeout
        )
        drivers.append(driver)
        recorder = Recorder(driver)
        driver.start(recorder)
        return recorder

    yield start
    for driver in drivers:
        driver.stop()


@pytest.fixture
def seen(watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient) -> Recorder:
    """A driver that has seen the empty namespace of this test."""
    assert flink.connected
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    return recorder
