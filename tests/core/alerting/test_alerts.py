"""From events in a cluster to notifications: each scenario through `step`."""

import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Destination, Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.kit.cluster import ALL_FOUR, DISPATCHER, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import OPS, POLICY, Sidecar, fail_over, watching, with_destinations
from tests.kit.fake_flink import Flink

C = job_manager("jm-c")


def test_a_fresh_cluster_never_alerts_at_its_first_election() -> None:
    """There was no leader before: the first leaders are recorded, and nothing is notified."""
    flink = Flink()
    sidecar = Sidecar(flink).connects().waits(10)
    sidecar.sees(flink.submit().elect(A)).waits(120)
    assert len(sidecar.transitions()) == 7
    assert sidecar.sent_reasons() == []


def test_the_first_observation_of_a_running_cluster_fires_nothing() -> None:
    """A sidecar that is added to a running cluster has nothing to report."""
    _, sidecar = watching()
    assert sidecar.sent_reasons() == []


def test_a_crash_is_one_notice_for_each_destination_naming_all_components() -> None:
    """3 + 1 components move, one after the other: each destination is notified once, of all of them, from whom to whom."""
    flink, sidecar = watching(policy=with_destinations(OPS, Destination("ops", 1), Destination("oncall", 0)))
    sidecar.sees(flink.vacate()).waits(0.2)
    for component in ALL_FOUR:
        sidecar.sees(flink.elect(B, component)).waits(0.6)
    sidecar.waits(600)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")] * 3
    assert {delivery.destination for delivery in sidecar.sent} == {"ops#0", "ops#1", "oncall#0"}
    assert len({delivery.id for delivery in sidecar.sent}) == 3
    assert "\nJobManager: jm-a:6123 → jm-b:6123 at 2026-" in sidecar.sent[0].body
    assert sidecar.sent[0].body.count("jm-a:6123 → jm-b:6123") == 1
    assert sidecar.sent[0].body.startswith(
        "JobManager failed over: jm-a → jm-b after at least 1.4 s, 1 of 1 jobs led\n"
    )


def test_group_wait_is_counted_from_the_first_change() -> None:
    """Notified five seconds after the first component moved, not before, and not later because more moved."""
    flink, sidecar = watching()
    sidecar.sees(flink.elect(B, DISPATCHER)).waits(3).sees(flink.elect(B, REST_SERVER)).waits(1.5)
    assert sidecar.sent_reasons() == []
    sidecar.waits(1)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]


def test_the_same_leader_again_is_no_alert() -> None:
    """A->null->A: the cluster is where it was."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, 2, A).waits(120)
    assert len(sidecar.transitions()) == 8
    assert sidecar.sent_reasons() == []


def test_a_new_term_of_the_same_process_is_an_alert() -> None:
    """Same host, other session id: a fail-over, and notified as what it is."""
    flink, sidecar = watching()
    sidecar.sees(flink.publish(DISPATCHER, job_manager("jm-a", 1).leads(DISPATCHER), A.zookeeper_session)).waits(10)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    assert sidecar.sent[0].body.startswith("dispatcher failed over: jm-a:6123, with a new session id")


@pytest.mark.parametrize("out_of_sight", ["blind", "killed"])
def test_a_change_out_of_sight_alerts(out_of_sight: str) -> None:
    """While we were blind, or not running at all: the leader is another one than the last known, and people are notified."""
    flink, sidecar = watching()
    if out_of_sight == "blind":
        sidecar.is_cut_off().waits(3600)
    else:
        sidecar.is_killed(down_for=3600)
    flink.elect(B)
    sidecar.connects().waits(60)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    assert sidecar.sent[0].body.count("jm-a:6123 → jm-b:6123") == 1


@pytest.mark.parametrize("out_of_sight", ["suspended", "blind", "killed"])
def test_an_outage_of_our_own_fires_nothing(out_of_sight: str) -> None:
    """Flink's listener would have got null; the leaders are the same, and nothing is notified."""
    _, sidecar = watching()
    if out_of_sight == "killed":
        sidecar.is_killed(down_for=3600)
    else:
        sidecar.is_cut_off().waits(2 if out_of_sight == "suspended" else 3600)
    sidecar.connects().waits(600)
    assert sidecar.sent_reasons() == []


def test_a_second_failover_soon_after_is_notified_after_the_group_interval() -> None:
    """GREW, a minute after the first notice; an hour later it is a FIRST again."""
    flink, sidecar = watching()
    for leader in (B, C):
        sidecar.sees(flink.elect(leader)).waits(10)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", "FIRST")]
    sidecar.waits(3600).sees(flink.elect(A)).waits(10)
    assert sidecar.sent_reasons() == [("FlinkLeaderChanged", reason) for reason in ("FIRST", "GREW", "FIRST")]


def test_a_lasting_vacancy_fires_once_and_resolves() -> None:
    """Critical after 30 seconds and not before; notified again only that it is over, and for how long it was."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(29.5)
    assert sidecar.state.alerts.groups == {}
    sidecar.waits(300)
    assert [(d.alert, d.reason, d.severity) for d in sidecar.sent] == [("FlinkNoLeader", "FIRST", Severity.CRITICAL)]
    assert sidecar.sent[0].title == "[DOWN] default: no leader of dispatcher for 35 s, probably jm-a was lost"
    sidecar.sees(flink.elect(A, DISPATCHER)).waits(300)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "RESOLVED")]
    assert sidecar.sent[1].body.startswith("leader back for dispatcher after at least 329 s")
    assert "elected jm-a:6123" in sidecar.sent[1].body
    assert "no published leader for 330 s" in sidecar.sent[1].body


@pytest.mark.parametrize("seconds", [29, 32], ids=["short", "notified by nobody yet"])
def test_a_vacancy_that_ends_before_anybody_was_notified_is_never_notified(seconds: int) -> None:
    """A leader within the 30 seconds, or while the group was still waiting: no alarm, and no all-clear for what nobody heard."""
    flink, sidecar = watching()
    fail_over(flink, sidecar, seconds, A, DISPATCHER).waits(600)
    assert sidecar.sent_reasons() == []


@pytest.mark.parametrize("out_of_sight", ["blind", "killed"])
def test_a_pending_vacancy_is_dropped_when_we_cannot_see(out_of_sight: str) -> None:
    """Vacant for ten seconds, then out of sight for an hour: nobody may be notified of an hour without a leader."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(10)
    if out_of_sight == "blind":
        sidecar.is_cut_off()
    else:
        sidecar.is_killed(down_for=3600)
    sidecar.waits(3600)
    assert sidecar.sent_reasons() == []


def test_a_vacancy_that_is_seen_again_begins_again() -> None:
    """Still nobody when sight comes back: 30 seconds from then on."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(10).is_cut_off().waits(60).connects().waits(29)
    assert sidecar.sent_reasons() == []
    sidecar.waits(10)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


def test_a_firing_vacancy_that_is_seen_again_is_not_another_one() -> None:
    """Notified, then out of sight, then still nobody: nothing new to notify."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(60).is_cut_off().waits(60).connects().waits(3600)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


def test_a_firing_vacancy_survives_a_restart_and_resolves() -> None:
    """Notified before the crash, over when the new process has looked: the all-clear comes, the alarm does not come again."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(60).is_killed(down_for=60)
    flink.elect(A, DISPATCHER)
    sidecar.connects().waits(120)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "RESOLVED")]


def test_a_vacancy_that_lasts_is_notified_again_after_the_repeat_interval() -> None:
    """Every four hours, with its reason."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(9 * 3600, tick=5)
    assert sidecar.sent_reasons() == [
        ("FlinkNoLeader", reason) for reason in ("FIRST", "REPEAT_INTERVAL_ELAPSED", "REPEAT_INTERVAL_ELAPSED")
    ]


def test_what_is_out_of_sight_is_not_said_again_as_if_it_were_so() -> None:
    """A vacancy that was notified, and then the store went away: no repetition of "no leader" until it can be seen again."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(60).is_cut_off().waits(9 * 3600, tick=5)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    sidecar.connects().waits(5)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "REPEAT_INTERVAL_ELAPSED")]


def test_a_vacancy_that_spreads_is_notified_after_the_group_interval() -> None:
    """GREW: the same group, one more component, not before a minute has passed."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(36).sees(flink.vacate(REST_SERVER)).waits(58)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]
    sidecar.waits(10)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "GREW")]
    assert sidecar.sent[1].body.startswith("no leader for rest_server, jm-a led before, 1 more fires")


def test_a_vacancy_that_was_never_notified_does_not_repeat_the_others() -> None:
    """A second component fires and is over before the group is notified again: nobody needs to hear of the first one once more."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER)).waits(40)
    fail_over(flink, sidecar, 35, A, REST_SERVER).waits(3600)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST")]


def test_a_vacancy_that_ends_for_some_is_notified_as_that() -> None:
    """The dispatcher is led again, the REST server is not: SHRANK, and the title says what is over and that something still fires."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(DISPATCHER, REST_SERVER)).waits(100)
    sidecar.sees(flink.elect(A, DISPATCHER)).waits(100)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "SHRANK")]
    assert sidecar.sent[1].title.startswith("[DOWN] default: no leader of rest_server for 1 min")
    assert sidecar.sent[1].body.startswith("leader back for dispatcher")
    assert "dispatcher: elected jm-a:6123" in sidecar.sent[1].body
    sidecar.sees(flink.elect(A, REST_SERVER)).waits(100)
    assert sidecar.sent_reasons()[2:] == [("FlinkNoLeader", "RESOLVED")]


def test_a_job_that_ends_while_vacant_resolves() -> None:
    """Cancelled while it waited for a leader: its vacancy is over, and says why."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(60).sees(flink.forget()).waits(120)
    assert sidecar.sent_reasons() == [("FlinkNoLeader", "FIRST"), ("FlinkNoLeader", "RESOLVED")]
    assert "its job ended" in sidecar.sent[1].body


def test_a_job_that_ends_in_order_is_no_alert() -> None:
    """Its leader is removed, then its graph: nothing is notified."""
    flink, sidecar = watching()
    sidecar.sees(flink.vacate(THE_JOB)).waits(0.2).sees(flink.forget()).waits(3600, tick=5)
    assert sidecar.sent_reasons() == []


def test_a_receiver_that_wants_no_all_clear_gets_none() -> None:
    """`send_resolved: false` holds for this destination alone."""
    quiet = Destination("pager", 0, send_resolved=False)
    flink, sidecar = watching(policy=with_destinations(OPS, quiet))
    fail_over(flink, sidecar, 60, A, DISPATCHER).waits(120)
    assert [d.reason.value for d in sidecar.sent if d.destination == "pager#0"] == ["FIRST"]
    assert [d.reason.value for d in sidecar.sent if d.destination == "ops#0"] == ["FIRST", "RESOLVED"]


def test_out_of_sight_is_notified_also_when_nobody_ever_saw_anything() -> None:
    """A sidecar that starts while the store is away: after as long as the rule says, though coverage is recorded in pieces of an hour."""
    blind = Rule("Blind", Trigger.BLIND, hold_for=90 * 60 * SECOND)
    sidecar = Sidecar(Flink(), replace(POLICY, rules=(blind,))).waits(90 * 60, tick=5)
    assert sidecar.sent_reasons() == []
    sidecar.waits(10)
    assert sidecar.sent_reasons() == [("Blind", "FIRST")]


def test_failovers_are_counted_on_while_they_are_too_many() -> None:
    """What is said again says how many there are by now."""
    flapping = Rule("Flapping", Trigger.EPISODES, count=2, within=3600 * SECOND)
    route = replace(POLICY.route, repeat_interval=600 * SECOND)
    flink, sidecar = watching(policy=replace(POLICY, rules=(flapping,), route=route))
    for leader in (B, C, A, B):
        sidecar.sees(flink.elect(leader)).waits(60)
    assert [delivery.title for delivery in sidecar.sent] == ["[WARNING] default: 2 failovers within 1 h"]
    sidecar.waits(500)
    assert sidecar.sent[-1].title == "[WARNING] default: still: 4 failovers within 1 h"
    assert sidecar.sent_reasons()[1:] == [("Flapping", "REPEAT_INTERVAL_ELAPSED")]
