"""Whether the JobManager beside a sidecar leads, in each situation; and who leads one cluster."""

from collections.abc import Callable
from itertools import product

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.state import Missing
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


def here(known: Snapshot, component: ComponentId = REST_SERVER, cluster_id: str | None = None) -> LeaderHere:
    return leader_here(known, component, cluster_id, known.at)


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
    found = here(situation(beside(*(HERE, THERE)[place])))
    assert found.decision is CELLS[situation][place]
    assert found.leads == (found.decision is Decision.LEADS)
    assert found.stands_by == (found.decision in {Decision.ANOTHER_LEADS, Decision.NONE_LEADS})
    assert found.reason.isprintable()
    assert "jm-" not in found.reason
    assert "<secret" not in found.reason


def test_a_component_has_a_leader_of_its_own() -> None:
    """Up to Flink 1.14 they are elected one by one."""
    sidecar = beside(*HERE)
    sidecar.flink.vacate(DISPATCHER)
    known = snapshot(sidecar.sees_changes(), contenders={LATCH: ("a", "b")})
    assert here(known, REST_SERVER).leads
    assert here(known, RESOURCE_MANAGER).reason == "this JobManager leads resource_manager"
    assert here(known, DISPATCHER) == LeaderHere(Decision.NONE_LEADS, "no JobManager leads dispatcher")


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
            (host, store, frozenset({"localhost", "127.0.0.1", "jm-a"}), Decision.NO_SINGLE_HOST)
            for host in ("localhost", "localhost.localdomain", "127.0.0.1", "[::1]", "[::]")
            for store in Store
        ),
        # where we are is not known
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
        ({}, Decision.ANOTHER_LEADS),  # of Kubernetes nothing is known
        ({LATCH: ()}, Decision.ANOTHER_LEADS),  # there is no latch
        ({LATCH: ("a",)}, Decision.NONE_STANDS_BY),
        ({LATCH: ("a", "b")}, Decision.ANOTHER_LEADS),
    ],
)
def test_a_standby_contends(contenders: dict[str, tuple[str, ...]], decision: Decision) -> None:
    """A JobManager that is down, or starts, is none: then the leader contends alone."""
    found = here(snapshot(beside(*THERE), contenders=contenders))
    assert found.decision is decision
    assert found.stands_by is (decision is Decision.ANOTHER_LEADS)


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
    known = snapshot(sidecar)

    def after(seconds: float) -> LeaderHere:
        passed = round(seconds * SECOND)
        return leader_here(known, REST_SERVER, None, Moment(known.at.steady + passed, known.at.wall))

    assert after(3.9).decision is not Decision.BLIND
    assert after(4.1).reason == "blind: the store does not answer in time"


def test_an_owner_that_is_stuck_sees_nothing() -> None:
    """However good its last view was."""
    known = snapshot(beside(*HERE))
    later = Moment(known.at.steady + 6 * SECOND, known.at.wall)
    assert leader_here(known, REST_SERVER, None, later) == LeaderHere(
        Decision.BLIND, "blind: the owner's thread has been stuck for 6 s"
    )


def test_one_of_several_clusters_has_to_be_named() -> None:
    """Also where they are found, and there is one at present."""
    sidecar = beside(*HERE)
    known = snapshot(sidecar)
    two = replace(known, policy=replace(POLICY, own_hosts=HERE, stores={**POLICY.stores, "orders": Store.ZOOKEEPER}))
    assert here(two).decision is Decision.NOT_NAMED
    assert here(two, cluster_id=CLUSTER).leads
    assert here(two, cluster_id="orders").decision is Decision.BLIND
    assert here(two, cluster_id="payments").decision is Decision.NOT_WATCHED
    assert here(Snapshot(known.at)).decision is Decision.NOT_WATCHED
    finding = replace(known, policy=replace(POLICY, own_hosts=HERE, stores={}, finds=Store.ZOOKEEPER))
    assert here(finding).decision is Decision.NOT_NAMED
    assert here(finding, cluster_id=CLUSTER).leads


def test_a_sidecar_that_finds_clusters_is_beside_none_of_their_standbys() -> None:
    """As far as is known."""
    policy = replace(POLICY, own_hosts=THERE, finds=Store.ZOOKEEPER)
    found = here(replace(snapshot(beside(*THERE)), policy=policy), cluster_id=CLUSTER)
    assert (found.decision, found.stands_by) == (Decision.NO_JOB_MANAGER, False)


# -- who leads one cluster ---------------------------------------------------------------------------------------------


def test_the_leader_of_a_cluster() -> None:
    """With the URL of the leading REST server, whichever component is asked for."""
    known = snapshot(beside(*HERE))
    found = cluster_leader(known, CLUSTER, DISPATCHER, known.at)
    assert (found.cluster_id, found.component, found.state, found.blind) == (CLUSTER, "dispatcher", "held", False)
    assert found.leader_address == "pekko.tcp://flink@jm-a:6123/user/rpc/dispatcher_0"
    assert found.leader_session_id == str(A.session_id)
    assert found.rest_url == "http://jm-a:8081"
    assert found.since
    assert found.reason is None


@pytest.mark.parametrize("situation", [suspended, lost, vacant_and_cut_off, restarted])
def test_while_blind_there_is_no_address(situation: Situation) -> None:
    """Neither "no leader" nor a leader is claimed; the last known one is named as such."""
    known = situation(beside(*HERE))
    found = cluster_leader(known, CLUSTER, REST_SERVER, known.at)
    assert (found.state, found.blind, found.leader_address, found.rest_url) == ("unknown", True, None, None)
    assert found.reason
    assert found.last_known_address == "http://jm-a:8081"


def test_a_vacancy_has_no_leader() -> None:
    """And the sidecar can see."""
    known = vacant(beside(*HERE))
    found = cluster_leader(known, CLUSTER, REST_SERVER, known.at)
    assert (found.state, found.blind, found.leader_address, found.rest_url) == ("vacant", False, None, None)
    assert found.last_known_address == "http://jm-a:8081"


def test_unreadable_data_is_unknown_and_not_blind() -> None:
    """The store can be read."""
    known = unreadable(beside(*HERE))
    found = cluster_leader(known, CLUSTER, REST_SERVER, known.at)
    assert (found.state, found.blind, found.reason) == ("unknown", False, "the leader data is unreadable")


def test_the_fields_of_a_cluster_that_is_not_there() -> None:
    """Unknown, with the reason."""
    known = missing(beside(*HERE))
    found = cluster_leader(known, CLUSTER, REST_SERVER, known.at)
    assert (found.state, found.blind) == ("unknown", False)
    assert found.reason == "nothing of this cluster was ever found"
