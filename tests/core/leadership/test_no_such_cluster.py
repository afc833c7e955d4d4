"""A cluster of which nothing was ever there is another thing than one without a leader."""

from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.observations import ChildrenObserved, NothingFound
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from sidecar.core.views.leader_view import leaders
from sidecar.core.views.snapshot import Snapshot
from tests.kit.cluster import CLUSTER, DISPATCHER, A
from tests.kit.core_sidecar import BY_ALERT, NO_LEADER, Sidecar, watching
from tests.kit.fake_flink import Flink

OUT_OF_SIGHT = Rule("FlinkLeadersOutOfSight", Trigger.BLIND, Severity.WARNING, hold_for=120 * SECOND)
RULES = replace(BY_ALERT, rules=(NO_LEADER, OUT_OF_SIGHT))
PLACE = "zk:2181/flink/payements in ZooKeeper"


def nothing_there(*beside: str) -> tuple[Flink, Sidecar]:
    """A sidecar that has looked at an empty place."""
    flink = Flink()
    sidecar = Sidecar(flink, RULES).connects()
    sidecar.observe(NothingFound(sidecar.moment, CLUSTER, PLACE, beside))
    return flink, sidecar


def test_where_nothing_ever_was_no_missing_leader_is_notified() -> None:
    """A typo in the cluster id: not a vacancy, but that there is no such cluster, and which there are."""
    _, sidecar = nothing_there("default", "payments")
    sidecar.waits(600, tick=1)
    assert sidecar.sent_reasons() == [("FlinkLeadersOutOfSight", "FIRST")]
    assert sidecar.sent[0].title.startswith("[BLIND] default: no such cluster: nothing was ever found")
    assert (
        "no such cluster: nothing was ever found under zk:2181/flink/payements in ZooKeeper; "
        "clusters found beside it: default, payments" in sidecar.sent[0].body
    )


def test_it_can_be_seen_that_nothing_is_there() -> None:
    """The store is in sight: the sidecar is ready, and of no component it is said that it has no leader."""
    _, sidecar = nothing_there()
    sidecar.waits(1)
    snapshot = Snapshot(sidecar.moment, sidecar.state)
    assert snapshot.ready
    assert {(leader.state, leader.reason) for leader in leaders(snapshot)} == {
        ("unknown", "nothing of this cluster was ever found")
    }


def test_where_nothing_ever_was_no_time_is_covered() -> None:
    """In the audit log its availability is unknown, not 0; it is covered from the moment on in which something was found."""
    flink, sidecar = nothing_there()
    sidecar.waits(4000, tick=1)
    assert {record.state for record in sidecar.coverage()} == {"blind"}
    sidecar.is_cut_off().connects()
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, "/leader/latch", ("_c_1",)))
    sidecar.waits(4000, tick=1)
    states = [record.state for record in sidecar.coverage()]
    assert states == sorted(states)
    assert states[-1] == "seeing"
    began = [record.began_at for record in sidecar.coverage()]
    assert began[1:] == [record.ended_at for record in sidecar.coverage()][:-1]
    assert flink.znodes.tree.nodes == {}


def test_a_flink_that_is_started_later_is_watched_from_then_on() -> None:
    """It has as long as any other to elect its first leader; if it does not, that is a vacancy."""
    flink, sidecar = nothing_there()
    sidecar.waits(600, tick=1)
    sidecar.sent.clear()
    sidecar.observe(ChildrenObserved(sidecar.moment, CLUSTER, "/leader/latch", ("_c_1",)))
    sidecar.waits(20, tick=1)
    assert sidecar.sent_reasons() == [("FlinkLeadersOutOfSight", "SHRANK")]
    sidecar.waits(20, tick=1)
    assert sidecar.sent_reasons()[1:] == [("FlinkNoLeader", "FIRST")]
    sidecar.sees(flink.elect(A)).waits(70, tick=1)
    assert sidecar.sent_reasons()[2:] == [("FlinkLeadersOutOfSight", "RESOLVED"), ("FlinkNoLeader", "RESOLVED")]


def test_where_a_leader_was_before_it_is_a_vacancy() -> None:
    """A cluster that is gone, also after a restart of the sidecar: whoever led is remembered."""
    flink, sidecar = watching(policy=RULES)
    flink.vacate()
    for path in [*flink.znodes.tree.nodes]:
        flink.znodes.delete(path)
    sidecar.is_killed(down_for=5).connects()
    sidecar.observe(NothingFound(sidecar.moment, CLUSTER, PLACE, ()))
    sidecar.waits(40, tick=1)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert sidecar.component_state(DISPATCHER).last_known
