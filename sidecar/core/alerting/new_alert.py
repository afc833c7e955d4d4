"""A new alert of a rule: its id, its labels, and addresses as messages have them."""

from typing import Any, Final

from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.grouping import labels_of
from sidecar.core.flink.leadership import ComponentId, host_port
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Rule, Trigger
from sidecar.core.records import record_id

ABOUT_OBSERVER: Final = frozenset({Trigger.BLIND, Trigger.UNOBSERVED})
"""Triggers about this observer, not about Flink."""


def new_alert(
    policy: Policy, rule: Rule, name: str, component: ComponentId | None, began: Moment, *what: object, **facts: Any
) -> Alert:
    """An alert whose id is derived from `what`; `facts` are further fields of `Alert`."""
    return Alert(
        id=record_id("alert", rule.alert, name, component or "", *what),
        rule=rule.alert,
        cluster_id=name,
        labels=labels_of(policy, rule, name, component, ours=rule.on in ABOUT_OBSERVER),
        began=began,
        component=component,
        **facts,
    )


def place_of(address: str | None) -> str | None:
    """Host and port of an address."""
    return host_port(address) if address is not None else None
