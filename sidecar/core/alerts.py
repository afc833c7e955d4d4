"""From transitions to notifications: rules fire, alerts gather in groups, a group is told once. Alertmanager's model with its words.

A `leader_changed` alert is an event: told and done. A `vacant` alert has a duration: it is pending until it has lasted long enough, fires
until somebody leads, and is then resolved. So has a `split` one: it fires at once, until leaders have stopped coming back. Alerts of one
rule in one cluster form a group, so that a failover of many components is told once: after `wait`; when it grew, after `interval`; again,
after `repeat`; and when it is over.
"""

from collections.abc import Container, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.leadership import ComponentId, host_port
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy import Grouping, Rule, Trigger
from sidecar.core.records import Transition, record_id
from sidecar.core.transitions import Kind


class Reason(StrEnum):
    """Why a group is told now. The same word is the log field, the metric label and the audit column."""

    FIRST = "FIRST"
    GREW = "GREW"
    SHRANK = "SHRANK"
    """Some of its alerts are over, not all."""
    REPEAT_INTERVAL_ELAPSED = "REPEAT_INTERVAL_ELAPSED"
    RESOLVED = "RESOLVED"


class Alert(Struct, frozen=True):
    """One firing (or just resolved) alert of one component."""

    component: ComponentId
    began: Moment
    before: str | None
    """`host:port` of the leader last known before."""
    after: str | None = None
    vacant_seconds: float | None = None
    ended: Moment | None = None
    told: bool = False


class Pending(Struct, frozen=True):
    """A vacancy that has not lasted long enough yet."""

    due: int
    alert: Alert


class Group(Struct, frozen=True):
    """The alerts of one rule in one cluster that are told together."""

    alerts: tuple[Alert, ...] = ()
    flush_at: int | None = None
    told_at: int | None = None


Key = tuple[str, str]
"""Rule and cluster."""
PendingKey = tuple[str, str, ComponentId]


class Alerts(Struct, frozen=True):
    """Everything that is on its way to being told."""

    pending: Mapping[PendingKey, Pending] = {}
    groups: Mapping[Key, Group] = {}


class Notice(Struct, frozen=True):
    """What is to be told now of one group."""

    rule: Rule
    cluster_id: str
    reason: Reason
    alerts: tuple[Alert, ...]

    @property
    def fingerprint(self) -> str:
        """The identity of the group, as long as it lives and after."""
        return record_id("group", self.rule.alert, self.cluster_id)


def react(
    alerts: Alerts,
    rules: Sequence[Rule],
    grouping: Grouping,
    transition: Transition,
    component: ComponentId,
    at: Moment,
) -> Alerts:
    """What one transition means to the rules."""
    for rule in rules:
        match rule.on:
            case Trigger.LEADER_CHANGED:
                alerts = _leader_changed(alerts, rule, grouping, transition, component, at)
            case Trigger.VACANT:
                alerts = _vacant(alerts, rule, grouping, transition, component, at)
            case Trigger.SPLIT:
                alerts = _split(alerts, rule, grouping, transition, component, at)
    return alerts


def tick(
    alerts: Alerts,
    rules: Sequence[Rule],
    grouping: Grouping,
    blind: Container[str],
    contested: Container[tuple[str, ComponentId]],
    now: Moment,
) -> tuple[Alerts, list[Notice]]:
    """What is due: vacancies that have lasted, splits that are over, groups that have waited.

    `blind`: the clusters out of sight. What was seen of them is still told, but never said again as if it were so now. `contested`: the
    leaderships that are split.
    """
    for split in (rule for rule in rules if rule.on is Trigger.SPLIT):
        alerts = _end_splits(alerts, split, grouping, contested, now)
    for waiting, pending in alerts.pending.items():
        if now.steady >= pending.due:
            alerts = _add(_drop_pending(alerts, waiting), waiting[:2], pending.alert, grouping, now)
    notices = []
    by_name = {rule.alert: rule for rule in rules}
    for key, group in alerts.groups.items():
        rule = by_name.get(key[0])
        if rule is None:  # the rule is gone from the configuration, and what it gathered with it
            alerts = _with_group(alerts, key, None)
        elif group.flush_at is not None and now.steady >= group.flush_at:
            if key[1] in blind and not _has_news(group):
                continue
            rest, notice = _flush(group, rule, key[1], grouping, now)
            notices.append(notice)
            alerts = _with_group(alerts, key, rest)
        elif not group.alerts and group.told_at is not None and now.steady >= group.told_at + grouping.interval:
            alerts = _with_group(alerts, key, None)
    return alerts, notices


def restart(alerts: Alerts, watched: Container[str]) -> Alerts:
    """What a new process takes over: nothing is pending, for nothing is in sight, and clusters not watched any more are forgotten."""
    return Alerts(groups={key: group for key, group in alerts.groups.items() if key[1] in watched})


def _leader_changed(
    alerts: Alerts, rule: Rule, grouping: Grouping, transition: Transition, component: ComponentId, at: Moment
) -> Alerts:
    if transition.split:  # told as what it is; the changes that showed it to be a split are not told any more
        return _end(alerts, (rule.alert, transition.cluster_id, component), grouping, None, at)
    first_election = transition.last_known_session_id is None
    if first_election or transition.same_leader or transition.after_session_id is None:
        return alerts
    alert = Alert(
        component,
        at,
        _host_port(transition.last_known_address),
        _host_port(transition.after_address),
        transition.vacant_seconds,
    )
    return _add(alerts, (rule.alert, transition.cluster_id), alert, grouping, at)


def _vacant(
    alerts: Alerts, rule: Rule, grouping: Grouping, transition: Transition, component: ComponentId, at: Moment
) -> Alerts:
    key = (rule.alert, transition.cluster_id, component)
    if transition.kind == Kind.OBSCURED:  # what we cannot see neither begins nor ends
        return _drop_pending(alerts, key)
    if transition.kind == Kind.RETIRED or transition.after_session_id is not None:
        return _end(_drop_pending(alerts, key), key, grouping, _host_port(transition.after_address), at)
    if _is_firing(alerts, key[:2], component):
        return alerts
    pending = Pending(at.steady + rule.hold_for, Alert(component, at, _host_port(transition.last_known_address)))
    return replace(alerts, pending={**alerts.pending, key: pending})


def _split(
    alerts: Alerts, rule: Rule, grouping: Grouping, transition: Transition, component: ComponentId, at: Moment
) -> Alerts:
    key = (rule.alert, transition.cluster_id)
    if not transition.split or transition.after_session_id is None or _is_firing(alerts, key, component):
        return alerts
    alert = Alert(component, at, _host_port(transition.last_known_address), _host_port(transition.after_address))
    return _add(alerts, key, alert, grouping, at)


def _end_splits(
    alerts: Alerts, rule: Rule, grouping: Grouping, contested: Container[tuple[str, ComponentId]], now: Moment
) -> Alerts:
    for key, group in alerts.groups.items():
        if key[0] == rule.alert:
            for alert in group.alerts:
                if alert.ended is None and (key[1], alert.component) not in contested:
                    alerts = _end(alerts, (*key, alert.component), grouping, alert.after, now)
    return alerts


def _is_firing(alerts: Alerts, key: Key, component: ComponentId) -> bool:
    group = alerts.groups.get(key, Group())
    return any(alert.component == component and alert.ended is None for alert in group.alerts)


def _add(alerts: Alerts, key: Key, alert: Alert, grouping: Grouping, now: Moment) -> Alerts:
    group = alerts.groups.get(key, Group())
    return _with_group(alerts, key, _rescheduled(replace(group, alerts=(*group.alerts, alert)), grouping, now))


def _end(alerts: Alerts, key: PendingKey, grouping: Grouping, after: str | None, now: Moment) -> Alerts:
    group = alerts.groups.get(key[:2])
    if group is None:
        return alerts
    kept = []
    for alert in group.alerts:
        if alert.component != key[2] or alert.ended is not None:
            kept.append(alert)
        elif alert.told:  # nobody is told the end of what nobody was told of
            lasted = round((now.steady - alert.began.steady) / SECOND, 6)
            kept.append(replace(alert, ended=now, after=after, vacant_seconds=lasted))
    if kept == list(group.alerts):
        return alerts
    rest = _rescheduled(replace(group, alerts=tuple(kept)), grouping, now) if kept or group.told_at else None
    return _with_group(alerts, key[:2], rest)


def _rescheduled(group: Group, grouping: Grouping, now: Moment) -> Group:
    """A group whose alerts have changed, with the time when it is told of next."""
    if not group.alerts:
        return replace(group, flush_at=None)
    if group.told_at is None:
        return group if group.flush_at is not None else replace(group, flush_at=now.steady + grouping.wait)
    due = group.told_at + (grouping.interval if _has_news(group) else grouping.repeat)
    return replace(group, flush_at=max(due, now.steady))


def _has_news(group: Group) -> bool:
    return any(not alert.told or alert.ended is not None for alert in group.alerts)


def _flush(group: Group, rule: Rule, cluster_id: str, grouping: Grouping, now: Moment) -> tuple[Group, Notice]:
    if group.told_at is None:
        reason = Reason.FIRST
    elif any(not alert.told for alert in group.alerts):
        reason = Reason.GREW
    elif all(alert.ended is not None for alert in group.alerts):
        reason = Reason.RESOLVED
    elif any(alert.ended is not None for alert in group.alerts):
        reason = Reason.SHRANK
    else:
        reason = Reason.REPEAT_INTERVAL_ELAPSED
    lasting = rule.on is not Trigger.LEADER_CHANGED
    rest = tuple(replace(alert, told=True) for alert in group.alerts if lasting and alert.ended is None)
    again = now.steady + grouping.repeat if rest else None
    return Group(rest, again, now.steady), Notice(rule, cluster_id, reason, group.alerts)


def _with_group(alerts: Alerts, key: Key, group: Group | None) -> Alerts:
    groups = {**alerts.groups}
    if group is None:
        groups.pop(key, None)
    else:
        groups[key] = group
    return replace(alerts, groups=groups)


def _drop_pending(alerts: Alerts, key: PendingKey) -> Alerts:
    if key not in alerts.pending:
        return alerts
    return replace(alerts, pending={other: pending for other, pending in alerts.pending.items() if other != key})


def _host_port(address: str | None) -> str | None:
    return host_port(address) if address is not None else None
