"""What fires, what is suppressed and why: the data of the page, the API and the command `alerts`."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting import flushing, grouping
from sidecar.core.alerting.alerts import Alert, Alerts, Reason
from sidecar.core.alerting.silence_document import written
from sidecar.core.alerting.suppression import Silences, learned
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import InhibitRule, Matcher, Operator, Route, TimeInterval, TimeRange
from sidecar.core.policy.triggers import Trigger
from sidecar.core.rebase import rebased
from sidecar.core.state import State
from sidecar.core.views.alert_view import AlertView, alerts
from sidecar.core.views.snapshot import Snapshot
from tests.core.alerting.test_silences import SILENCED, silence
from tests.kit.cluster import CLUSTER, START, B
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
    sidecar.sees(sidecar.flink.elect(B)).waits(20)
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


_SOURCE = Rule("Source", Trigger.BLIND, Severity.INFO)
_TARGET = Rule("Target", Trigger.BLIND)
_REASONS = {
    Reason.SUPPRESSED_BY_SILENCE: "silenced",
    Reason.SUPPRESSED_BY_TIME_INTERVAL: "muted",
    Reason.SUPPRESSED_BY_OBSERVERS: "outvoted",
    Reason.SUPPRESSED_BY_INHIBITION: "inhibited",
}
"""By the reason in records: the state on the page, in the order of notification."""


def suppressed_alert(*reasons: Reason) -> tuple[Snapshot, Reason]:
    """An alert that is suppressed for all of these reasons, and the reason that its group's flush has for the record."""
    target = (Matcher("alert", Operator.EQUAL, _TARGET.alert),)
    policy = replace(POLICY, rules=(_SOURCE, _TARGET))
    documents: dict[str, Silences] = {}
    labels = {"alert": _TARGET.alert, "cluster_id": CLUSTER, "severity": "warning", "observer": "us"}
    at = Moment(START + 60 * SECOND, START + 60 * SECOND)
    alert = Alert("target", _TARGET.alert, CLUSTER, labels, at)
    source = replace(alert, id="source", rule=_SOURCE.alert, labels={**labels, "alert": _SOURCE.alert})
    for reason in reasons:
        match reason:
            case Reason.SUPPRESSED_BY_SILENCE:
                content = written({entry.id: entry for entry in (silence(*target),)})
                policy = replace(policy, silence_documents=frozenset({CLUSTER}))
                documents = {CLUSTER: learned(Silences(), content, None, 2**62, at)}
            case Reason.SUPPRESSED_BY_TIME_INTERVAL:
                policy = replace(policy, route=replace(policy.route, mute=(_ALWAYS,)))
            case Reason.SUPPRESSED_BY_OBSERVERS:
                alert = replace(alert, agreement=Agreement(1, 3, 3))
            case Reason.SUPPRESSED_BY_INHIBITION:
                by = (Matcher("alert", Operator.EQUAL, _SOURCE.alert),)
                policy = replace(policy, inhibit_rules=(InhibitRule(by, target, ("cluster_id",)),))
    alerts_by_rule = grouping.fire(grouping.fire(Alerts(), policy, source, at), policy, alert, at)
    state = State(alerts=alerts_by_rule, silences=documents)
    due = Moment(at.steady + policy.route.group_wait + 10 * SECOND, at.wall + 20 * SECOND)
    flushed, _, _ = flushing.flush(state.alerts, policy, (), due, documents)
    [member] = [member for member in flushed.members() if member.alert.id == "target"]
    assert member.suppressed_by is not None
    return Snapshot(due, state, policy=policy), member.suppressed_by


@pytest.mark.parametrize("pair", [*combinations(_REASONS, 1), *combinations(_REASONS, 2)])
def test_page_and_record_name_the_same_reason(pair: Sequence[Reason]) -> None:
    """Of two that hold, the one that comes first on the way of a notification."""
    snapshot, recorded = suppressed_alert(*pair)
    [view] = [view for view in alerts(snapshot) if view.id == "target"]
    assert (recorded, view.state) == (pair[0], _REASONS[pair[0]])
