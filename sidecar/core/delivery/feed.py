"""Single alerts for a feed: a destination that groups, repeats and deduplicates by itself, which is an Alertmanager.

An alert there is its labels: they are equal from every observer, and what differs is an annotation. It fires until a time that each sending
moves on, so the alerts of a sidecar that has died end by themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alert, Alerts, Notice, Reason
from sidecar.core.alerting.compose import compose
from sidecar.core.alerting.grouping import is_observable
from sidecar.core.cluster.state import ClusterState
from sidecar.core.message import FeedAlert
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Feed, Policy
from sidecar.core.policy.routing import Route, every

RESEND_INTERVAL: Final = 60 * SECOND
FIRES_FOR: Final = 4 * RESEND_INTERVAL
"""How long a condition fires after it was sent, as Prometheus has it."""


def of_notice(
    policy: Policy, clusters: Mapping[str, ClusterState], notice: Notice, feed: Feed
) -> tuple[FeedAlert, ...]:
    """What is new or has ended; what still fires is in every resend."""
    return _one_per_labels(_feed_alert(policy, clusters, notice.route, alert, feed) for alert in notice.changed)


def firing(policy: Policy, alerts: Alerts, receiver: str) -> Iterator[tuple[Route, Alert]]:
    """What was sent to the receiver and still fires, muted and inhibited alerts too: only a resolve ends what was sent."""
    routes = {route.key: route for route in every(policy.route) if route.receiver == receiver}
    for group in alerts.groups.values():
        if route := routes.get(group.route):
            for member in group.members.values():
                if member.notified and not member.alert.ended:
                    yield route, member.alert


def again(
    policy: Policy, clusters: Mapping[str, ClusterState], alerts: Alerts, receiver: str, feed: Feed
) -> tuple[FeedAlert, ...]:
    """All alerts of a resend."""
    blind = {name for name, cluster in clusters.items() if not cluster.leaders_in_sight}
    return _one_per_labels(
        replace(_feed_alert(policy, clusters, route, alert, feed), seen=is_observable(alert, blind))
        for route, alert in firing(policy, alerts, receiver)
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
