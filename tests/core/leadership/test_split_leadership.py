"""Split leadership: two contenders that both believe they lead are notified once, as what they are, and recorded in full."""

from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import ALL_FOUR, DISPATCHER, START, A, B, JobManager, job_manager
from tests.kit.core_sidecar import POLICY, Sidecar, watching
from tests.kit.fake_flink import Flink

SPLIT = replace(POLICY, rules=(*POLICY.rules, Rule("FlinkSplitLeadership", Trigger.SPLIT, Severity.CRITICAL)))


def split() -> tuple[Flink, Sidecar]:
    """Led by A, watched for a minute."""
    return watching(policy=SPLIT)


def take_turns(flink: Flink, sidecar: Sidecar, times: int, every: float = 0.05) -> None:
    """B deletes what A published and publishes itself, A does the same, and so on."""
    for turn in range(times):
        sidecar.sees(flink.vacate()).sees(flink.elect((B, A)[turn % 2])).waits(every, tick=every)


def test_a_split_is_notified_once_as_what_it_is() -> None:
    """Two take turns for half a minute: one critical alert that names both, none of the leader changes it is made of."""
    flink, sidecar = split()
    take_turns(flink, sidecar, 600)
    assert sidecar.sent_reasons() == [("FlinkSplitLeadership", "FIRST")]
    assert sidecar.sent[0].title == "[SPLIT] default: two JobManagers act as leader of 4 components"
    assert sidecar.sent[0].body.startswith("split leadership of JobManager and 1 job")
    assert sidecar.sent[0].body.count("replace each other") == 2  # the cluster's own components, and its jobs
    assert sidecar.waits(30).sent_reasons() == [("FlinkSplitLeadership", "FIRST")]


def test_it_is_recorded_in_full() -> None:
    """Every turn is a record. From the third return of a leader on, within a fraction of a second, it says that leadership is split."""
    flink, sidecar = split()
    take_turns(flink, sidecar, 8)
    turns = [t for t in sidecar.transitions(DISPATCHER) if t.after_session_id]
    assert [t.returned for t in turns] == [False, *[True] * 7]
    assert [t.split for t in turns] == [False] * 3 + [True] * 5
    assert [t.kind for t in sidecar.transitions(DISPATCHER)] == ["REVOKED", "GRANTED"] * 8


def test_its_end_is_notified_once_after_a_calm_minute() -> None:
    """One of the two is gone: resolved when no replaced leader has come back for a minute; the next failover is a failover again."""
    flink, sidecar = split()
    take_turns(flink, sidecar, 40)
    sidecar.waits(50)
    assert sidecar.sent_reasons() == [("FlinkSplitLeadership", "FIRST")]
    sidecar.waits(80)
    assert sidecar.sent_reasons() == [("FlinkSplitLeadership", "FIRST"), ("FlinkSplitLeadership", "RESOLVED")]
    sidecar.sees(flink.elect(job_manager("jm-c"))).waits(60)
    assert sidecar.sent_reasons()[2:] == [("FlinkLeaderChanged", "FIRST")]


def test_what_cannot_be_seen_is_not_calm() -> None:
    """Cut off in the middle of a split, nobody is notified that it is over; after the store has been back for a minute, it is."""
    flink, sidecar = split()
    take_turns(flink, sidecar, 40)
    sidecar.waits(10).is_cut_off().waits(300)
    assert ("FlinkSplitLeadership", "RESOLVED") not in sidecar.sent_reasons()
    sidecar.connects().waits(30)
    assert ("FlinkSplitLeadership", "RESOLVED") not in sidecar.sent_reasons()
    assert ("FlinkSplitLeadership", "RESOLVED") in sidecar.waits(100).sent_reasons()


def test_a_restart_in_the_middle_notifies_nothing_again() -> None:
    """A new process on the same disk knows of the split, and that it was notified."""
    flink, sidecar = split()
    take_turns(flink, sidecar, 40)
    sidecar.waits(10).is_killed().connects()
    take_turns(flink, sidecar, 40)
    assert sidecar.waits(20).sent_reasons() == [("FlinkSplitLeadership", "FIRST")]


def test_a_repair_is_no_split() -> None:
    """Flink rewrites what was tampered with: once, or now and then, a leader that comes back is no contender."""
    flink, sidecar = split()
    for _ in range(5):
        sidecar.sees(flink.publish(DISPATCHER, JobManager("tampered", B.session_id, 9).leads(DISPATCHER), owner=9))
        sidecar.sees(flink.publish(DISPATCHER, A.leads(DISPATCHER))).waits(20)
    assert all(t.returned for t in sidecar.transitions(DISPATCHER)[1::2])
    assert not any(t.split for t in sidecar.transitions())
    assert "FlinkSplitLeadership" not in dict(sidecar.sent_reasons())


def test_failovers_in_a_row_are_no_split() -> None:
    """Five elections within seconds, each with a session id of its own, are five failovers."""
    flink, sidecar = split()
    for term in range(5):
        sidecar.sees(flink.elect(job_manager("jm-b", term), *ALL_FOUR)).waits(1)
    assert not any(t.returned for t in sidecar.transitions())
    assert dict(sidecar.waits(20).sent_reasons()) == {"FlinkLeaderChanged": "FIRST"}


def test_the_same_leader_after_an_outage_is_no_return() -> None:
    """A vacancy between a leader and itself is no contest, however often it happens."""
    flink, sidecar = split()
    for _ in range(10):
        sidecar.sees(flink.vacate()).sees(flink.elect(A))
    assert not any(t.returned for t in sidecar.transitions())


def test_the_end_of_a_split_is_notified_in_time_also_where_an_hour_of_coverage_ends() -> None:
    """Sixty calm seconds are sixty, though our own record of having seen them begins anew."""
    flink, sidecar = split()
    sidecar.waits(3600 - (sidecar.now - START) / SECOND - 30)
    take_turns(flink, sidecar, 10)
    sidecar.waits(58)
    assert sidecar.sent_reasons()[-1] != ("FlinkSplitLeadership", "RESOLVED")
    sidecar.waits(14)
    assert sidecar.sent_reasons()[-1] == ("FlinkSplitLeadership", "RESOLVED")
