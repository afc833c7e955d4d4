"""New deliveries: of what is due for notification, heartbeats, and what fires once more.

A feed gets single alerts: it is a destination that groups, repeats and deduplicates by itself, which is an Alertmanager. An alert there is
its labels: they are equal from every observer, and what differs is an annotation. It fires until a time that each sending moves on, so the
alerts of a sidecar that has died end by themselves.

What another configuration drops from an open incident is told to the services that show it, or it is recorded that none can be told.
Groups know where they are shown, because the configuration before is not known after a restart. These messages hold names and times alone:
the rule may be gone, and a group may come from a handover, which others can write.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import asdict, replace

from sidecar.core.alerting import flushing, ledger_document
from sidecar.core.alerting.alerts import MOST_OWED, Alert, Alerts, Group, Member, Notice, Reason, Suppressed
from sidecar.core.alerting.compose import MOST_ALERTS, bounded, compose
from sidecar.core.alerting.grouping import is_observable
from sidecar.core.alerting.outbox import Delivery, Part, Settled
from sidecar.core.alerting.subject import WORST_FIRST
from sidecar.core.alerting.suppression import Documents
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.status import Status, ends_incident
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.counted import counted
from sidecar.core.failover import failover_machine
from sidecar.core.message import Content, FeedAlert, MessageAlert
from sidecar.core.moment import SECOND, Moment, timestamp
from sidecar.core.policy.policy import Destination, Feed, Policy, Severity
from sidecar.core.policy.routing import Labels, Route, every
from sidecar.core.quarantine import Quarantine
from sidecar.core.records import record_id
from sidecar.core.sanitize import clean

RESEND_INTERVAL: Final = 60 * SECOND
FIRES_FOR: Final = 4 * RESEND_INTERVAL
"""How long a condition fires after it was sent, as Prometheus has it."""


def firing_in_feed(policy: Policy, alerts: Alerts, receiver: str) -> Iterator[tuple[Route, Alert]]:
    """What was sent to the receiver and still fires, muted and inhibited alerts too: only a resolve ends what was sent."""
    routes = {route.key: route for route in every(policy.route) if route.receiver == receiver}
    for group in alerts.groups.values():
        if route := routes.get(group.route):
            for member in group.members.values():
                if member.notified and not member.alert.ended:
                    yield route, member.alert


def resent_feed_alerts(
    policy: Policy, clusters: Mapping[str, ClusterState], alerts: Alerts, receiver: str, feed: Feed
) -> tuple[FeedAlert, ...]:
    blind = {name for name, cluster in clusters.items() if not cluster.leaders_in_sight}
    return _one_per_labels(
        replace(_feed_alert(policy, clusters, route, alert, feed), seen=is_observable(alert, blind))
        for route, alert in firing_in_feed(policy, alerts, receiver)
    )


def _feed_alert(
    policy: Policy, clusters: Mapping[str, ClusterState], route: Route, alert: Alert, feed: Feed
) -> FeedAlert:
    ended = 0 if alert.ended is None or alert.is_event else alert.ended.wall
    notice = Notice("", route, Reason.RESOLVED if ended else Reason.FIRST, (alert,))
    message = compose(notice, policy, {name: clusters[name] for name in (alert.cluster_id,) if name in clusters})
    facts = dict(message.facts)
    annotations = {
        "summary": message.summary,
        "description": message.body,
        "cause": facts.get("cause", ""),
        "recovery": facts.get("recovery", ""),
        "episode": message.episode_id or "",
        "link": message.link or "",
        "observer": policy.observer,
    }
    return FeedAlert(
        {"alertname" if name == "alert" else name: value for name, value in alert.labels.items() if value},
        {name: text for name, text in annotations.items() if text},
        alert.began.wall,
        ended,
        0 if ended else feed.event_duration if alert.is_event else FIRES_FOR,
        link=message.link,
    )


def _one_per_labels(alerts: Iterable[FeedAlert]) -> tuple[FeedAlert, ...]:
    """One alert for each set of labels: the latest that fires, else the latest that has ended."""
    latest = sorted(alerts, key=lambda alert: (alert.fires_for > 0, alert.began, alert.ended))
    return tuple({frozenset(alert.labels.items()): alert for alert in latest}.values())


EVENT_OPEN: Final = 300 * SECOND
"""For how long an incident stays open of which nothing goes on, so that people are notified of it."""


Due = tuple[Alerts, list[Delivery], list[Suppressed]]


def due(
    policy: Policy,
    alerts: Alerts,
    clusters: Mapping[str, ClusterState],
    blind: Collection[str],
    documents: Documents,
    statuses: Statuses,
    quarantine: Quarantine,
    now: Moment,
) -> Due:
    """The alerts after what is due was notified, its deliveries, and the alerts that were suppressed.

    Alerts that cannot be notified are forgotten, so that the rest of their group is: a condition that still holds fires anew.
    """

    decided_at = failover_machine.decided_at(clusters.values())
    stated = {name: cluster.stated for name, cluster in clusters.items() if cluster.stated} if alerts.groups else {}
    unsettled = {name for name, status in stated.items() if not ends_incident(status, now)}
    ending = failover_machine.planned_ends(clusters, now) - unsettled if alerts.groups else set()
    ending |= {name for name, status in stated.items() if status.is_passing}

    def deliver(part: Alerts) -> Due:
        after, notices, suppressed = flushing.flush(part, policy, blind, now, documents, decided_at, unsettled, ending)
        deliveries = (_notice_deliveries(policy, clusters, notice, statuses, now) for notice in notices)
        return after, [*chain.from_iterable(deliveries)], suppressed

    try:
        return deliver(alerts)
    except Exception:  # noqa: BLE001  whatever it is, only its own alerts are left out
        groups: dict[str, Group] = {}
        for fingerprint, group in alerts.groups.items():
            members = {}
            for key, member in group.members.items():
                with quarantine.guard("alert", member.alert.rule, "of cluster", member.alert.cluster_id) as guard:
                    deliver(replace(alerts, groups={fingerprint: replace(group, members={key: member})}))
                if not guard.raised:
                    members[key] = member
            rest = group if len(members) == len(group.members) else replace(group, members=members)
            with quarantine.guard("group", fingerprint) as guard:
                deliver(replace(alerts, groups={fingerprint: rest}))
            if not guard.raised:
                groups[fingerprint] = rest
        return deliver(replace(alerts, groups=groups))


def _notice_deliveries(
    policy: Policy, clusters: Mapping[str, ClusterState], notice: Notice, statuses: Statuses, now: Moment
) -> Iterator[Delivery]:
    """One delivery for each destination of the notice's receiver; and one that closes the incident, if nothing of it goes on."""
    delivery = delivery_of(policy, notice, compose(notice, policy, clusters, statuses), now)
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
            if feed := destination.feed:  # what still fires is in every resend
                fed = (_feed_alert(policy, clusters, notice.route, alert, feed) for alert in notice.changed)
                to_it = replace(to_it, parts=(), alerts=(), feed=_one_per_labels(fed))
            yield closing(to_it, after=0) if notice.closes else to_it
            if is_over and destination.keeps_incidents and destination.send_resolved:
                over = compose(replace(notice, reason=Reason.RESOLVED, news=0), policy, clusters, statuses)
                yield closing(replace(to_it, title=over.title, body=over.body, facts=over.facts))


def delivery_of(policy: Policy, notice: Notice, content: Content, now: Moment) -> Delivery:
    """The delivery of a notice, without a destination."""
    return Delivery(
        **asdict(content),
        id=record_id("delivery", policy.observer, notice.fingerprint, notice.reason, now.wall, now.steady),
        destination="",
        receiver=notice.route.receiver,
        cluster_id=min([alert.cluster_id for alert in notice.alerts]),
        alert=", ".join(dict.fromkeys([alert.rule for alert in notice.alerts])),
        fingerprint=notice.fingerprint,
        reason=notice.reason,
        parts=_parts(notice),
        owed=notice.owed(MOST_OWED),
        incident=notice.incident,
        thread=notice.thread,
        goes_on=notice.goes_on or notice.awaits_status,
        group_labels=notice.labels,
        alerts_left_out=len(notice.alerts) - len(content.alerts),
        agreement=next(iter([alert.agreement for alert in notice.alerts if alert.agreement]), None),
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
    """The alerts that are looked up in the ledger: at most so many, of which every observer chooses the same."""
    if not [alert for alert in notice.alerts if "observer" not in alert.labels]:
        return ()
    alerts, over = (sorted(some, key=lambda alert: alert.id) for some in (notice.alerts, notice.closing))
    return tuple([*map(_part, alerts), *map(_closing, map(_part, over))][: ledger_document.MOST_ALERTS])


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
    watched = counted(len(clusters), "cluster") if policy.finds else ", ".join(policy.stores)
    what = {
        "cluster_id": next(iter(clusters), ""),
        "alert": "Heartbeat",
        "title": f"[HEARTBEAT] {policy.observer} watches {watched}",
        "body": "This sidecar is running and can read the store.",
    }
    deliveries = [_transient(policy, beat.destination, Reason.HEARTBEAT, now, **what) for beat in due]
    return replace(alerts, beats=beats), deliveries


def _transient(
    policy: Policy, to: Destination, reason: Reason, now: Moment, *, cluster_id: str, alert: str, title: str, body: str
) -> Delivery:
    """A heartbeat or a resend: the next one replaces it."""
    kind = reason.value.lower()
    return Delivery(
        id=record_id(kind, policy.observer, to.name, now.wall, now.steady),
        destination=to.name,
        receiver=to.receiver,
        cluster_id=cluster_id,
        alert=alert,
        fingerprint=record_id(kind, policy.observer, to.name),
        reason=reason,
        severity=Severity.INFO,
        title=title,
        body=body,
        queued_at=now,
        next_at=now.steady,
    )


def resends(policy: Policy, alerts: Alerts, now: Moment) -> tuple[Alerts, list[Delivery]]:
    """Resends due now, without their alerts: see `complete`. A feed of which nothing fires gets none."""
    if not alerts.groups:
        return alerts, []
    due = [to for to in policy.feeds() if now.steady - alerts.beats.get(to.name, 0) >= RESEND_INTERVAL]
    if not due:
        return alerts, []
    deliveries = []
    for to in due:
        if firing := [alert for _, alert in firing_in_feed(policy, alerts, to.receiver)]:
            cluster_id, rules = min(alert.cluster_id for alert in firing), sorted({alert.rule for alert in firing})
            what = {"cluster_id": cluster_id, "alert": ", ".join(rules), "title": "what fires, sent again", "body": ""}
            deliveries.append(_transient(policy, to, Reason.RESEND, now, **what))
    return replace(alerts, beats={**alerts.beats, **{to.name: now.steady for to in due}}), deliveries


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
            firing[receiver] = resent_feed_alerts(policy, clusters, alerts, receiver, destination.feed)
        yield replace(delivery, feed=firing[receiver])


def policy_change_deliveries(
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
        parts=tuple(replace(part, ended=part.ended or ledger_document.DROPPED) for part in delivery.parts),
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
