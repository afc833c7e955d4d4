"""What is recorded of notifications."""

from typing import Any

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Suppressed
from sidecar.core.cluster.records.record_writer import envelope
from sidecar.core.delivery.outbox import Settled
from sidecar.core.moment import Moment, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Notification, record_id


def suppression(policy: Policy, suppressed: Suppressed, at: Moment) -> Notification:
    """An alert that was resolved before it could be notified, or that is silenced."""
    alert, silence = suppressed.alert, suppressed.silence
    return Notification(
        id=record_id(
            "suppressed", policy.observer, suppressed.fingerprint, alert.id, alert.began.wall, *filter(None, [silence])
        ),
        alert=alert.rule,
        fingerprint=suppressed.fingerprint,
        receiver=suppressed.route.receiver,
        destination="",
        reason=suppressed.reason.value,
        outcome="suppressed",
        attempt=0,
        possible_duplicate=False,
        detail=None,
        delivery_id="",
        queued_at=timestamp(at.wall),
        episode_id=alert.episode_id,
        silence_id=silence,
        component=alert.component.component.value if alert.component else None,
        job_id=alert.component.job_id if alert.component else None,
        **_observers(alert.agreement),
        **envelope(policy, alert.cluster_id, at),
    )


def outcome(policy: Policy, settled: Settled, at: Moment) -> Notification:
    """A delivery that was queued, attempted or given up."""
    delivery = settled.delivery
    return Notification(
        id=record_id("notification", delivery.id, delivery.attempt, settled.outcome, at.wall, at.steady),
        alert=delivery.alert,
        fingerprint=delivery.fingerprint,
        receiver=delivery.receiver,
        destination=delivery.destination,
        reason=delivery.reason.value,
        outcome=str(settled.outcome),
        attempt=delivery.attempt,
        possible_duplicate=delivery.possible_duplicate,
        detail=settled.detail,
        delivery_id=delivery.id,
        queued_at=timestamp(delivery.queued_at.wall),
        episode_id=delivery.episode_id,
        service=policy.services().get(delivery.destination) or None,
        **_observers(delivery.agreement),
        **envelope(policy, delivery.cluster_id, at),
    )


def _observers(agreement: Agreement | None) -> dict[str, Any]:
    sharing, connected, known = (agreement.sharing, agreement.connected, agreement.known) if agreement else (None,) * 3
    return {"observers_sharing": sharing, "observers_connected": connected, "observers_known": known}
