"""From alerts to notifications: alerts are grouped, and a group is notified once. Alertmanager's model.

An alert belongs to a group of each route that it matches. A group is notified `group_wait` after its first alert; after a change, not
sooner than `group_interval` after its last notification, unless it gets worse (see `pace`); and again after `repeat_interval` while an
alert in it fires. A muted or inhibited alert stays in its group: it is notified when the suppression ends, if it still fires then; else it
is recorded as suppressed. So does a silenced alert, which is recorded when the silence begins to hide it.

Alerts about one observer have groups of their own, by observer: a group's fingerprint is either the same for every observer, or another for
each of them.
"""

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Alert, Alerts, Group, Member
from sidecar.core.alerting.pace import rescheduled
from sidecar.core.moment import Moment
from sidecar.core.overlay import with_items
from sidecar.core.policy.labels import Labels
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import BY_ALL, Route, every, matching
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
            if flush_at is not None and is_outvoted(member.alert) and not is_outvoted(after):
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


def is_outvoted(alert: Alert) -> bool:
    """Whether it is about this observer alone: it cannot read the store, and others can. Of Flink each observer is believed."""
    return "observer" in alert.labels and alert.agreement is not None and alert.agreement.is_outvoted


def is_observable(alert: Alert, blind: Collection[str]) -> bool:
    """Whether it is known that the alert still fires. `blind`: the clusters that cannot be read."""
    return alert.cluster_id not in blind or "observer" in alert.labels
