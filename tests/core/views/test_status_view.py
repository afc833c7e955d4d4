"""What `status` makes of a store that was just read, and of what a sidecar knows besides."""

from msgspec.structs import replace

from sidecar.core.moment import SECOND, timestamp
from sidecar.core.observations import ClustersListed, StoreRefused
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import (
    JournalStatus,
    LeaderStatus,
    ShownCluster,
    ShownStatus,
    joined,
    status,
    with_beginnings,
)
from tests.core.cluster.pictures import ASSESSING, job, shows
from tests.core.cluster.test_removal import finder
from tests.kit.cluster import CLUSTER, DISPATCHER, START, A, B
from tests.kit.config_maps import ConfigMaps
from tests.kit.core_sidecar import LeaseSidecar, Sidecar, watching
from tests.kit.fake_flink import Flink


def asked(flink: Flink, sidecar: Sidecar, *, running: bool = True) -> ShownStatus:
    """What `status` says now: it reads everything for the first time, and joins that with what `sidecar` knows."""
    reader = Sidecar(flink, sidecar.policy)
    reader.now = sidecar.now
    live = reader.connects().state
    state = joined(live, sidecar.state, running=running)
    return status(Snapshot(reader.moment, state, policy=sidecar.policy), JournalStatus(running, None))


def only(answer: ShownStatus) -> ShownCluster:
    [cluster] = answer.clusters
    return cluster


def test_a_vacancy_is_as_old_as_a_running_sidecar_knows() -> None:
    """Not as old as the command."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(43)
    answer = asked(flink, sidecar)
    assert answer.status == "DOWN"
    assert {round(leader.age_seconds) for leader in only(answer).leaders} == {43}
    assert all(leader.since for leader in only(answer).leaders)


def test_a_sidecar_that_has_ended_may_have_missed_a_leader() -> None:
    """So nothing is claimed of when the vacancy began."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(43)
    cluster = only(asked(flink, sidecar, running=False))
    assert {leader.since for leader in cluster.leaders} == {None}


def test_a_leader_that_the_sidecar_does_not_know_has_its_own_age() -> None:
    """The journal is a moment behind the store."""
    flink, sidecar = watching()
    flink.vacate().elect(B)
    answer = asked(flink, sidecar)
    assert answer.status == "UNCHECKED"
    assert {leader.leader_address and "jm-b" in leader.leader_address for leader in only(answer).leaders} == {True}


def test_alerts_are_those_of_the_sidecar() -> None:
    """The command has no rules that it evaluates itself."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate()).waits(43)
    assert {alert.alert for alert in only(asked(flink, sidecar)).alerts} == {"FlinkNoLeader"}


def test_a_job_without_a_leader_is_vacant() -> None:
    """Although all components are led; it comes first of the jobs."""
    flink, sidecar = watching()
    state = sidecar.state
    cluster = state.clusters[CLUSTER]
    flink.vacate(next(component for component in cluster.components if component.job_id))
    answer = asked(flink, sidecar)
    assert answer.status == "DOWN"
    assert [leader.state for leader in only(answer).leaders] == ["held"] * 3 + ["vacant"]


def test_what_a_running_sidecar_knows_of_jobs_is_repeated_while_it_is_led() -> None:
    """The command asks no REST server. Without a leader it says what it reads."""
    flink, sidecar = watching(policy=ASSESSING)
    shows(sidecar, job())
    sidecar.waits(1)
    answer = only(asked(flink, sidecar))
    assert (answer.status, answer.sentence) == ("OK", "1 of 1 jobs run")
    assert only(asked(flink, sidecar, running=False)).status == "UNCHECKED"
    flink.vacate()
    assert only(asked(flink, sidecar)).status == "DOWN"


def test_blind_is_not_vacant() -> None:
    """What cannot be read is not known to have no leader. A cluster that is vacant beside it is certain, and decides."""
    flink, sidecar = watching()
    unread = Sidecar(flink, sidecar.policy).state
    blind = status(Snapshot(sidecar.moment, unread, policy=sidecar.policy), None)
    assert (blind.status, only(blind).status) == ("BLIND", "BLIND")
    flink.vacate(DISPATCHER)
    vacant = sidecar.sees_changes().state.clusters[CLUSTER]
    both = replace(unread, clusters={**unread.clusters, "other": vacant})
    answer = status(Snapshot(sidecar.moment, both, policy=sidecar.policy), None)
    assert answer.status == "DOWN"
    assert [cluster.status for cluster in answer.clusters] == ["DOWN", "BLIND"]


def test_a_found_cluster_that_is_gone_is_as_a_running_sidecar_has_it() -> None:
    """It led until its ConfigMap went: the store does not know it any more, and the sidecar says that it is down."""
    flink, sidecar = finder()
    flink.config_maps.delete()
    sidecar.sees_removal()
    sidecar.waits(40)
    live = State(finder=sidecar.state.finder)
    for running, clusters in ((True, ["DOWN"]), (False, [])):
        state = joined(live, sidecar.state, running=running)
        answer = status(Snapshot(sidecar.moment, state, policy=sidecar.policy), JournalStatus(running, None))
        assert [cluster.status for cluster in answer.clusters] == clusters
    assert not joined(State(), sidecar.state, running=True).clusters  # it is not searched for


def test_no_cluster_at_all_is_blind() -> None:
    """With the reason in place of a table."""
    answer = status(Snapshot(watching()[1].moment), None)
    assert (answer.status, answer.clusters) == ("BLIND", [])
    assert answer.problems


MINUTE = 60 * SECOND


def leased(ahead: int) -> tuple[Flink, LeaseSidecar]:
    """A cluster in Kubernetes whose leader's clock is `ahead` by so many microseconds, and the sidecar that has just read it."""
    config_maps = ConfigMaps()
    flink = Flink(config_maps).elect(A)
    sidecar = LeaseSidecar(flink)
    for config_map in config_maps.maps.values():
        assert config_map.lease is not None
        config_map.lease["acquireTime"] = timestamp(sidecar.now + ahead)
    sidecar.connects()
    return flink, sidecar


def first_observed(sidecar: LeaseSidecar) -> str:
    return timestamp(sidecar.state.clusters[CLUSTER].components[DISPATCHER].since.wall)


def of_dispatcher(answer: ShownStatus) -> LeaderStatus:
    (leader,) = [leader for leader in only(answer).leaders if leader.component == "dispatcher"]
    return leader


def test_a_leader_in_kubernetes_leads_since_it_acquired_its_lease() -> None:
    """By its own clock."""
    _, sidecar = leased(-20 * MINUTE)
    leader = of_dispatcher(status(Snapshot(sidecar.moment, with_beginnings(sidecar.state)), None))
    assert (leader.since, round(leader.age_seconds)) == (timestamp(START - 20 * MINUTE), 20 * 60)


def test_a_lease_that_was_acquired_in_the_future_says_nothing() -> None:
    """The clock of that JobManager is ahead: the beginning is unknown, not the moment at which the command was started."""
    _, sidecar = leased(5 * MINUTE)
    leader = of_dispatcher(status(Snapshot(sidecar.moment, with_beginnings(sidecar.state)), None))
    assert (leader.since, leader.observed_since) == (None, first_observed(sidecar))


def test_a_running_sidecar_knows_that_such_a_leader_is_older() -> None:
    """The same leader was there when it began to observe."""
    flink, sidecar = leased(5 * MINUTE)
    sidecar.now += 20 * MINUTE
    reader = LeaseSidecar(flink)
    reader.now = sidecar.now
    live = with_beginnings(reader.connects().state)
    leader = of_dispatcher(status(Snapshot(reader.moment, joined(live, sidecar.state, running=True)), None))
    assert (leader.since, leader.observed_since, round(leader.age_seconds)) == (None, first_observed(sidecar), 20 * 60)


def test_a_store_that_refuses_is_blind_and_says_why() -> None:
    """Until everything has been read, or the connection changes."""
    _, sidecar = watching()
    unread = Sidecar(Flink(), sidecar.policy)
    unread.reconnects()
    unread.observe(StoreRefused(unread.moment, CLUSTER, "/flink/leader: no permission to read it"))
    answer = status(Snapshot(unread.moment, unread.state, policy=unread.policy), None)
    assert (answer.status, only(answer).sentence) == (
        "BLIND",
        "ZooKeeper does not let it be read: /flink/leader: no permission to read it",
    )
    unread.is_cut_off()
    assert unread.state.clusters[CLUSTER].refused is None


def test_a_search_that_is_refused_says_why() -> None:
    """In place of the clusters."""
    _, sidecar = watching()
    sidecar.observe(
        ClustersListed(sidecar.moment, "namespace flink of Kubernetes", None, refused="no permission (403)")
    )
    answer = status(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy), None)
    assert "cannot see which clusters are in namespace flink of Kubernetes: no permission (403)" in answer.problems
