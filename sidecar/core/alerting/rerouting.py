"""The alerts under another policy: in the groups of the routes that they match now."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert, Alerts, Group, Pending, PendingKey
from sidecar.core.alerting.grouping import fingerprint_of, group_of, with_alert
from sidecar.core.alerting.new_alert import labels_of, with_severity
from sidecar.core.alerting.pace import brought_forward, rescheduled
from sidecar.core.moment import Moment
from sidecar.core.policy.labels import CHECK, PLANNED
from sidecar.core.policy.policy import Policy, Rule
from sidecar.core.policy.routing import Route, every, matching
from sidecar.core.quarantine import Quarantine, Quarantined

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
    return Alerts(_relabelled_pending(alerts, policy, rules), groups, failovers)


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


def _relabelled_pending(alerts: Alerts, policy: Policy, rules: Rules) -> dict[PendingKey, Pending]:
    return {
        key: replace(pending, alert=_relabelled(pending.alert, policy, rules))
        for key, pending in alerts.pending.items()
        if key[0] in rules and policy.watches(key[1])
    }


def _relabelled(alert: Alert, policy: Policy, rules: Rules) -> Alert:
    ours = "observer" in alert.labels
    labels = with_severity(labels_of(policy, rules[alert.rule], alert.cluster_id, alert.component, ours=ours), alert)
    kept = {name: alert.labels[name] for name in (PLANNED, CHECK) if name in alert.labels}
    return replace(alert, labels={**labels, **kept})
