"""New deliveries: of what the rules want notified, heartbeats, and what fires once more."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import asdict, replace

from sidecar.core.alerting.alerts import MOST_OWED, Alert, Alerts, Notice, Reason
from sidecar.core.alerting.compose import compose
from sidecar.core.cluster.state import ClusterState
from sidecar.core.cluster.status import Status
from sidecar.core.counted import counted
from sidecar.core.delivery import feed
from sidecar.core.delivery.ledger_document import MOST_ALERTS
from sidecar.core.delivery.outbox import Delivery, Part
from sidecar.core.message import Content, FeedAlert
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Destination, Heartbeat, Policy, Severity
from sidecar.core.records import record_id

EVENT_OPEN: Final = 300 * SECOND
"""For how long an incident stays open of which nothing goes on, so that people are notified of it."""


def of_notice(policy: Policy, clusters: Mapping[str, ClusterState], notice: Notice, now: Moment) -> Iterator[Delivery]:
    """One delivery for each destination of the notice's receiver; and one that closes the incident, if nothing of it goes on."""
    delivery = delivery_of(policy, notice, compose(notice, policy, clusters, now), now)
    is_over = not delivery.goes_on and notice.reason is not Reason.RESOLVED
    for destination in policy.receivers.get(notice.route.receiver, ()):
        is_repeated = notice.settles and delivery.status == Status.DEGRADED  # people have read that before
        if notice.is_for(destination) and (destination.keeps_incidents or not is_repeated):
            to_it = replace(
                delivery,
                id=record_id(delivery.id, destination.name),
                destination=destination.name,
                receiver=destination.receiver,
                in_order=destination.in_order,
                send_resolved=destination.send_resolved,
            )
            if destination.feed:
                fed = feed.of_notice(policy, clusters, notice, destination.feed)
                to_it = replace(to_it, parts=(), alerts=(), feed=fed)
            yield closing(to_it, after=0) if notice.closes else to_it
            if is_over and destination.keeps_incidents and destination.send_resolved:
                over = compose(replace(notice, reason=Reason.RESOLVED, news=0), policy, clusters, now)
                yield closing(replace(to_it, title=over.title, body=over.body, facts=over.facts))


def delivery_of(policy: Policy, notice: Notice, content: Content, now: Moment) -> Delivery:
    """The delivery of a notice, without a destination."""
    return Delivery(
        **asdict(content),
        id=record_id("delivery", policy.observer, notice.fingerprint, notice.reason, now.wall, now.steady),
        destination="",
        receiver=notice.route.receiver,
        cluster_id=min(alert.cluster_id for alert in notice.alerts),
        alert=", ".join(dict.fromkeys(alert.rule for alert in notice.alerts)),
        fingerprint=notice.fingerprint,
        reason=notice.reason,
        parts=_parts(notice),
        owed=notice.owed(MOST_OWED),
        incident=notice.incident,
        thread=notice.thread,
        goes_on=notice.goes_on or notice.awaits_status,
        group_labels=notice.labels,
        alerts_left_out=len(notice.alerts) - len(content.alerts),
        agreement=next((alert.agreement for alert in notice.alerts if alert.agreement), None),
        repeat_interval=notice.route.repeat_interval,
        queued_at=now,
        next_at=now.steady,
    )


def closing(delivery: Delivery, after: int = EVENT_OPEN) -> Delivery:
    """Closes the incident that `delivery` opens, after a while, though all of its alerts are events that are over."""
    return replace(
        delivery,
        id=record_id("closing", delivery.id),
        reason=Reason.RESOLVED,
        parts=tuple(map(_closing, delivery.parts)),
        owed=tuple(replace(member, notified=True, closes=True) for member in delivery.owed),
        is_closing=True,
        next_at=delivery.next_at + after,
    )


def _parts(notice: Notice) -> tuple[Part, ...]:
    """The alerts that are looked up in the ledger: at most MOST_ALERTS, of which every observer chooses the same."""
    if all("observer" in alert.labels for alert in notice.alerts):
        return ()
    alerts, over = (sorted(some, key=lambda alert: alert.id) for some in (notice.alerts, notice.closing))
    return tuple([*map(_part, alerts), *map(_closing, map(_part, over))][:MOST_ALERTS])


def _part(alert: Alert) -> Part:
    ended = alert.ended.wall if alert.ended else 0
    return Part(alert.id, alert.began.wall, ended, alert.is_event, alert.subjects, alert.certain)


def _closing(part: Part) -> Part:
    """That its incident has ended, which is not that it is over."""
    return replace(part, alert_id=record_id("closing", part.alert_id), subjects=())


def heartbeats(
    policy: Policy, alerts: Alerts, clusters: Collection[str], lost: bool, now: Moment
) -> tuple[Alerts, list[Delivery]]:
    """Heartbeats due now. None while blind, so that the receiver's dead man's switch fires; a missed one is not sent later."""
    last = alerts.beats
    due = [beat for beat in policy.heartbeats if now.steady - last.get(beat.destination.name, 0) >= beat.interval]
    if not due or lost:
        return alerts, []
    beats = {**last, **{beat.destination.name: now.steady for beat in due}}
    return replace(alerts, beats=beats), [_heartbeat(policy, beat, clusters, now) for beat in due]


def _heartbeat(policy: Policy, beat: Heartbeat, clusters: Collection[str], now: Moment) -> Delivery:
    watched = counted(len(clusters), "cluster") if policy.finds else ", ".join(policy.stores)
    return Delivery(
        id=record_id("heartbeat", policy.observer, beat.destination.name, now.wall, now.steady),
        destination=beat.destination.name,
        receiver=beat.destination.receiver,
        cluster_id=next(iter(clusters), ""),
        alert="Heartbeat",
        fingerprint=record_id("heartbeat", policy.observer, beat.destination.name),
        reason=Reason.HEARTBEAT,
        severity=Severity.INFO,
        title=f"[HEARTBEAT] {policy.observer} watches {watched}",
        body="This sidecar is running and can read the store.",
        queued_at=now,
        next_at=now.steady,
    )


def resends(policy: Policy, alerts: Alerts, now: Moment) -> tuple[Alerts, list[Delivery]]:
    """Resends due now, without their alerts: see `complete`. A feed of which nothing fires gets none."""
    if not alerts.groups:
        return alerts, []
    due = [to for to in policy.feeds() if now.steady - alerts.beats.get(to.name, 0) >= feed.RESEND_INTERVAL]
    if not due:
        return alerts, []
    firing = {to: [alert for _, alert in feed.firing(policy, alerts, to.receiver)] for to in due}
    beats = {**alerts.beats, **{to.name: now.steady for to in due}}
    return replace(alerts, beats=beats), [_resend(policy, to, of_it, now) for to, of_it in firing.items() if of_it]


def _resend(policy: Policy, destination: Destination, firing: Sequence[Alert], now: Moment) -> Delivery:
    return Delivery(
        id=record_id("resend", policy.observer, destination.name, now.wall, now.steady),
        destination=destination.name,
        receiver=destination.receiver,
        cluster_id=min(alert.cluster_id for alert in firing),
        alert=", ".join(sorted({alert.rule for alert in firing})),
        fingerprint=record_id("resend", policy.observer, destination.name),
        reason=Reason.RESEND,
        severity=Severity.INFO,
        title="what fires, sent again",
        body="",
        queued_at=now,
        next_at=now.steady,
    )


def complete(
    policy: Policy, alerts: Alerts, clusters: Mapping[str, ClusterState], claimed: Iterable[Delivery]
) -> Iterator[Delivery]:
    """The deliveries as they are sent: resends with what fires at that moment. None of it is in the journal."""
    feeds = {destination.name: destination for destination in policy.feeds()}
    firing: dict[str, tuple[FeedAlert, ...]] = {}
    for delivery in claimed:
        destination = feeds.get(delivery.destination) if delivery.reason is Reason.RESEND else None
        if destination is None or destination.feed is None:
            yield delivery
            continue
        receiver = destination.receiver
        if receiver not in firing:
            firing[receiver] = feed.again(policy, clusters, alerts, receiver, destination.feed)
        yield replace(delivery, feed=firing[receiver])
