"""What another configuration drops from an open incident: the services that show it are notified, or it is recorded that none can be.

Groups know where they are shown, because the configuration before is not known after a restart. Messages hold names and times alone: the
rule may be gone, and a group may come from a handover, which others can write.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sidecar.core.alerting.alerts import MOST_OWED, Alert, Group, Member, Notice, Reason
from sidecar.core.alerting.compose import MOST_ALERTS, bounded
from sidecar.core.alerting.ledger_document import DROPPED
from sidecar.core.alerting.new_deliveries import delivery_of
from sidecar.core.alerting.outbox import Delivery, Settled
from sidecar.core.alerting.title import WORST_FIRST
from sidecar.core.message import Content, MessageAlert
from sidecar.core.moment import Moment, timestamp
from sidecar.core.policy.labels import Labels
from sidecar.core.policy.policy import Policy, Severity
from sidecar.core.policy.routing import Route
from sidecar.core.records import record_id
from sidecar.core.sanitize import clean


def of_change(
    policy: Policy, before: Mapping[str, Group], after: Mapping[str, Group], now: Moment
) -> tuple[list[Delivery], list[Settled]]:
    """The messages to the destinations that show an incident of `before`, of which `after` has less; and the incidents that `policy` has
    no destination for any more.
    """
    destinations = policy.incident_destinations()
    deliveries: list[Delivery] = []
    lost: list[Settled] = []
    for fingerprint, group in before.items():
        notified = {key: member.alert for key, member in group.members.items() if member.notified}
        members = after[fingerprint].members if fingerprint in after else {}
        kept = {key for key, member in members.items() if member.notified}
        dropped = [alert for key, alert in notified.items() if key not in kept]
        for name in group.opened_at if notified else ():
            if name not in destinations:
                by_hand = f"this configuration can close no incident there: close {group.incident} by hand"
                unsent = _delivery(policy, fingerprint, group, [*notified.values()], name, now)
                lost.append(Settled(unsent, "gave_up", by_hand))
            elif dropped:
                sent = _delivery(policy, fingerprint, group, dropped, name, now)
                deliveries.append(replace(sent, in_order=True, goes_on=bool(kept)))
    return deliveries, lost


def _delivery(
    policy: Policy, fingerprint: str, group: Group, alerts: Sequence[Alert], destination: str, now: Moment
) -> Delivery:
    """That `alerts`, which this destination was notified of, are not notified in the group any more."""
    receiver = destination.rpartition("#")[0]
    labels = [_labels(policy, alert) for alert in alerts]
    in_common = {name: text for name, text in group.labels.items() if all(own.get(name) == text for own in labels)}
    notice = Notice(
        *(fingerprint, Route(receiver, group.route), Reason.CONFIGURATION_CHANGED, tuple(alerts)),
        labels=in_common,
        thread=group.thread,
        incident=group.incident,
    )
    delivery = delivery_of(policy, notice, _content(policy, alerts, labels, now), now)
    return replace(
        delivery,
        id=record_id(delivery.id, destination),
        destination=destination,
        parts=tuple(replace(part, ended=part.ended or DROPPED) for part in delivery.parts),
        owed=tuple(Member(alert, notified=True) for alert in alerts[:MOST_OWED]),
    )


def _content(policy: Policy, alerts: Sequence[Alert], labels: Sequence[Labels], now: Moment) -> Content:
    rules = ", ".join(sorted({alert.rule for alert in alerts}))
    clusters = ", ".join(sorted({clean(alert.cluster_id) for alert in alerts}))
    lines = [*_lines(policy, alerts)]
    return Content(
        f"[CONFIGURATION CHANGED] {clusters}: {rules} is no longer notified here",
        "\n".join(bounded(["This is no all-clear: the configuration has changed.", *lines])),
        min((Severity(own["severity"]) for own in labels), key=WORST_FIRST.index),
        (("alert", f"{rules} ({Reason.CONFIGURATION_CHANGED})"), ("cluster", clusters), ("observer", policy.observer)),
        policy.link and f"{policy.link}/",
        alerts=tuple(
            MessageAlert(alert.id, dict(own), line, alert.began.wall, alert.ended.wall if alert.ended else now.wall)
            for alert, own, line in zip(alerts[:MOST_ALERTS], labels, lines, strict=False)
        ),
    )


def _lines(policy: Policy, alerts: Collection[Alert]) -> Iterator[str]:
    rules = {rule.alert for rule in policy.rules}
    for alert in alerts:
        why = "it is routed elsewhere"
        if not policy.watches(alert.cluster_id):
            why = "its cluster is not watched any more"
        elif alert.rule not in rules:
            why = "its rule was removed"
        about = f" of {clean(alert.component)}" if alert.component else ""
        yield f"{alert.rule}{about}, since {timestamp(alert.began.wall)}: {why}"


def _labels(policy: Policy, alert: Alert) -> Labels:
    """Those that tell alerts apart, of names alone."""
    severity = alert.labels.get("severity", "")
    component = {"component": alert.component.component.value} if alert.component else {}
    job = {"job_id": clean(alert.component.job_id)} if alert.component and alert.component.job_id else {}
    return {
        **policy.external_labels,
        "alert": alert.rule,
        "severity": severity if severity in WORST_FIRST else Severity.WARNING,
        "cluster_id": clean(alert.cluster_id),
        **component,
        **job,
        **({"observer": policy.observer} if "observer" in alert.labels else {}),
    }
