"""The message of a drill: to every receiver that a critical alert of the cluster would reach, the way such an alert takes."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason, labels_of
from sidecar.core.alerting.new_deliveries import FIRES_FOR, closing
from sidecar.core.alerting.outbox import Delivery, Part
from sidecar.core.alerting.silence_document import Expectation, StoredSilence, drill_of
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.message import FeedAlert
from sidecar.core.moment import Moment, parsed, spoken
from sidecar.core.policy.policy import Destination, Policy, Severity
from sidecar.core.policy.routing import matching
from sidecar.core.policy.triggers import ABOUT_OBSERVER, Trigger
from sidecar.core.records import Drill, record_id
from sidecar.core.sanitize import clean

ALERT: Final = "Drill"
"""The alert name of a drill's messages, used in place of a rule's name."""
_MOST_NAME: Final = 40


def critical_receivers(policy: Policy, cluster_id: str, now: Moment) -> list[Destination]:
    """The destinations that a critical alert of the cluster would reach now: mute times count, inhibitions do not."""
    receivers: dict[str, None] = {}
    for rule in policy.rules:
        # A failover that loses jobs is critical, whatever its rule says.
        if rule.severity is Severity.CRITICAL or rule.on is Trigger.LEADER_CHANGED:
            for component in (None, *CLUSTER_COMPONENTS):
                labels = labels_of(policy, rule, cluster_id, component, ours=rule.on in ABOUT_OBSERVER)
                routes = matching(policy.route, {**labels, "severity": Severity.CRITICAL.value})
                receivers |= dict.fromkeys(route.receiver for route in routes if not route.is_muted(now.wall))
    return [destination for name in receivers for destination in policy.receivers.get(name, ())]


def messages(policy: Policy, drill: StoredSilence, now: Moment) -> Iterator[Delivery]:
    """A delivery for each of them, and one that closes the incident where the service keeps it open."""
    for destination in critical_receivers(policy, drill.drilled_cluster, now):
        message = _message(policy, drill, destination, now)
        yield message
        if destination.keeps_incidents and destination.send_resolved:
            yield closing(replace(message, body="The drill's message has arrived."))


def closing_messages(policy: Policy, drill: Drill, now: Moment) -> Iterator[Delivery]:
    """A delivery for each destination that shows the drill's message until something else is true, now that the drill is over."""
    of = drill_of(
        *(drill.drill_id, drill.cluster_id, parsed(drill.starts_at), parsed(drill.ends_at)),
        *(Expectation(drill.expects), drill.author, drill.comment),
    )
    by_name = {to.name: to for receiver in policy.receivers.values() for to in receiver}
    for destination in (by_name[name] for name in drill.receivers if name in by_name):
        if destination.shows_incidents and not destination.keeps_incidents:
            name = clean(drill.cluster_id, _MOST_NAME)
            title, body = f"[DRILL] {name}: the failover drill is over", "What fires from now on is no drill."
            yield closing(replace(_message(policy, of, destination, now), title=title, body=body), after=0)


def _message(policy: Policy, drill: StoredSilence, destination: Destination, now: Moment) -> Delivery:
    cluster_id, place = drill.drilled_cluster, policy.places.get(drill.drilled_cluster, "")
    name, until = clean(cluster_id, _MOST_NAME), spoken(drill.over_at)
    title = f"[DRILL] {name}: failover drill, nothing is wrong"
    body = "\n".join(
        [
            f"This is a drill, started by {clean(drill.author)}. A critical alert of {name} would arrive here like this message.",
            f"Until {until} alerts that a failover causes are not sent. What still fires then is sent at once.",
            *([f"Comment: {clean(drill.comment)}"] if drill.comment else []),
        ]
    )
    return Delivery(
        id=record_id("drill", policy.observer, drill.id, destination.name),
        destination=destination.name,
        receiver=destination.receiver,
        cluster_id=cluster_id,
        alert=ALERT,
        fingerprint=drill.id,
        incident=record_id("incident", drill.id, place, *sorted(policy.external_labels.items())),
        thread=record_id("thread", drill.id),
        reason=Reason.DRILL,
        severity=Severity.CRITICAL,
        title=title,
        body=body,
        facts=(
            ("drill", drill.id),
            ("cluster", clean(cluster_id)),
            ("observer", policy.observer),
            *policy.external_labels.items(),
        ),
        link=None if policy.link is None else f"{policy.link}/",
        group_labels={"cluster_id": cluster_id},
        # Every sidecar queues it, one sends it.
        parts=(Part(record_id("drill", drill.id), drill.starts_at, drill.starts_at, is_event=True),),
        feed=(_feed_alert(policy, drill, title, body, now),) if destination.feed else (),
        in_order=destination.in_order,
        send_resolved=destination.send_resolved,
        queued_at=now,
        next_at=now.steady,
    )


def _feed_alert(policy: Policy, drill: StoredSilence, title: str, body: str, now: Moment) -> FeedAlert:
    """The message as an Alertmanager gets it: a critical alert that ends by itself."""
    own = {"alertname": f"Flink{ALERT}", "severity": Severity.CRITICAL.value, "cluster_id": drill.drilled_cluster}
    labels = {**policy.external_labels, **own, "store": policy.store_of(drill.drilled_cluster).value}
    return FeedAlert(labels, {"summary": title, "description": body}, now.wall, fires_for=FIRES_FOR)
