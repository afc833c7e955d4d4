"""From alerts to notifications: alerts are grouped, and a group is notified once. Alertmanager's model.

An alert belongs to a group of each route that it matches, also under another policy. A group is notified `group_wait` after its first
alert; after a change, not sooner than `group_interval` after its last notification, unless it has got worse: then it does not wait, but
once in that time; and again after `repeat_interval` while an alert in it fires. A muted or inhibited alert stays in its group: it is
notified when the suppression ends, if it still fires then; else it is recorded as suppressed. So does a silenced alert, which is recorded
when the silence begins to hide it.

Alerts about one observer have groups of their own, by observer: a group's fingerprint is either the same for every observer, or another for
each of them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import NO_RANK, Alert, Alerts, Group, Member, labels_of, with_severity
from sidecar.core.moment import SECOND, Moment
from sidecar.core.overlay import with_items
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import BY_ALL, CHECK, PLANNED, Labels, Route, every, matching
from sidecar.core.quarantine import Quarantine, Quarantined
from sidecar.core.records import record_id


def fire(alerts: Alerts, policy: Policy, alert: Alert, now: Moment) -> Alerts:
    """Add an alert to the groups of all routes that it matches."""
    groups = alerts.groups
    for route in matching(policy.route, alert.labels):
        fingerprint, group = group_of(groups, route, alert)
        group = with_alert(group, alert)
        groups = with_items(groups, {fingerprint: rescheduled(group, route, now, group.members[alert.id])})
    return replace(alerts, groups=groups)


def resolve(
    alerts: Alerts, policy: Policy, ids: Collection[str], now: Moment, completed: Callable[[Alert], Alert]
) -> Alerts:
    """Resolve these alerts. A condition that was neither notified nor suppressed leaves its group silently."""
    routes = {route.key: route for route in every(policy.route)}
    changed = {}
    for fingerprint, group in alerts.groups.items():
        members = {}
        for key, member in group.members.items():
            if member.alert.ended or member.alert.id not in ids:
                members[key] = member
            elif member.notified or member.suppressed_by or member.alert.is_event:
                members[key] = replace(member, alert=replace(completed(member.alert), ended=now))
        if members != group.members:
            changed[fingerprint] = rescheduled(replace(group, members=members), routes[group.route], now)
    return replace(alerts, groups={**alerts.groups, **changed}) if changed else alerts


def updated(alerts: Alerts, alert: Alert, count: int | None, agreement: Agreement | None, now: Moment) -> Alerts:
    """The alerts after more was counted for one of them, or other observers were asked about it, which by itself causes no notification.
    Its groups are due at once if it is not outvoted any more.
    """
    if (count, agreement) == (alert.count, alert.agreement):
        return alerts
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        if member := group.members.get(alert.id):
            latest = now if (count or 0) > (member.alert.count or 0) else member.alert.latest
            after = replace(member.alert, count=count, latest=latest, agreement=agreement)
            flush_at = group.flush_at
            if flush_at is not None and member.alert.is_outvoted and not after.is_outvoted:
                flush_at = min(flush_at, now.steady)
            groups[fingerprint] = replace(with_alert(group, after), flush_at=flush_at)
    return replace(alerts, groups=groups)


def withdraw(alerts: Alerts, turned_out_wrong: Callable[[Alert], bool]) -> Alerts:
    """Remove alerts that turned out to be something else, unless they were notified."""
    groups = dict(alerts.groups)
    for fingerprint, group in alerts.groups.items():
        kept = {key: m for key, m in group.members.items() if m.notified or not turned_out_wrong(m.alert)}
        if len(kept) < len(group.members):
            groups[fingerprint] = replace(group, members=kept, flush_at=group.flush_at if kept else None)
    return replace(alerts, groups=groups)


def due_after_silence(alerts: Alerts, silence: str, now: Moment) -> Alerts:
    """The alerts after a silence ended: the groups in which it hid alerts are due now."""
    due = {
        fingerprint: replace(group, flush_at=min(now.steady, group.flush_at or now.steady))
        for fingerprint, group in alerts.groups.items()
        if any(member.silence == silence for member in group.members.values())
    }
    return replace(alerts, groups={**alerts.groups, **due}) if due else alerts


def with_unchanged_groups(before: Mapping[str, Group], alerts: Alerts) -> Alerts:
    """The alerts with the previous object of each group that is equal: an event that was suppressed at once leaves no row to write."""
    if alerts.groups is before:
        return alerts
    same = {key: old for key, old in before.items() if (new := alerts.groups.get(key)) is not old and new == old}
    return replace(alerts, groups={**alerts.groups, **same}) if same else alerts


def group_of(groups: Mapping[str, Group], route: Route, alert: Alert) -> tuple[str, Group]:
    """The group of this route that the alert belongs to, and its fingerprint."""
    labels = dict(route.group_labels(alert.labels))
    if "observer" in alert.labels:
        labels["observer"] = alert.labels["observer"]
    if alert.left_behind and BY_ALL not in route.group_by:
        labels.pop("cluster_id", None)
    fingerprint = fingerprint_of(route, labels)
    return fingerprint, groups.get(fingerprint) or Group(route.key, labels)


def with_alert(group: Group, alert: Alert, before: Member | None = None) -> Group:
    """The group with this alert. `before`: the member whose history it keeps (by default: the one in this group)."""
    before = before or group.members.get(alert.id)
    if before and before.closes and alert.ended is None:
        before = None  # it was over, and its group has only kept it for the end of its incident
    member = replace(before, alert=alert) if before else Member(alert)
    return replace(group, members=with_items(group.members, {alert.id: member}))


def fingerprint_of(route: Route, labels: Labels) -> str:
    """The identity of the group of this route with these labels."""
    return record_id("group", route.key, route.receiver, *sorted(labels.items()))


def is_observable(alert: Alert, blind: Collection[str]) -> bool:
    """Whether it is known that the alert still fires. `blind`: the clusters that cannot be read."""
    return alert.cluster_id not in blind or "observer" in alert.labels


_RANKS: Final = {severity.value: rank for rank, severity in enumerate(Severity)}
"""By severity, the least severe first."""


PATIENCE: Final = 2 * SECOND
"""How long a group that is due waits for the cause of a failover."""


def awaits_cause(group: Group, decided_at: Mapping[str, int], now: Moment) -> bool:
    """Whether a group that is due waits for a failover that will soon be closed: its cause is decided, and its jobs have leaders."""
    if not decided_at or group.flush_at is None or now.steady >= group.flush_at + PATIENCE:
        return False
    new = (member.alert for member in group.members.values() if not member.notified or member.alert.ended)
    times = (decided_at.get(alert.episode_id) for alert in new if alert.episode_id)
    return any(at is not None and at <= group.flush_at + PATIENCE for at in times)


def rescheduled(group: Group, route: Route, now: Moment, joined: Member | None = None) -> Group:
    """A group whose alerts have changed, with the time of its next flush. `joined`: the only one that has changed. Thousands may join one
    after another, so the others are looked at again only if it may make the group worse.
    """
    if (joined is None or joined.closes) and all(member.closes for member in group.members.values()):
        return replace(group, flush_at=None)  # nothing is left of it, or it waits for its cluster
    due = now.steady + route.group_wait
    if group.notified_at is not None:
        if not (joined and _has_news([joined])) and not _has_news(group.members.values()):
            return replace(group, flush_at=max(group.notified_at + route.repeat_interval, now.steady))
        if group.flush_at is not None and group.flush_at <= due:
            return group
        if not _is_worse(group, route, now, joined):
            due = max(due, group.notified_at + route.group_interval)
    return replace(group, flush_at=due if group.flush_at is None else min(group.flush_at, due))


def brought_forward(group: Group, route: Route, now: Moment) -> Group:
    """A waiting group with its next flush under another policy: not later than the new intervals of `route` allow."""
    latest = rescheduled(replace(group, flush_at=None), route, now).flush_at
    if group.flush_at is None or latest is None:
        return group
    return replace(group, flush_at=min(group.flush_at, max(latest, now.steady + route.group_interval)))


def _has_news(members: Iterable[Member]) -> bool:
    return any(not member.notified or (member.alert.ended and not member.closes) for member in members)


def paced(group: Group, route: Route, lasting: Sequence[Alert], *, again: bool, now: Moment) -> Group:
    """The group that is notified of `lasting`, and perhaps of resolved alerts, sooner than usual if it got worse."""
    worst = max(map(_rank, lasting), default=NO_RANK)
    is_early = group.notified_at is not None and now.steady < group.notified_at + route.group_interval and not again
    return replace(group, worst=worst, hastened_at=now.steady if is_early else group.hastened_at)


def _is_worse(group: Group, route: Route, now: Moment, joined: Member | None) -> bool:
    """Whether an alert fires that is worse than what the group was notified of, or one joins of a rule of which the incident has no other
    alert: what else is known is not kept back. Once in an interval, and again only for what is worse and of another rule.
    """
    was_hastened = group.hastened_at is not None and now.steady < group.hastened_at + route.group_interval
    if joined and _is_of_another_rule(group, joined):
        return not was_hastened or _rank(joined.alert) > group.worst
    if was_hastened:
        return False
    if joined and not joined.notified and _rank(joined.alert) <= group.worst:
        return False  # those that joined before it did not make the group worse either: else it would be due
    ranks = [_rank(member.alert) for member in group.members.values() if member.notified and not member.alert.ended]
    worst = max([group.worst, *ranks])
    new = (member for member in group.members.values() if not member.notified and not member.suppressed_by)
    return any(_rank(member.alert) > worst for member in new if not member.alert.ended or member.alert.is_event)


_MOST_COMPARED: Final = 100
"""Alerts of a group. Thousands join one after another: where there are more, one of another rule waits as each does."""


def _is_of_another_rule(group: Group, new: Member) -> bool:
    """Whether an alert joins an incident that people were notified of, and the first one of its rule."""
    if new.notified or new.suppressed_by or len(group.members) > _MOST_COMPARED:
        return False
    others = [member for member in group.members.values() if member is not new]
    return any(member.notified for member in others) and all(member.alert.rule != new.alert.rule for member in others)


def _rank(alert: Alert) -> int:
    return _RANKS.get(alert.labels.get("severity", ""), NO_RANK)


Rules = Mapping[str, Rule]
"""By their names."""


def rerouted(alerts: Alerts, policy: Policy, now: Moment) -> Alerts:
    """The alerts under another policy. Alerts of removed rules are dropped.

    A group that still exists continues unchanged; in a new group no alert counts as notified.
    """
    rules = {rule.alert: rule for rule in policy.rules}
    groups = _without_members(alerts.groups, policy)
    for alert, waiting in _relabelled_alerts(alerts, policy, rules):
        routes = {group_of(alerts.groups, route, alert)[0]: route for route in matching(policy.route, alert.labels)}
        is_owed = not waiting.issubset(routes)
        for fingerprint, route in routes.items():
            before = alerts.groups.get(fingerprint)
            # A new group is not notified of a resolved alert, unless a group that no longer exists still had to be.
            if not alert.ended or is_owed or (before and alert.id in before.members):
                groups[fingerprint] = _group_after(groups, before, route, alert, policy, now)
    failovers = {name: counted for name, counted in alerts.failovers.items() if policy.watches(name)}
    pending = {
        key: replace(pending, alert=_relabelled(pending.alert, policy, rules))
        for key, pending in alerts.pending.items()
        if key[0] in rules and policy.watches(key[1])
    }
    return Alerts(pending, groups, failovers)


def continued(alerts: Alerts, policy: Policy, now: Moment) -> tuple[Alerts, Sequence[Quarantined]]:
    """The alerts `rerouted`, without groups that cannot be: what still holds in them fires anew."""
    try:
        return rerouted(alerts, policy, now), ()
    except Exception:  # noqa: BLE001  whatever it is, the other groups go on
        quarantine, groups = Quarantine(), {}
        for fingerprint, group in alerts.groups.items():
            with quarantine.guard("group", fingerprint) as guard:
                rerouted(replace(alerts, groups={fingerprint: group}), policy, now)
            if not guard.raised:
                groups[fingerprint] = group
        return rerouted(replace(alerts, groups=groups), policy, now), quarantine.left_out


def _without_members(groups: Mapping[str, Group], policy: Policy) -> dict[str, Group]:
    """The groups that have no members, and still exist."""
    routes = {route.key: route for route in every(policy.route)}
    return {
        fingerprint: group
        for fingerprint, group in groups.items()
        if not group.members
        and group.route in routes
        and fingerprint == fingerprint_of(routes[group.route], group.labels)
    }


def _group_after(
    groups: Mapping[str, Group], before: Group | None, route: Route, alert: Alert, policy: Policy, now: Moment
) -> Group:
    """The group that the alert is in now. `before`: the same one under the other policy."""
    fingerprint, group = group_of(groups, route, alert)
    if before and fingerprint not in groups:
        showing = policy.incident_destinations()
        opened_at = tuple(name for name in before.opened_at if name in showing)
        group = replace(before, route=group.route, labels=group.labels, members={}, opened_at=opened_at)
    member = before.members.get(alert.id) if before else None
    return (brought_forward if member else rescheduled)(with_alert(group, alert, member), route, now)


def _relabelled_alerts(alerts: Alerts, policy: Policy, rules: Rules) -> Iterator[tuple[Alert, set[str]]]:
    """The alerts that have a rule in `policy`, each with the fingerprints of the groups that have not been notified of it."""
    relabelled: dict[str, Alert] = {}
    waiting: dict[str, set[str]] = {}
    for fingerprint, group in alerts.groups.items():
        for key, member in group.members.items():
            if member.alert.rule in rules and policy.watches(member.alert.cluster_id):
                relabelled[key] = _relabelled(member.alert, policy, rules)
                waiting.setdefault(key, set()).update([] if member.notified else [fingerprint])
    for key, alert in relabelled.items():
        yield alert, waiting[key]


def _relabelled(alert: Alert, policy: Policy, rules: Rules) -> Alert:
    ours = "observer" in alert.labels
    labels = with_severity(labels_of(policy, rules[alert.rule], alert.cluster_id, alert.component, ours=ours), alert)
    kept = {name: alert.labels[name] for name in (PLANNED, CHECK) if name in alert.labels}
    return replace(alert, labels={**labels, **kept})
