"""Each trigger: when it fires, when not, when it is over, over a kill and over blindness."""

import pytest
from msgspec.structs import replace

from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from tests.core.triggers import EVENTS, LASTING, SCENES, contend, fails_over, moves, reasons, watching
from tests.kit.cluster import ALL_FOUR, CLUSTER, DISPATCHER, REST_SERVER, THE_JOB, B
from tests.kit.features import covering


def test_each_trigger_has_a_scene() -> None:
    """None is forgotten here."""
    assert SCENES.keys() == set(Trigger)
    assert all(scene.rule.on is trigger for trigger, scene in SCENES.items())


@pytest.mark.parametrize("trigger", covering("trigger", Trigger))
def test_it_fires_once(trigger: Trigger) -> None:
    """Notified once, within group_wait, however long it lasts; with the labels of the rule."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].begins(flink, sidecar)
    sidecar.waits(2)
    assert {*reasons(sidecar)} == {"FIRST"}
    number = len(reasons(sidecar))
    assert number == len({alert.id for notice in sidecar.notices for alert in notice.alerts})
    for notice in sidecar.notices:
        for alert in notice.alerts:
            assert (alert.rule, alert.labels["severity"]) == ("R", SCENES[trigger].rule.severity.value)
            assert alert.labels["cluster_id"] == CLUSTER
            assert ("observer" in alert.labels) == (trigger in {Trigger.BLIND, Trigger.UNOBSERVED})
    sidecar.waits(30)
    assert len(reasons(sidecar)) == number


@pytest.mark.parametrize("trigger", Trigger)
def test_it_does_not_fire_for_less(trigger: Trigger) -> None:
    """Nearly so is not so."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].nearly(flink, sidecar)
    sidecar.waits(60)
    assert reasons(sidecar) == []


@pytest.mark.parametrize("trigger", LASTING)
def test_it_is_over_when_it_is_not_so_any_more(trigger: Trigger) -> None:
    """RESOLVED, once; and nothing is remembered of it when all is quiet."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].begins(flink, sidecar)
    sidecar.waits(10)
    SCENES[trigger].ends(flink, sidecar)  # type: ignore[misc]  # it has one
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]
    sidecar.waits(700, tick=5)
    assert sidecar.state.alerts.groups == {}
    assert sidecar.state.alerts.pending == {}
    assert sidecar.state.alerts.failovers == {}


@pytest.mark.parametrize("trigger", LASTING)
def test_a_kill_does_not_end_it(trigger: Trigger) -> None:
    """Notified before; the new process does not notify again, but notifies the end when it comes."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].begins(flink, sidecar)
    sidecar.waits(10).is_killed(down_for=3)
    if trigger is not Trigger.BLIND:
        sidecar.connects()
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST"]
    SCENES[trigger].ends(flink, sidecar)  # type: ignore[misc]  # it has one
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]


AT_THE_END = {
    *(Trigger.SAME_PROCESS_REELECTION, Trigger.PLANNED_FAILOVER, Trigger.RECOVERED),
    *(Trigger.RESTORED_FROM_NOTHING, Trigger.RESTORED_FROM_OLDER),
}
"""They fire when the failover is over: by then they were notified."""


@pytest.mark.parametrize("trigger", EVENTS)
def test_an_event_that_was_not_notified_survives_a_kill(trigger: Trigger) -> None:
    """Killed within group_wait: the new process notifies it, once. The incident of a cluster that stays degraded closes meanwhile."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].begins(flink, sidecar)
    number = len(reasons(sidecar))
    sidecar.is_killed(down_for=3).connects().waits(60)
    closing = ["RESOLVED"] if trigger is Trigger.RESTORED_FROM_OLDER else []
    begun = reasons(sidecar)[: len(reasons(sidecar)) - len(closing)]
    assert {*begun} == {"FIRST"}
    assert reasons(sidecar) == begun + closing
    assert number < len(begun) or trigger in AT_THE_END
    assert len(begun) == len({alert.id for notice in sidecar.notices for alert in notice.alerts})


@pytest.mark.parametrize("trigger", [trigger for trigger in LASTING if trigger is not Trigger.BLIND])
def test_what_cannot_be_seen_neither_ends_nor_begins_again(trigger: Trigger) -> None:
    """Blind for a minute while it lasts; its end is notified when it is seen."""
    flink, sidecar = watching(SCENES[trigger].rule)
    SCENES[trigger].begins(flink, sidecar)
    sidecar.waits(10).is_cut_off().waits(60, tick=1)
    assert reasons(sidecar) == ["FIRST"]
    sidecar.connects().waits(20)
    assert reasons(sidecar) == ["FIRST"]
    SCENES[trigger].ends(flink, sidecar)  # type: ignore[misc]  # it has one
    sidecar.waits(20)
    assert reasons(sidecar) == ["FIRST", "RESOLVED"]


# -- single rules ------------------------------------------------------------------------------------------------------


def test_zookeepers_headroom_is_not_regained_by_a_restart() -> None:
    """A new process has not heard how far ZooKeeper is: it says nothing before it has."""
    flink, sidecar = watching(SCENES[Trigger.ZXID_HEADROOM].rule)
    SCENES[Trigger.ZXID_HEADROOM].begins(flink, sidecar)
    sidecar.waits(10).is_killed().connects().waits(600, tick=5)
    assert reasons(sidecar) == ["FIRST"]


def test_a_cluster_without_a_standby_from_the_beginning_is_left_alone() -> None:
    """One JobManager, seen for an hour, also through a restart of the sidecar: nobody is notified."""
    flink, sidecar = watching(SCENES[Trigger.NO_STANDBY].rule)
    contend(1)(flink, sidecar)
    sidecar.waits(3600, tick=10).is_killed(down_for=5).connects().waits(3600, tick=10)
    assert reasons(sidecar) == []


def test_counting_failovers_leaves_the_state_alone_while_nothing_happens() -> None:
    """One is remembered for ten minutes: the state stays the same object from tick to tick."""
    flink, sidecar = watching(SCENES[Trigger.EPISODES].rule)
    fails_over(B)(flink, sidecar)
    sidecar.waits(30)
    before = sidecar.state
    sidecar.waits(0.5)
    assert sidecar.state.alerts is before.alerts
    assert before.alerts.failovers.keys() == {CLUSTER}


def test_what_waits_is_not_written_again_when_another_begins_to_wait() -> None:
    """Two vacancies, the second one later: the first one's row stays as it is."""
    flink, sidecar = watching(SCENES[Trigger.VACANT].rule)
    moves(("-", None, (DISPATCHER,)))(flink, sidecar)
    ((key, first),) = sidecar.state.alerts.pending.items()
    moves(("-", None, (REST_SERVER,)))(flink, sidecar)
    assert len(sidecar.state.alerts.pending) == 2
    assert sidecar.state.alerts.pending[key] is first


def test_a_new_job_is_no_change() -> None:
    """Its first leader follows nobody."""
    flink, sidecar = watching(SCENES[Trigger.JOB_LEADER_CHANGED].rule)
    sidecar.sees(flink.submit("ab" * 16).publish(ComponentId(Component.JOB, "ab" * 16), B.leads(THE_JOB))).waits(60)
    assert reasons(sidecar) == []


def test_a_title_never_reports_a_vacancy_when_there_is_a_leader() -> None:
    """Forty seconds without a leader, then another one: all is well again, and who leads is in the lines."""
    vacant = replace(SCENES[Trigger.VACANT].rule, alert="Vacant")
    flink, sidecar = watching(vacant, SCENES[Trigger.LEADER_CHANGED].rule, route=Route("ops"))
    moves(("-", None, ALL_FOUR))(flink, sidecar)
    sidecar.waits(40)
    moves(("+", B, ALL_FOUR))(flink, sidecar)
    sidecar.waits(100)
    assert [delivery.title.partition(" for ")[0] for delivery in sidecar.sent] == [
        "[DOWN] default: no leader",
        "[UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)",
    ]
    assert sidecar.sent[1].body.startswith("leader back for JobManager and 1 job after at least 41 s")
    assert "JobManager: jm-a:6123 → jm-b:6123" in sidecar.sent[1].body
