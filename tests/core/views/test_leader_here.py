"""Whether the JobManager beside a sidecar leads, in each situation; and who leads one cluster."""

from collections.abc import Callable
from itertools import product

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import Missing
from sidecar.core.flink.leadership import Blindness, ComponentId, Unknown
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState, ViewConfirmed
from sidecar.core.policy.policy import Store
from sidecar.core.views.leader_here import Decision, LeaderHere, cluster_leader, leader_here
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER, DISPATCHER, RESOURCE_MANAGER, REST_SERVER, A, JobManager
from tests.kit.config_maps import ConfigMaps
from tests.kit.core_sidecar import KUBERNETES, POLICY, LeaseSidecar, Sidecar, watching
from tests.kit.fake_flink import Flink

HERE = frozenset({"jm-a", "10.0.0.1"})
THERE = frozenset({"jm-b", "10.0.0.2"})
LATCH = "/leader/latch"

Situation = Callable[[Sidecar], Snapshot]


def snapshot(sidecar: Sidecar, **other: object) -> Snapshot:
    """What the sidecar publishes; `other`: of its cluster's state."""
    cluster = replace(sidecar.state.clusters[CLUSTER], **other)
    return Snapshot(sidecar.moment, replace(sidecar.state, clusters={CLUSTER: cluster}), policy=sidecar.policy)


def here(current: Snapshot, component: ComponentId = REST_SERVER, cluster_id: str | None = None) -> LeaderHere:
    return leader_here(current, component, cluster_id, current.at)


def beside(*hosts: str) -> Sidecar:
    """A sidecar on a machine of these names and addresses, that has seen A lead for a minute."""
    return watching(policy=replace(POLICY, own_hosts=frozenset(hosts)))[1]


def led(sidecar: Sidecar) -> Snapshot:
    return snapshot(sidecar)


def vacant(sidecar: Sidecar) -> Snapshot:
    """Somebody contends."""
    sidecar.flink.vacate()
    return snapshot(sidecar.sees_changes(), contenders={LATCH: ("b",)})


def suspended(sidecar: Sidecar) -> Snapshot:
    return snapshot(sidecar.is_cut_off())


def lost(sidecar: Sidecar) -> Snapshot:
    return snapshot(sidecar.is_cut_off(ConnectionState.LOST).waits(60))


def vacant_and_cut_off(sidecar: Sidecar) -> Snapshot:
    vacant(sidecar)
    return suspended(sidecar)


def connected_and_not_read(sidecar: Sidecar) -> Snapshot:
    sidecar.is_cut_off().waits(60).reconnects()
    return snapshot(sidecar)


def just_started(sidecar: Sidecar) -> Snapshot:
    return snapshot(Sidecar(sidecar.flink, sidecar.policy))


def restarted(sidecar: Sidecar) -> Snapshot:
    """It remembers who led."""
    return snapshot(sidecar.is_killed())


def nothing_known(sidecar: Sidecar) -> Snapshot:
    """The owner has not turned yet."""
    return Snapshot(sidecar.moment, policy=sidecar.policy)


def unreadable(sidecar: Sidecar) -> Snapshot:
    components = sidecar.state.clusters[CLUSTER].components
    bytes_of_a_stranger = replace(components[REST_SERVER], leadership=Unknown(Blindness.UNREADABLE))
    return snapshot(sidecar, components={**components, REST_SERVER: bytes_of_a_stranger})


def component_not_read(sidecar: Sidecar) -> Snapshot:
    components = sidecar.state.clusters[CLUSTER].components
    return snapshot(
        sidecar, components={**components, REST_SERVER: replace(components[REST_SERVER], leadership=Unknown())}
    )


def missing(sidecar: Sidecar) -> Snapshot:
    return snapshot(sidecar, missing=Missing("/flink/default", ("<secret cluster>",)))


CELLS: dict[Situation, tuple[Decision, Decision]] = {
    led: (Decision.LEADS, Decision.ANOTHER_LEADS),
    vacant: (Decision.NONE_LEADS, Decision.NONE_LEADS),
    **dict.fromkeys(
        (
            *(suspended, lost, vacant_and_cut_off, connected_and_not_read, just_started, restarted, nothing_known),
            component_not_read,
        ),
        (Decision.BLIND, Decision.BLIND),
    ),
    unreadable: (Decision.UNREADABLE, Decision.UNREADABLE),
    missing: (Decision.MISSING, Decision.MISSING),
}
"""The decision beside A, and beside B."""


@pytest.mark.parametrize(("situation", "place"), [*product(CELLS, (0, 1))])
def test_each_situation(situation: Situation, place: int) -> None:
    """200 of one path at most, and only while the sidecar can see."""
    answer = here(situation(beside(*(HERE, THERE)[place])))
    assert answer.decision is CELLS[situation][place]
    assert answer.leads == (answer.decision is Decision.LEADS)
    assert answer.stands_by == (answer.decision in {Decision.ANOTHER_LEADS, Decision.NONE_LEADS})
    assert answer.reason.isprintable()
    assert "jm-" not in answer.reason
    assert "<secret" not in answer.reason


def test_a_component_has_a_leader_of_its_own() -> None:
    """Up to Flink 1.14 they are elected one by one."""
    sidecar = beside(*HERE)
    sidecar.flink.vacate(DISPATCHER)
    current = snapshot(sidecar.sees_changes(), contenders={LATCH: ("a", "b")})
    assert here(current, REST_SERVER).leads
    assert here(current, RESOURCE_MANAGER).reason == "this JobManager leads resource_manager"
    assert here(current, DISPATCHER) == LeaderHere(Decision.NONE_LEADS, "no JobManager leads dispatcher")


@pytest.mark.parametrize(
    ("host", "store", "own", "decision"),
    [
        # an address is one machine's or pod's, in both stores
        ("10.0.0.1", Store.ZOOKEEPER, HERE, Decision.LEADS),
        ("10.0.0.1", Store.KUBERNETES, HERE, Decision.LEADS),
        ("10.0.0.1", Store.KUBERNETES, THERE, Decision.ANOTHER_LEADS),
        ("[fd00::1]", Store.ZOOKEEPER, frozenset({"jm-a", "fd00::1"}), Decision.LEADS),
        ("[fd00:0::1]", Store.ZOOKEEPER, frozenset({"jm-a", "fd00::2"}), Decision.ANOTHER_LEADS),
        # so is a name, unless it may be a Service's
        ("jm-a.example.org", Store.ZOOKEEPER, HERE, Decision.LEADS),
        ("jm-a.example.org", Store.ZOOKEEPER, THERE, Decision.ANOTHER_LEADS),
        ("jobmanager.flink.svc", Store.ZOOKEEPER, HERE, Decision.NO_SINGLE_HOST),
        ("jobmanager.flink", Store.KUBERNETES, HERE, Decision.NO_SINGLE_HOST),
        # a pod of a StatefulSet, whose name we have
        ("jm-a.jm.flink.svc.cluster.local", Store.ZOOKEEPER, HERE, Decision.LEADS),
        ("jm-a.jm.flink.svc", Store.KUBERNETES, HERE, Decision.LEADS),
        ("jm-a.jm.flink.svc", Store.KUBERNETES, THERE, Decision.NO_SINGLE_HOST),
        # every machine is that
        *(
            (host, store, frozenset({"localhost", "localhost.localdomain", "127.0.0.1"}), Decision.NO_SINGLE_HOST)
            for host in ("localhost", "LocalHost.localdomain", "127.0.0.1", "[::1]", "[::]")
            for store in Store
        ),
        # where we are is not current
        ("10.0.0.1", Store.ZOOKEEPER, frozenset[str](), Decision.NO_JOB_MANAGER),
    ],
)
def test_an_address_is_compared_with_our_own(host: str, store: Store, own: frozenset[str], decision: Decision) -> None:
    """Where it may be that of several machines or pods, neither path is 200."""
    leader = JobManager(host, A.session_id, 7)
    if store is Store.ZOOKEEPER:
        sidecar = watching(leader, policy=replace(POLICY, own_hosts=own))[1]
    else:
        policy = replace(KUBERNETES, own_hosts=own)
        sidecar = LeaseSidecar(Flink(ConfigMaps()).elect(leader).submit(), policy).connects().waits(1)
    assert here(snapshot(sidecar)).decision is decision


def test_a_leader_whose_lease_has_lapsed_does_not_lead() -> None:
    """Its address is still in the ConfigMap."""
    policy = replace(KUBERNETES, own_hosts=HERE)
    sidecar = LeaseSidecar(Flink(ConfigMaps()).elect(A).submit(), policy)
    sidecar.connects()
    assert here(snapshot(sidecar)).leads
    sidecar.hears_nothing(60)
    assert here(snapshot(sidecar)).decision is Decision.NONE_LEADS


@pytest.mark.parametrize(
    ("contenders", "decision"),
    [
        ({}, Decision.ANOTHER_LEADS),  # of Kubernetes nothing is current
        ({LATCH: ()}, Decision.ANOTHER_LEADS),  # there is no latch
        ({LATCH: ("a",)}, Decision.NONE_STANDS_BY),
        ({LATCH: ("a", "b")}, Decision.ANOTHER_LEADS),
    ],
)
def test_a_standby_contends(contenders: dict[str, tuple[str, ...]], decision: Decision) -> None:
    """A JobManager that is down, or starts, is none: then the leader contends alone."""
    answer = here(snapshot(beside(*THERE), contenders=contenders))
    assert answer.decision is decision
    assert answer.stands_by is (decision is Decision.ANOTHER_LEADS)


def test_nobody_contends_while_nobody_leads() -> None:
    """There is no standby, here or elsewhere."""
    sidecar = beside(*THERE)
    vacant(sidecar)
    assert here(snapshot(sidecar, contenders={LATCH: ()})).decision is Decision.NONE_STANDS_BY
    assert here(snapshot(sidecar, contenders={LATCH: ("b",)})).stands_by


@pytest.mark.parametrize("own", [HERE, THERE])
def test_a_view_that_gets_old_is_blind_before_the_owner_notices(own: frozenset[str]) -> None:
    """By the time of the question."""
    sidecar = beside(*own)
    sidecar.observe(ViewConfirmed(sidecar.moment, CLUSTER, SECOND))
    current = snapshot(sidecar)

    def after(seconds: float) -> LeaderHere:
        passed = round(seconds * SECOND)
        return leader_here(current, REST_SERVER, None, Moment(current.at.steady + passed, current.at.wall))

    assert after(3.9).decision is not Decision.BLIND
    assert after(4.1).reason == "blind: the store does not answer in time"


def test_an_owner_that_is_stuck_sees_nothing() -> None:
    """However good its last view was."""
    current = snapshot(beside(*HERE))
    later = Moment(current.at.steady + 6 * SECOND, current.at.wall)
    assert leader_here(current, REST_SERVER, None, later) == LeaderHere(
        Decision.BLIND, "blind: the owner's thread has been stuck for 6 s"
    )


def test_one_of_several_clusters_has_to_be_named() -> None:
    """Also where they are answer, and there is one at present."""
    sidecar = beside(*HERE)
    current = snapshot(sidecar)
    two = replace(current, policy=replace(POLICY, own_hosts=HERE, stores={**POLICY.stores, "orders": Store.ZOOKEEPER}))
    assert here(two).decision is Decision.NOT_NAMED
    assert here(two, cluster_id=CLUSTER).leads
    assert here(two, cluster_id="orders").decision is Decision.BLIND
    assert here(two, cluster_id="payments").decision is Decision.NOT_WATCHED
    assert here(Snapshot(current.at)).decision is Decision.NOT_WATCHED
    finding = replace(current, policy=replace(POLICY, own_hosts=HERE, stores={}, finds=Store.ZOOKEEPER))
    assert here(finding).decision is Decision.NOT_NAMED
    assert here(finding, cluster_id=CLUSTER).leads


def test_a_sidecar_that_finds_clusters_is_beside_none_of_their_standbys() -> None:
    """As far as is current."""
    policy = replace(POLICY, own_hosts=THERE, finds=Store.ZOOKEEPER)
    answer = here(replace(snapshot(beside(*THERE)), policy=policy), cluster_id=CLUSTER)
    assert (answer.decision, answer.stands_by) == (Decision.NO_JOB_MANAGER, False)


# -- who leads one cluster ---------------------------------------------------------------------------------------------


def test_the_leader_of_a_cluster() -> None:
    """With the URL of the leading REST server, whichever component is asked for."""
    current = snapshot(beside(*HERE))
    answer = cluster_leader(current, CLUSTER, DISPATCHER, current.at)
    assert (answer.cluster_id, answer.component, answer.state, answer.blind) == (CLUSTER, "dispatcher", "held", False)
    assert answer.leader_address == "pekko.tcp://flink@jm-a:6123/user/rpc/dispatcher_0"
    assert answer.leader_session_id == str(A.session_id)
    assert answer.rest_url == "http://jm-a:8081"
    assert answer.since
    assert answer.reason is None


@pytest.mark.parametrize("situation", [suspended, lost, vacant_and_cut_off, restarted])
def test_while_blind_there_is_no_address(situation: Situation) -> None:
    """Neither "no leader" nor a leader is claimed; the last known one is named as such."""
    current = situation(beside(*HERE))
    answer = cluster_leader(current, CLUSTER, REST_SERVER, current.at)
    assert (answer.state, answer.blind, answer.leader_address, answer.rest_url) == ("unknown", True, None, None)
    assert answer.reason
    assert answer.last_known_address == "http://jm-a:8081"


def test_a_vacancy_has_no_leader() -> None:
    """And the sidecar can see."""
    current = vacant(beside(*HERE))
    answer = cluster_leader(current, CLUSTER, REST_SERVER, current.at)
    assert (answer.state, answer.blind, answer.leader_address, answer.rest_url) == ("vacant", False, None, None)
    assert answer.last_known_address == "http://jm-a:8081"


def test_unreadable_data_is_unknown_and_not_blind() -> None:
    """The store can be read."""
    current = unreadable(beside(*HERE))
    answer = cluster_leader(current, CLUSTER, REST_SERVER, current.at)
    assert (answer.state, answer.blind, answer.reason) == ("unknown", False, "the leader data is unreadable")


def test_the_fields_of_a_cluster_that_is_not_there() -> None:
    """Unknown, with the reason."""
    current = missing(beside(*HERE))
    answer = cluster_leader(current, CLUSTER, REST_SERVER, current.at)
    assert (answer.state, answer.blind) == ("unknown", False)
    assert answer.reason == "nothing of this cluster was ever found"
