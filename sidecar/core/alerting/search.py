"""The rules on `blind` are also about the search for clusters: those that are left out cannot have an alert of their own."""

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Alerts
from sidecar.core.alerting.new_alert import new_alert
from sidecar.core.finder import Finder
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Trigger


def evaluate(alerts: Alerts, policy: Policy, finder: Finder | None, now: Moment) -> Alerts:
    """Fire and resolve the alert that not all clusters are watched. In place of a cluster's id it has the place of the search."""
    if finder is None or not finder.connected:
        return alerts  # nothing is known
    problem = finder.beyond_bounds
    for rule in policy.rules:
        if rule.on is not Trigger.BLIND:
            continue
        firing = {
            member.alert.id
            for group in alerts.groups.values()
            for member in group.members.values()
            if (member.alert.rule, member.alert.cluster_id) == (rule.alert, finder.place) and not member.alert.ended
        }
        if problem and finder.since and not firing and now.steady - finder.since.steady >= rule.hold_for:
            since, parts = finder.since, (policy.observer, finder.since.wall)
            alert = new_alert(policy, rule, finder.place, None, since, *parts, missing=problem)
            alerts = grouping.fire(alerts, policy, alert, now)
        elif firing and not problem:
            alerts = grouping.resolve(alerts, policy, firing, now, lambda alert: alert)
    return alerts
