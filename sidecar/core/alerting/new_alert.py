"""A new alert of a rule: its id, its labels, and addresses as messages have them."""

from typing import Any, Final

from sidecar.core.alerting.alerts import Alert
from sidecar.core.flink.leadership import ComponentId, host_port
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Rule, Severity, Trigger
from sidecar.core.records import record_id

ABOUT_OBSERVER: Final = frozenset({Trigger.BLIND, Trigger.UNOBSERVED})
"""Triggers about this observer, not about Flink."""


def new_alert(
    policy: Policy, rule: Rule, name: str, component: ComponentId | None, began: Moment, *parts: object, **facts: Any
) -> Alert:
    """An alert whose id is derived from `parts`; `facts` are further fields of `Alert`."""
    return Alert(
        id=record_id("alert", rule.alert, name, component or "", *parts),
        rule=rule.alert,
        cluster_id=name,
        labels=labels_of(policy, rule, name, component, ours=rule.on in ABOUT_OBSERVER),
        began=began,
        component=component,
        **facts,
    )


def labels_of(
    policy: Policy, rule: Rule, cluster_id: str, component: ComponentId | None, *, ours: bool
) -> dict[str, str]:
    """The labels of an alert. `ours`: about this observer, not about Flink."""
    own = {
        "alert": rule.alert,
        "severity": rule.severity.value,
        "cluster_id": cluster_id,
        "store": policy.store_of(cluster_id).value,
    }
    if component:
        own["component"] = component.component.value
        if component.job_id:
            own["job_id"] = component.job_id
    if ours:
        own["observer"] = policy.observer
    return {**policy.external_labels, **own}


def with_severity(labels: dict[str, str], alert: Alert) -> dict[str, str]:
    """The labels with the severity that the alert has by what is known of it."""
    if alert.jobs_lost:
        return {**labels, "severity": Severity.CRITICAL.value}
    if alert.vacancy_notified and labels["severity"] == Severity.WARNING:
        return {**labels, "severity": Severity.INFO.value}
    return labels


def place_of(address: str | None) -> str | None:
    """Host and port of an address."""
    return host_port(address) if address is not None else None
