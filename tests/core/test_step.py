"""One step is a function of policy, state and observation, also when the policy changed under the state."""

from msgspec.structs import replace

from sidecar.core.observations import ConnectionState, Ticked
from sidecar.core.policy.policy import Policy, Rule, Severity, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.step import step
from tests.kit.cluster import CLUSTER, DISPATCHER, REST_SERVER, THE_JOB, B, job_manager
from tests.kit.core_sidecar import BY_ALERT, LEADER_CHANGED, NO_LEADER, POLICY, Sidecar, fail_over, watching

C = job_manager("jm-c")


def test_a_cluster_that_is_not_watched_any_more_is_forgotten_with_its_alerts() -> None:
    """Its vacancy was firing when the configuration changed: the next process does not notify it, and runs."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(40).sees(flink.vacate(REST_SERVER))
    sidecar.policy = replace(POLICY, stores={"another": Store.ZOOKEEPER})
    sidecar.is_killed().waits(5 * 3600, tick=5)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert set(sidecar.state.clusters) == {"another"}


def test_a_rule_that_is_gone_takes_its_alerts_with_it() -> None:
    """The operator removed the rule while it was firing: nothing more is notified of it."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(40)
    sidecar.policy = replace(POLICY, rules=(LEADER_CHANGED,))
    sidecar.is_killed().connects().waits(5 * 3600, tick=5)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    assert sidecar.state.alerts.groups == {}


def test_two_rules_on_one_trigger_are_two_alerts() -> None:
    """A warning at once and a page after a minute: each with its own name and time, where groups are by alert."""
    soon = Rule("NoLeaderYet", Trigger.VACANT, Severity.INFO, hold_for=0)
    flink, sidecar = watching(policy=replace(BY_ALERT, rules=(soon, NO_LEADER)))
    sidecar.sees(flink.vacate(DISPATCHER)).waits(60)
    assert sidecar.sent_reasons() == [("NoLeaderYet", "FIRST"), ("FlinkNoLeader", "FIRST")]


def failover(policy: Policy) -> Sidecar:
    """One cluster's history, seen by the observer of `policy`."""
    flink, sidecar = watching(policy=policy)
    sidecar.waits(float(len(policy.observer)))
    fail_over(flink, sidecar)
    sidecar.sees(flink.elect(C, DISPATCHER))
    sidecar.sees(flink.forget().vacate(THE_JOB)).is_cut_off().waits(10).connects()
    return sidecar


def test_two_observers_derive_the_same_ids_for_what_both_saw() -> None:
    """What happened to Flink has one id, whoever saw it and when; what happened to a view is that observer's own."""
    one, other, late = (failover(replace(POLICY, observer=name)) for name in ("sidecar-0", "sidecar-1", "sidecar-late"))
    for ours, theirs, later in zip(one.transitions(), other.transitions(), late.transitions(), strict=True):
        assert ours.kind == theirs.kind == later.kind
        assert ours.observed_at == theirs.observed_at != later.observed_at
        about_flink = ours.kind not in {"DISCOVERED", "OBSCURED"}
        assert len({ours.id, theirs.id, later.id}) == (1 if about_flink else 3)


def test_a_job_that_ended_has_one_id_whichever_went_first() -> None:
    """One observer read the job store before the leader's place, the other one after it."""
    ids = []
    for graph_first in (True, False):
        flink, sidecar = watching()
        flink.forget().vacate(THE_JOB)
        paths = [flink.znodes.path(THE_JOB)]
        if graph_first:
            sidecar.reads_lists([flink.znodes.job_store])
            sidecar.reads(*paths)
        else:
            sidecar.reads(*paths)
            sidecar.reads_lists([flink.znodes.job_store])
        ids.append(sidecar.transitions(THE_JOB)[-1].id)
    assert ids[0] == ids[1]


def test_the_same_step_twice_gives_the_same() -> None:
    """State and effects are a function of policy, state and observation: ids too."""
    flink, sidecar = watching()
    fail_over(flink, sidecar).waits(4.75)
    due = Ticked(replace(sidecar.moment, steady=sidecar.now + 1_000_000))
    first, second = (step(sidecar.policy, sidecar.state, due) for _ in range(2))
    assert first == second
    assert len(first[1]) == 3


def test_two_clusters_are_watched_apart() -> None:
    """What happens to one says nothing of the other."""
    _, sidecar = watching(policy=replace(POLICY, stores={CLUSTER: Store.ZOOKEEPER, "other": Store.ZOOKEEPER}))
    before = sidecar.state.clusters["other"]
    sidecar.is_cut_off(ConnectionState.LOST).waits(10)
    assert sidecar.state.clusters["other"] is before
    assert {t.cluster_id for t in sidecar.transitions()} == {CLUSTER}


def test_a_tick_that_changes_nothing_returns_the_state_itself() -> None:
    """So that the journal has nothing to write while nothing happens."""
    _, sidecar = watching()
    before = sidecar.state
    sidecar.waits(0.25)
    assert sidecar.state is before


def test_the_time_until_which_we_ran_is_kept_to_half_a_minute() -> None:
    """A crash leaves no more of our own time uncertain than that."""
    _, sidecar = watching()
    for _ in range(200):
        sidecar.waits(1)
        assert sidecar.state.alive
        assert sidecar.now - sidecar.state.alive.steady < 31_000_000


def test_without_rules_everything_is_recorded_and_nothing_is_notified() -> None:
    """A sidecar that only keeps the audit log."""
    flink, sidecar = watching(policy=replace(POLICY, rules=()))
    sidecar.sees(flink.elect(B)).waits(60)
    assert [t.pattern for t in sidecar.transitions(DISPATCHER)] == ["A->B"]
    assert sidecar.sent_reasons() == []
