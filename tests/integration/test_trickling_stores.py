"""A store that trickles: bytes keep coming, and what they say is ever older. It is not seen, and nothing is concluded from it."""

import json
import time
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from sidecar.app.loop import Loop
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity, Store
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.drivers.kubernetes import Access, KubernetesDriver
from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.journal import Journal
from sidecar.ports import LeaderRetrievalDriver
from sidecar.runtime.clock import Clock
from tests.integration.conftest import RelayTo, Watch
from tests.kit.cluster import CLUSTER, RESOURCE_MANAGER, REST_SERVER, A, B
from tests.kit.cluster import DISPATCHER as DISPATCHER_ID
from tests.kit.config_maps import LEADER
from tests.kit.driver_recorder import CONNECTED, SUSPENDED
from tests.kit.java_serialization import connection_info
from tests.kit.kubernetes_server import Kubernetes, Namespace
from tests.kit.relay import Wire
from tests.kit.repeating import repeating
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

DISPATCHER = "/leader/dispatcher/connection_info"
NOISE = "/leader/rest_server/connection_info"
VACANT_SECONDS = 4


class _Driver(Protocol):
    def __call__(self, clock: Clock) -> LeaderRetrievalDriver: ...


class House:
    """The owner's loop, with a journal and one driver: notifies of a vacancy that lasts four seconds."""

    def __init__(self, folder: Path, store: Store, driver: _Driver) -> None:
        rule = Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=VACANT_SECONDS * SECOND)
        receivers = {"ops": (Destination("ops", 0),)}
        policy = Policy(
            "observer", {CLUSTER: store}, rules=(rule,), route=Route("ops", group_wait=0), receivers=receivers
        )
        self._journal = Journal(folder)
        state = self._journal.open()
        clock = Clock(state.alive)
        self.sent: list[Delivery] = []
        self.loop = Loop(
            policy,
            self._journal,
            state,
            clock,
            carry_out=lambda effect: self.sent.append(effect.delivery) if isinstance(effect, Send) else None,
            sealed=lambda: 0,
            died=lambda: None,
        )
        self._driver = driver(clock)
        self.loop.start()
        self._driver.start(self.loop.observe)

    @property
    def ready(self) -> bool:
        return self.loop.snapshot.ready

    @property
    def confirmed_at(self) -> int:
        """When the store was as it is known to be (steady, 0: never)."""
        confirmed = self.loop.snapshot.state.clusters[CLUSTER].confirmed
        return confirmed.at.steady if confirmed else 0

    def close(self) -> None:
        self._driver.stop()
        self.loop.stop()
        self._journal.close()


def published(leader: object = A) -> bytes:
    """What the dispatcher's leader writes."""
    information = leader.leads(DISPATCHER_ID)  # type: ignore[attr-defined]
    return connection_info(information.address, information.session_id)


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def test_zookeeper_that_trickles_is_suspended(watch: Watch, wire: Wire, namespace: str, flink: KazooClient) -> None:
    """Events that keep coming, a byte each 10 ms, do not excuse that what we asked is not answered."""
    flink.create(NOISE, b"0", makepath=True)
    recorder = watch(wire.address, namespace)
    recorder.wait_complete()
    wire.trickle(0.01)
    with repeating(lambda number: flink.set(NOISE, b"%d" % number), every=0.02):
        recorder.wait_view(CONNECTED, SUSPENDED)


def test_zookeeper_that_trickles_pages_nobody(wire: Wire, namespace: str, flink: KazooClient, tmp_path: Path) -> None:
    """A vacancy of a moment, of which only the beginning gets through: it is not seen to last, and the sidecar is not ready."""
    flink.create(NOISE, b"0", makepath=True)
    flink.create(DISPATCHER, published(), makepath=True)

    def driver(clock: Clock) -> LeaderRetrievalDriver:
        return ZooKeeperDriver(wire.address, namespace, CLUSTER, clock, session_timeout=60)

    house = House(tmp_path, Store.ZOOKEEPER, driver)
    try:
        wait_for("readiness", lambda: house.ready, 30)
        wire.trickle(0.01)
        flink.delete(DISPATCHER)
        with repeating(lambda number: flink.set(NOISE, b"%d" % number), every=0.02):
            time.sleep(0.3)  # so long nobody leads
            flink.create(DISPATCHER, published(B))
            wait_for("the end of readiness", lambda: not house.ready, 30)
            time.sleep(VACANT_SECONDS + 4)  # it would have been notified of by then
            assert not house.ready
        assert house.sent == []
    finally:
        house.close()


def test_a_view_of_zookeeper_is_confirmed_all_the_time(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """Each confirmation is of a moment of which everything was observed before it, also while much is written."""
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    recorder.wait(lambda: len(recorder.confirmed) >= 2)
    jobs = [f"/leader/job-{number:032x}/connection_info" for number in range(500)]
    for made in [flink.create_async(path, b"0", makepath=True) for path in jobs]:
        made.get(timeout=20)
    after = recorder.driver._clock()  # white box: the clock that the driver was given
    recorder.wait(lambda: recorder.confirmed[-1].at > after)
    assert recorder.standing() == dict.fromkeys(jobs, b"0")


# -- Kubernetes --------------------------------------------------------------------------------------------------------

CONFIG_MAP = f"{CLUSTER}-cluster-config-map"
LED = {"dispatcher": DISPATCHER_ID, "resourcemanager": RESOURCE_MANAGER, "restserver": REST_SERVER}
"""All of the cluster's components, by their keys: one that nobody led would rightly be notified of."""


@pytest.fixture
def api_wire(kubernetes: Kubernetes, relay_to: RelayTo) -> Wire:
    """A connection to the API server that can be hurt."""
    return relay_to(kubernetes.server.address)


def renew(flink: Namespace, number: int, holder: str = "jm-a") -> None:
    """The leader renews its lease, or has released it (`holder` is empty), in a ConfigMap of some 5 kB."""
    lease = {
        "holderIdentity": holder,
        "leaseDuration": "PT15S",
        "acquireTime": "2026-11-20T08:00:00Z",
        "renewTime": f"{number}",
        "leaderTransitions": 0,
    }
    leaders = {f"{LEADER}{key}": A.leads(component) for key, component in LED.items()}
    data = {key: f"{leader.session_id},{leader.address}" for key, leader in leaders.items()}
    flink.replace(CONFIG_MAP, data | {"padding": "x" * 5000}, json.dumps(lease))


def test_a_watch_of_kubernetes_that_trickles_pages_nobody(
    kubernetes: Kubernetes, api_wire: Wire, tmp_path: Path
) -> None:
    """Lines that come in slower than they are written are ever older: a lease released for a moment is no vacancy that lasts."""
    flink = kubernetes.namespace(f"test-{uuid4()}")
    flink.create(CONFIG_MAP)
    renew(flink, 0)
    kubeconfig = kubernetes.kubeconfig(server=f"https://{api_wire.address}")

    def driver(clock: Clock) -> LeaderRetrievalDriver:
        return KubernetesDriver(Access(kubeconfig), flink.name, CLUSTER, clock)

    house = House(tmp_path, Store.KUBERNETES, driver)
    try:
        wait_for("readiness", lambda: house.ready, 30)
        api_wire.trickle(0.001)
        renew(flink, -1, holder="")
        with repeating(lambda number: renew(flink, number), every=0.2):
            wait_for("the end of readiness", lambda: not house.ready, 90)
            time.sleep(2 * VACANT_SECONDS)  # it would have been notified of by then
        assert house.sent == []
    finally:
        house.close()


def test_a_view_of_kubernetes_is_confirmed_while_the_watch_speaks(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Renewals that come in time do not keep anybody from looking: the view is confirmed again and again."""
    flink = kubernetes.namespace(f"test-{uuid4()}")
    flink.create(CONFIG_MAP)
    renew(flink, 0)

    def driver(clock: Clock) -> LeaderRetrievalDriver:
        return KubernetesDriver(Access(kubernetes.kubeconfig()), flink.name, CLUSTER, clock)

    house = House(tmp_path, Store.KUBERNETES, driver)
    try:
        wait_for("readiness", lambda: house.ready, 30)
        before = house.confirmed_at
        with repeating(lambda number: renew(flink, number), every=0.5):
            wait_for("a confirmation", lambda: house.confirmed_at > before, 60)
        assert house.ready
    finally:
        house.close()
