"""Real servers for the drivers to look at."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sidecar.drivers.zookeeper import ZooKeeperDriver
from tests.kit.commands_scene import JobManagers
from tests.kit.driver_recorder import CLUSTER, Recorder, now, recorders
from tests.kit.kubernetes_server import USERS, Kubernetes
from tests.kit.relay import Wire
from tests.kit.serving import serving
from tests.kit.zookeeper_client import connected
from tests.kit.zookeeper_findings import led
from tests.lab.distribution import flink_home
from tests.lab.zookeeper import ZooKeeper

Watch = Callable[..., Recorder]
RelayTo = Callable[[str], Wire]


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[ZooKeeper]:
    """One server for all tests that do it no harm, each below its own namespace."""
    with serving(ZooKeeper(tmp_path_factory.mktemp("zookeeper"), flink_2_home, java)) as server:
        yield server


class OldZooKeeper(ZooKeeper):
    """ZooKeeper 3.4.14, as Flink 1.14.6 has it beside its own jar: it knows no persistent watches."""

    def build_command(self) -> Sequence[str]:
        java, *arguments = super().build_command()
        return [java, "-Dzookeeper.jmx.log4j.disable=true", *arguments]


@pytest.fixture(scope="session")
def old_zookeeper(tmp_path_factory: pytest.TempPathFactory, java: Path) -> Iterator[ZooKeeper]:
    server = OldZooKeeper(tmp_path_factory.mktemp("old"), flink_home("1.14.6", print), java)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> Iterator[Kubernetes]:
    """One API server for all tests that leave it as they found it, each in a namespace of its own."""
    with serving(Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver, **USERS)) as server:
        yield server


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test writes to."""
    return "/flink/" + re.sub(r"\W+", "-", request.node.name).strip("-")


@contextmanager
def writer(server: ZooKeeper, namespace: str) -> Iterator[KazooClient]:
    """A client whose paths are below `namespace`."""
    with connected(server.address) as client:
        client.ensure_path(namespace)
        client.chroot = namespace
        yield client


@pytest.fixture
def flink(shared_zookeeper: ZooKeeper, namespace: str) -> Iterator[KazooClient]:
    """Somebody who writes below the namespace: what Flink is to the driver."""
    with writer(shared_zookeeper, namespace) as client:
        yield client


@pytest.fixture
def relay_to() -> Iterator[RelayTo]:
    """Starts relays to servers, `relay_to(address)`, and closes them when the test is over."""
    relays = []

    def start(address: str) -> Wire:
        relays.append(Wire(address))
        return relays[-1]

    yield start
    for relay in relays:
        relay.close()


@pytest.fixture
def wire(shared_zookeeper: ZooKeeper, relay_to: RelayTo) -> Wire:
    """A connection to the shared server that can be hurt."""
    return relay_to(shared_zookeeper.address)


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Starts drivers, `watch(quorum, namespace, …)`, and stops them when the test is over."""
    with recorders(Recorder) as record:

        def start(
            quorum: str, namespace: str, *, session_timeout: float = 6.0, connection_timeout: float = 3.0
        ) -> Recorder:
            driver = ZooKeeperDriver(
                quorum, namespace, CLUSTER, now, session_timeout=session_timeout, connection_timeout=connection_timeout
            )
            return record(driver)

        yield start


@pytest.fixture
def recorder(watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient) -> Recorder:
    """A driver that has seen the empty namespace of this test."""
    assert flink.connected
    driver_recorder = watch(shared_zookeeper.address, namespace)
    driver_recorder.wait_complete()
    return driver_recorder


@pytest.fixture
def place(namespace: str) -> str:
    """The id of a cluster whose root no other test has."""
    return f"{namespace.removeprefix('/flink/')}/orders"


@pytest.fixture
def orders(shared_zookeeper: ZooKeeper, place: str) -> Iterator[JobManagers]:
    """A cluster of two JobManagers, in ZooKeeper of one server."""
    with led(shared_zookeeper.address, place) as cluster:
        yield cluster
