"""Alerts about the checks of high availability: one for each check that found a risk."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.new_alert import new_alert
from sidecar.core.cluster.state import ClusterState
from sidecar.core.ha.finding import Verdict
from sidecar.core.policy.labels import CHECK
from sidecar.core.policy.policy import Policy, Rule


def new_risks(
    rule: Rule, policy: Policy, name: str, cluster: ClusterState, firing: Collection[Alert]
) -> Iterator[Alert]:
    """An alert for each check that is a RISK and has none. `firing`: the alerts of this rule and cluster that are not over."""
    alerted = {alert.about for alert in firing}
    for check_id, check in (cluster.readiness.checks if cluster.readiness else {}).items():
        if check.result.verdict is Verdict.RISK and check_id not in alerted:
            # The id does not say since when: observers check at different times.
            alert = new_alert(policy, rule, name, None, check.risk_since or check.since, check_id, about=check_id)
            detail = f"{check.result.text}: {check.result.advice}"
            yield replace(alert, labels={**alert.labels, CHECK: check_id}, detail=detail)


def is_over(alert: Alert, cluster: ClusterState) -> bool:
    """Whether the check passed, or does not apply any more. What cannot be read any more may still be a risk."""
    if cluster.readiness is None:
        return False  # not checked since the sidecar started
    check = cluster.readiness.checks.get(alert.about or "")
    return check is None or check.result.verdict is Verdict.PASS
