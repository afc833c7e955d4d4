"""Rules: the state of a cluster decides which conditions hold, fire and are resolved. `reactions` are about what happened."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Alert, Alerts, Failovers, Pending, PendingKey, new_alert, place_of
from sidecar.core.alerting.conditions import (
    CONDITIONS,
    ClusterNow,
    Condition,
    Holding,
    is_in_progress,
    no_vacancy_until,
    waiting_alerts,
)
from sidecar.core.alerting.reactions import known_alert
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import plans, rest_server
from sidecar.core.finder import Finder
from sidecar.core.flink.leadership import Held
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.leadership.unobserved import bounds_in_seconds
from sidecar.core.moment import Moment, in_seconds
from sidecar.core.policy.policy import Policy, Rule
from sidecar.core.policy.routing import CHECK
from sidecar.core.policy.triggers import Trigger
from sidecar.core.quarantine import STRICT, Quarantine

_OVER_AT_ONCE: Final = Condition()
_COUNTED: Final = frozenset({Trigger.EPISODES, Trigger.NO_STANDBY})
"""Their messages have the number of now, not that of the beginning."""


def evaluate(
    alerts: Alerts, policy: Policy, clusters: Mapping[str, ClusterState], now: Moment, quarantine: Quarantine = STRICT
) -> Alerts:
    """Fire conditions that have held for `for`; resolve those that no longer hold.

    While a cluster cannot be read nothing about its leaders fires or resolves, only `blind` does. Alerts of a cluster that cannot be
    evaluated are forgotten: those that still hold fire anew.
    """
    for name, cluster in clusters.items():
        if alerts.evaluated.get(name) is not cluster or name in alerts.failovers:
            try:
                alerts = _evaluate_cluster(alerts, policy, name, cluster, now, quarantine)
            except Exception as error:  # noqa: BLE001  whatever it is, the other clusters go on
                quarantine.leave_out(error, "alerts of cluster", name)
                alerts = _without_cluster(alerts, name)
    triggers = {rule.alert: rule.on for rule in policy.rules}

    def is_due(key: PendingKey, pending: Pending) -> bool:
        if pending.alert.is_event:
            return pending.due <= now.steady
        until = _trusted_until(policy, triggers.get(key[0]), clusters.get(key[1]), now)
        return until is not None and pending.due <= until

    due = {key: pending.alert for key, pending in alerts.pending.items() if is_due(key, pending)}
    if due:
        alerts = replace(alerts, pending={key: held for key, held in alerts.pending.items() if key not in due})
    for alert in due.values():
        with quarantine.guard("alert", alert.rule, "of cluster", alert.cluster_id):
            alerts = grouping.fire(
                alerts, policy, _now_known(alerts, policy, alert, clusters.get(alert.cluster_id), now), now
            )
    return alerts


def _now_known(alerts: Alerts, policy: Policy, alert: Alert, cluster: ClusterState | None, now: Moment) -> Alert:
    """An event that waited, as it fires."""
    if cluster is None or not alert.is_event:
        return alert
    ended = None if is_in_progress(cluster, alert.episode_id) else now
    return replace(known_alert(alerts, policy, alert, cluster), ended=ended)


def forget(alerts: Alerts, policy: Policy, name: str, now: Moment) -> Alerts:
    """Resolve all alerts of a cluster that was removed, and forget what was counted of it."""
    firing = {alert.id for alert in alerts.firing() if alert.cluster_id == name}
    return _without_counts(grouping.resolve(alerts, policy, firing, now, lambda alert: alert), name)


def _without_cluster(alerts: Alerts, name: str) -> Alerts:
    """The alerts without those of a cluster, and without what was counted of it."""
    groups = {
        fingerprint: replace(
            group, members={key: member for key, member in group.members.items() if member.alert.cluster_id != name}
        )
        for fingerprint, group in alerts.groups.items()
    }
    return _without_counts(replace(alerts, groups=groups), name)


def _without_counts(alerts: Alerts, name: str) -> Alerts:
    return replace(
        alerts,
        pending={key: waiting for key, waiting in alerts.pending.items() if key[1] != name},
        failovers={other: failovers for other, failovers in alerts.failovers.items() if other != name},
        evaluated={other: evaluated for other, evaluated in alerts.evaluated.items() if other != name},
    )


def _trusted_until(policy: Policy, trigger: Trigger | None, cluster: ClusterState | None, now: Moment) -> int | None:
    """Until when (steady) what a condition is about is known; None: not at all. A condition fires only if it held for `for` by then."""
    if cluster is None or trigger is Trigger.BLIND:
        return now.steady
    if trigger is Trigger.LEADER_SILENT:
        return rest_server.proven_until(cluster)
    if cluster.confirmed is None:
        return now.steady
    return min(now.steady, cluster.confirmed.at.steady + policy.trust_window)


def _evaluate_cluster(
    alerts: Alerts, policy: Policy, name: str, cluster: ClusterState, now: Moment, quarantine: Quarantine
) -> Alerts:
    """Resolve the cluster's conditions that no longer hold; those that hold and are not firing become pending."""
    alerts = _without_old_failovers(alerts, policy, name, now)
    lasting = _lasting(alerts, name)
    pending = {key: other for key, other in alerts.pending.items() if key[1] != name}
    over: set[str] = set()
    seen = ClusterNow(policy, name, cluster, alerts.failovers.get(name, Failovers()), now)
    in_sight = cluster.leaders_in_sight
    for rule in policy.rules:
        condition, firing = CONDITIONS.get(rule.on, _OVER_AT_ONCE), lasting[rule.alert]
        try:
            if rule.on is Trigger.LEADER_CHANGED:
                pending |= waiting_alerts(alerts.pending, rule, name, cluster, now)
            if not in_sight and rule.on is not Trigger.BLIND:
                continue
            if rule.on is Trigger.HA_RISK:
                for alert in _new_risks(rule, policy, name, cluster, firing):
                    alerts = grouping.fire(alerts, policy, alert, now)
            holding = condition.holds(rule, seen) if condition.holds else {}
            if holding:
                alerts, waiting = _evaluate_rule(alerts, rule, seen, holding, firing)
                pending |= waiting
            for alert in firing:
                if not (alert.component in holding or (condition.goes_on and condition.goes_on(alert, cluster))):
                    over.add(alert.id)
        except Exception as error:  # noqa: BLE001  whatever it is, the other rules go on
            quarantine.leave_out(error, "rule", rule.alert, "of cluster", name)
    if over:
        alerts = grouping.resolve(alerts, policy, over, now, lambda alert: _completed(alert, cluster, now))
    if pending == alerts.pending and alerts.evaluated.get(name) is cluster:
        return alerts
    return replace(alerts, pending=pending, evaluated={**alerts.evaluated, name: cluster})


def _lasting(alerts: Alerts, name: str) -> defaultdict[str, list[Alert]]:
    """The alerts of a cluster that fire, by rule."""
    by_rule = defaultdict[str, list[Alert]](list)
    for alert in alerts.firing():
        if alert.cluster_id == name:
            by_rule[alert.rule].append(alert)
    return by_rule


def _evaluate_rule(
    alerts: Alerts, rule: Rule, seen: ClusterNow, holding: Holding, lasting: Sequence[Alert]
) -> tuple[Alerts, dict[PendingKey, Pending]]:
    """The alerts with what is known now of those that are `lasting`, and the conditions that hold and do not fire."""
    firing = {alert.component: alert for alert in lasting}
    pending: dict[PendingKey, Pending] = {}
    for component, alert in holding.items():
        if fires := firing.get(component):
            count = alert.count if rule.on in _COUNTED else fires.count
            alerts = grouping.updated(alerts, fires, count, alert.agreement, seen.now)
        else:
            due = alert.began.steady + rule.hold_for
            if rule.on is Trigger.VACANT:
                due = max(due, no_vacancy_until(rule, seen.cluster, alert.episode_id, alert.began))
            key, waiting = (rule.alert, seen.name, component), Pending(due, alert)
            before = alerts.pending.get(key)
            pending[key] = before if before == waiting else waiting
    return alerts, pending


def _completed(alert: Alert, cluster: ClusterState, now: Moment) -> Alert:
    """The alert with its new leader and its duration; an event stays as it is."""
    if alert.is_event:
        return alert
    state = cluster.components.get(alert.component) if alert.component else None
    address = state.leadership.leader.address if state and isinstance(state.leadership, Held) else None
    operated = cluster.operated if plans.is_unwanted(cluster.operated) else None
    if operated and (address is None or alert.reach):
        alert = replace(alert, unwanted=True, detail=plans.what_was_done(operated))
    lasted = now.steady - alert.began.steady
    if alert.reach:
        reach = rest_server.reach_after(cluster, alert.reach)
        return replace(alert, after=place_of(address), reach=reach, vacant_seconds=in_seconds(lasted))
    absence = state.absence if state and address is not None else None
    # Of several vacancies in one failover the bounds are those of all together.
    is_only_one = absence is not None and absence.vacant is not None and absence.vacant <= lasted
    down = absence.downtime if absence and is_only_one else None
    return replace(alert, after=place_of(address), vacant_seconds=in_seconds(lasted), **bounds_in_seconds(down))


def _without_old_failovers(alerts: Alerts, policy: Policy, name: str, now: Moment) -> Alerts:
    """Drop the failovers that no rule counts any more."""
    if name not in alerts.failovers:
        return alerts
    longest = policy.failovers_counted_within()
    failovers = alerts.failovers[name].known
    recent = tuple(failover for failover in failovers if now.steady - failover.at <= longest)
    if len(recent) == len(failovers):
        return alerts
    rest = {other: counted for other, counted in alerts.failovers.items() if other != name}
    return replace(alerts, failovers={**rest, name: Failovers(recent)} if recent else rest, evaluated={})


def _new_risks(
    rule: Rule, policy: Policy, name: str, cluster: ClusterState, firing: Collection[Alert]
) -> Iterator[Alert]:
    """An alert for each check that is a RISK and has none. `firing`: the alerts of this rule and cluster that are not over."""
    alerted = {alert.labels.get(CHECK) for alert in firing}
    for check_id, check in (cluster.readiness.checks if cluster.readiness else {}).items():
        if check.result.verdict is CheckVerdict.RISK and check_id not in alerted:
            # The id does not say since when: observers check at different times.
            alert = new_alert(policy, rule, name, None, check.risk_since or check.since, check_id, about=check_id)
            detail = f"{check.result.text}: {check.result.advice}"
            yield replace(alert, labels={**alert.labels, CHECK: check_id}, detail=detail)


def evaluate_search(alerts: Alerts, policy: Policy, finder: Finder, now: Moment) -> Alerts:
    """Fire and resolve the alert that not all clusters are watched: the rules on `blind` are also about the search, because those that are
    left out cannot have an alert of their own. In place of a cluster's id it has the place of the search.
    """
    if not finder.connected:
        return alerts  # nothing is known
    problem = finder.excess
    for rule in policy.rules:
        if rule.on is not Trigger.BLIND:
            continue
        firing = {alert.id for alert in _lasting(alerts, finder.place)[rule.alert]}
        if problem and finder.since and not firing and now.steady - finder.since.steady >= rule.hold_for:
            since, parts = finder.since, (policy.observer, finder.since.wall)
            alert = new_alert(policy, rule, finder.place, None, since, *parts, missing=problem)
            alerts = grouping.fire(alerts, policy, alert, now)
        elif firing and not problem:
            alerts = grouping.resolve(alerts, policy, firing, now, lambda alert: alert)
    return alerts
