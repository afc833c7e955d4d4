"""What fires, what is suppressed and why: the data of the page, the API and the command `alerts`."""

from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.labels import Matcher, Operator
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import InhibitRule, Route, TimeInterval, TimeRange
from sidecar.core.rebase import rebased
from sidecar.core.views.alert_view import AlertView, alerts
from sidecar.core.views.snapshot import Snapshot
from tests.core.alerting.test_silences import SILENCED, silence
from tests.kit.cluster import CLUSTER, B
from tests.kit.core_sidecar import POLICY, Sidecar, watching

_ALWAYS = TimeInterval("nights", (TimeRange(),))
_NEVER = TimeInterval("office hours", ())


def vacant(policy: Policy = POLICY, seconds: float = 40) -> Sidecar:
    """A cluster that has had no leader for so long."""
    flink, sidecar = watching(policy=policy)
    flink.vacate()
    return sidecar.sees_changes().waits(seconds)


def shown(sidecar: Sidecar) -> list[AlertView]:
    return alerts(Snapshot(sidecar.moment, sidecar.state, policy=sidecar.policy))


def states(sidecar: Sidecar) -> set[tuple[str, str | None]]:
    return {(row.state, row.reason) for row in shown(sidecar)}


def test_an_alert_that_fires() -> None:
    """With its rule, subject, start, text and receivers, and whether it was notified."""
    first = shown(vacant())[0]
    assert (first.alert, first.trigger, first.severity, first.state, first.reason) == (
        *("FlinkNoLeader", "vacant", "critical", "firing"),
        None,
    )
    assert (first.cluster_id, first.component, first.job_id) == (CLUSTER, "resource_manager", None)
    assert first.since.startswith("2026-11-20T08:01:00")
    assert first.summary.startswith("resource_manager: no leader since 2026-11-20 08:01:00")
    assert (first.receivers, first.notified, first.observed, first.fires_at) == (["ops"], True, True, None)
    assert first.labels["alert"] == "FlinkNoLeader"


def test_a_condition_that_does_not_hold_for_long_enough_is_pending() -> None:
    """With the time at which it fires."""
    sidecar = vacant(seconds=12)
    [*others, last] = shown(sidecar)
    assert {row.state for row in (*others, last)} == {"pending"}
    assert {row.fires_at[:19] for row in others if row.fires_at} == {"2026-11-20T08:01:30"}
    assert not last.notified
    sidecar.flink.elect(B)
    sidecar.sees_changes().waits(20)
    assert shown(sidecar) == []


def test_a_pending_alert_is_the_same_on_the_clock_of_a_command() -> None:
    """A failover that nobody planned is not shown as planned, and fires at the same time."""
    sidecar = vacant(seconds=12)
    shift = -3
    at = Moment(sidecar.moment.steady + shift, sidecar.moment.wall)
    read = alerts(Snapshot(at, rebased(sidecar.state, shift), policy=sidecar.policy))
    assert read == shown(sidecar)
    assert {row.reason for row in read} == {None}


def test_a_silenced_alert_names_who_silenced_it() -> None:
    """Until when, and why; from the moment when the silence is known."""
    sidecar = vacant(SILENCED)
    sidecar.silenced_by(silence())
    sidecar.waits(15)
    assert states(sidecar) == {("silenced", "silenced by ann until 2026-11-20 10:00 UTC: upgrade")}
    assert {row.silence_id for row in shown(sidecar)} == {silence().id}
    sidecar.now += 7200 * SECOND
    assert states(sidecar) == {("firing", None)}


def test_an_inhibited_alert_names_the_other() -> None:
    """Which itself fires."""
    source = (Matcher("component", Operator.EQUAL, "dispatcher"),)
    target = (Matcher("component", Operator.NOT_EQUAL, "dispatcher"),)
    sidecar = vacant(replace(POLICY, inhibit_rules=(InhibitRule(source, target, ("cluster_id",)),)))
    reason = "inhibited by FlinkNoLeader of default"
    assert [(row.component, row.state, row.reason) for row in shown(sidecar)] == [
        ("dispatcher", "firing", None),
        *((component, "inhibited", reason) for component in ("resource_manager", "rest_server", "job")),
    ]


def test_a_muted_alert_names_the_time_interval() -> None:
    """Only if each of its routes is muted: where one is not, it is notified."""
    muted = replace(POLICY, route=replace(POLICY.route, mute=(_ALWAYS,)))
    assert states(vacant(muted)) == {("muted", "its notifications are muted: in nights")}
    inactive = replace(POLICY, route=replace(POLICY.route, active=(_NEVER,)))
    assert states(vacant(inactive)) == {("muted", "its notifications are muted: outside of office hours")}
    by_day = Route("oncall", key="{}/{a}", mute=(_ALWAYS,), continues=True)
    always = Route("desk", key="{}/{b}")
    both = vacant(replace(POLICY, route=replace(POLICY.route, routes=(by_day, always))))
    assert states(both) == {("firing", None)}
    assert shown(both)[0].receivers == ["oncall", "desk"]
    assert len(shown(both)) == 4


def test_whether_an_alert_still_fires_is_not_known_while_blind() -> None:
    """It is the last known state."""
    sidecar = vacant().is_cut_off().waits(10)
    assert {(row.state, row.observed) for row in shown(sidecar)} == {("firing", False)}
