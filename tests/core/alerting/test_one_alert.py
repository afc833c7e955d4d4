"""One happening is one alert: whoever saw it, however often it is seen, and whatever else turns out of it."""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, LeaderInformation
from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import TimeInterval, TimeRange
from sidecar.core.policy.triggers import Trigger
from tests.core.auditor import Audited
from tests.core.triggers import EACH, SCENES, C, D, fails_over, moves, reasons, watching
from tests.kit.cluster import ALL_FOUR, DISPATCHER, REST_SERVER, THE_JOB, A, B
from tests.kit.core_sidecar import POLICY
from tests.kit.fake_flink import Flink

# -- one alert, whoever saw it -----------------------------------------------------------------------------------------

SHARED: Final = (
    SCENES[Trigger.LEADER_CHANGED].rule,
    replace(SCENES[Trigger.JOB_LEADER_CHANGED].rule, alert="Job"),
    replace(SCENES[Trigger.EPISODES].rule, alert="Flapping", count=2),
    replace(SCENES[Trigger.VACANT].rule, alert="Vacant"),
)


def identities(sidecar: Audited) -> set[tuple[str, str, str]]:
    alerts = [alert for notice in sidecar.notices for alert in notice.alerts]
    return {(alert.rule, str(alert.component), alert.id) for alert in alerts}


def observe(looks: Callable[[Flink, Audited, int], object], observer: str) -> Audited:
    """Two failovers, a job that moves by itself, a vacancy: `looks` is asked after each of the six changes."""
    flink = Flink().submit().elect(A)
    sidecar = Audited(flink, replace(POLICY, observer=observer, rules=SHARED, route=EACH))
    sidecar.connects().waits(len(observer), tick=1)
    for number in range(6):
        sidecar.waits(20 if number in {2, 4, 5} else 0.5, tick=0.5)
        match number:
            case 0 | 2:
                flink.vacate()
            case 1 | 3:
                flink.elect(B if number == 1 else C)
            case 4:
                flink.elect(D, THE_JOB)
            case 5:
                flink.vacate(DISPATCHER)
        looks(flink, sidecar, number)
    sidecar.waits(60, tick=1)
    return sidecar


def _coalesces(_: Flink, sidecar: Audited, number: int) -> None:
    if number not in {0, 2}:
        sidecar.sees_changes()


def _is_blind_at_each_failover(_: Flink, sidecar: Audited, number: int) -> None:
    if number in {0, 2}:
        sidecar.is_cut_off().waits(10)
    elif number in {1, 3}:
        sidecar.connects()
    else:
        sidecar.sees_changes()


def _is_killed_after_each_change(_: Flink, sidecar: Audited, number: int) -> None:
    sidecar.sees_changes().is_killed(down_for=1 + number).connects()


def test_who_sees_the_same_gives_it_the_same_id() -> None:
    """One sees all, one takes A->null->B for A->B, one was blind meanwhile, one is killed again and again."""
    first = observe(lambda _, sidecar, __: sidecar.sees_changes(), "a")
    others = [
        observe(_coalesces, "observer-b"),
        observe(_is_blind_at_each_failover, "observer-number-c"),
        observe(_is_killed_after_each_change, "d"),
    ]
    alerts = identities(first)
    changed = {(rule, component) for rule, component, _ in alerts}
    assert changed == {
        *(("R", str(component)) for component in CLUSTER_COMPONENTS),
        ("Job", str(THE_JOB)),
        ("Flapping", "None"),
        ("Vacant", str(DISPATCHER)),
    }
    assert len(alerts) == 3 * 2 + 3, "what happened twice has two ids"
    assert [identities(other) ^ alerts for other in others] == [set(), set(), set()]


def test_who_missed_a_failover_counts_to_the_same_alert() -> None:
    """Three failovers for one, two for another one, which was away while B led and counts to its two with D: one alert for both."""
    rule = replace(SCENES[Trigger.EPISODES].rule, count=2)
    flink, sees = watching(rule)
    fails_over(B, C, D)(flink, sees)
    flink, misses = watching(rule)
    misses.is_cut_off()
    flink.vacate().elect(B).vacate().elect(C)
    misses.connects().waits(20)
    fails_over(D)(flink, misses)
    misses.waits(20)
    assert reasons(misses) == ["FIRST"]
    assert identities(misses) == identities(sees)


def test_a_leader_that_comes_back_is_notified_of_once_more() -> None:
    """B, then A again with its old session, then B again: the ledger must not take the third for the first."""
    flink, sidecar = watching(SCENES[Trigger.LEADER_CHANGED].rule)
    for leader in (B, A, B):
        moves(("+", leader, (DISPATCHER,)))(flink, sidecar)
        sidecar.waits(20)
    assert len(identities(sidecar)) == 3


def test_what_only_this_observer_knows_has_a_group_of_its_own() -> None:
    """Blind no more, though both have one route: what others notify of is in the ledger, and its incident is the same for all of them."""
    rules = (
        replace(SCENES[Trigger.EPISODES].rule, alert="Flapping"),
        replace(SCENES[Trigger.BLIND].rule, alert="Blind"),
    )
    flink, sidecar = watching(*rules, route=replace(EACH, group_by=("cluster_id",)))
    fails_over(B, C, D)(flink, sidecar)
    sidecar.is_cut_off().waits(60).connects().waits(20)
    assert [(delivery.reason.value, len(delivery.parts)) for delivery in sidecar.sent] == [
        ("FIRST", 1),
        ("FIRST", 0),
        ("RESOLVED", 0),
    ]
    shared, own, over = (delivery.incident for delivery in sidecar.sent)
    assert shared != own == over


def test_several_failovers_in_one_episode_are_as_many() -> None:
    """B, C and D follow each other before all is quiet: one episode, and three failovers."""
    flink, sidecar = watching(SCENES[Trigger.EPISODES].rule)
    moves(("+", B, ALL_FOUR), ("+", C, ALL_FOUR), ("+", D, ALL_FOUR))(flink, sidecar)
    sidecar.waits(20)
    assert [episode.failovers for episode in sidecar.episodes()] == [3]
    assert [(notice.reason.value, notice.alerts[0].count) for notice in sidecar.notices] == [("FIRST", 3)]


def test_all_alerts_of_one_component_end_together() -> None:
    """Three leaders follow each other in one episode: three alerts of the dispatcher, which all last until the last one is led."""
    flink, sidecar = watching(SCENES[Trigger.LEADER_CHANGED].rule, route=replace(EACH, group_by=("cluster_id",)))
    steps = [("+", leader, (DISPATCHER,)) for leader in (B, C, D)]
    moves(("-", None, (REST_SERVER,)), *steps)(flink, sidecar)
    sidecar.waits(10)
    moves(("+", D, (REST_SERVER,)))(flink, sidecar)
    sidecar.waits(6)
    assert reasons(sidecar)[0] == "FIRST"
    lasting = {alert.id for group in sidecar.state.alerts.groups.values() for alert in _lasting(group.members.values())}
    assert lasting == set()


def _lasting(members: object) -> list[Alert]:
    return [member.alert for member in members if not member.alert.ended]  # type: ignore[attr-defined]  # of a group


def test_the_jobs_of_a_failover_are_one_vacancy() -> None:
    """A hundred jobs without a leader: one alert without a job id, with their number; a job that waits by itself has its own."""
    rule = SCENES[Trigger.VACANT].rule
    flink, sidecar = watching(rule, route=replace(EACH, group_by=("cluster_id",)))
    jobs = [ComponentId(Component.JOB, f"{number:032x}") for number in range(1, 101)]
    for job in jobs:
        flink.submit(job.job_id or "").publish(job, LeaderInformation("a", UUID(int=1)))
    sidecar.sees_changes().waits(20)
    moves(("-", None, (*jobs, *CLUSTER_COMPONENTS)), ("+", B, CLUSTER_COMPONENTS))(flink, sidecar)
    sidecar.waits(40, tick=1)
    (alert,) = sidecar.notices[-1].alerts
    assert (alert.component, alert.count, "job_id" in alert.labels) == (ComponentId(Component.JOB), 100, False)
    moves(("+", B, tuple(jobs)))(flink, sidecar)
    sidecar.waits(20)
    moves(("-", None, (jobs[7],)))(flink, sidecar)
    sidecar.waits(40, tick=1)
    (alert,) = sidecar.notices[-1].alerts
    assert (alert.component, alert.labels["job_id"]) == (jobs[7], jobs[7].job_id)


# -- taken back, and not -----------------------------------------------------------------------------------------------


def test_a_job_that_was_the_first_of_a_failover_is_taken_back() -> None:
    """It moved a second before the others: it is not notified by itself."""
    flink, sidecar = watching(SCENES[Trigger.JOB_LEADER_CHANGED].rule, route=replace(EACH, group_wait=5 * SECOND))
    moves(("+", B, (THE_JOB,)), ("-", None, CLUSTER_COMPONENTS), ("+", B, CLUSTER_COMPONENTS))(flink, sidecar)
    sidecar.waits(60)
    assert sidecar.notices == []


def test_a_job_that_moved_long_before_a_failover_is_not_taken_back() -> None:
    """Nobody could be notified at night: it is notified to nobody, and recorded, though the job moves again in a failover before."""
    always = TimeInterval("always", (TimeRange(),))
    flink, sidecar = watching(SCENES[Trigger.JOB_LEADER_CHANGED].rule, route=replace(EACH, group_wait=60 * SECOND))
    moves(("+", B, (THE_JOB,)))(flink, sidecar)
    sidecar.policy = replace(sidecar.policy, route=replace(sidecar.policy.route, mute=(always,)))
    sidecar.waits(20)
    moves(("-", None, ALL_FOUR), ("+", C, ALL_FOUR))(flink, sidecar)
    sidecar.waits(60)
    assert sidecar.notices == []
    (record,) = sidecar.notifications()
    assert (record.outcome, record.reason) == ("suppressed", "SUPPRESSED_BY_TIME_INTERVAL")


def test_a_failover_takes_back_nothing_of_another_cluster() -> None:
    """In application mode jobs of different clusters have one and the same id."""
    rule = SCENES[Trigger.JOB_LEADER_CHANGED].rule
    flink, sidecar = watching(rule, route=replace(EACH, group_wait=5 * SECOND))
    moves(("+", B, (THE_JOB,)))(flink, sidecar)
    groups = dict(sidecar.state.alerts.groups)
    for fingerprint, group in groups.items():
        members = {key: replace(m, alert=replace(m.alert, cluster_id="other")) for key, m in group.members.items()}
        groups[fingerprint] = replace(group, members=members)
    sidecar.state = replace(sidecar.state, alerts=replace(sidecar.state.alerts, groups=groups))
    sidecar.sees(flink.vacate(*CLUSTER_COMPONENTS))
    assert [len(group.members) for group in sidecar.state.alerts.groups.values()] == [1]
