"""An auditor of what an Alertmanager believes: that what fires fires there, and nothing else for longer than it takes to end by itself."""

from collections.abc import Iterator
from typing import Final

from sidecar.core.alerting.alerts import Alert, Member
from sidecar.core.alerting.grouping import is_observable
from sidecar.core.alerting.new_deliveries import FIRES_FOR, RESEND_INTERVAL
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.observations import HandoverRead, Observation, PolicyLoaded, Started, Ticked
from sidecar.core.policy.policy import Destination, Feed, Policy
from sidecar.core.policy.routing import every
from sidecar.core.state import State
from tests.kit.alertmanager_model import AlertmanagerModel, key

EVENT_DURATION: Final = 2 * FIRES_FOR
AM: Final = Destination("am", 0, feed=Feed(EVENT_DURATION))


class FeedAuditor:
    """Sees each step after its alerts have arrived."""

    def __init__(self) -> None:
        self.alertmanager = AlertmanagerModel()
        self._since: dict[tuple[str, str], int] = {}
        """Since when it is known of an alert of a group that it fires, and the Alertmanager should have it."""
        self._changed_at = 0

    def take(self, delivery: Delivery, now: int) -> None:
        if delivery.destination == AM.name:
            assert not delivery.parts, "an Alertmanager's alerts are nobody's alone"
            self.alertmanager.take(delivery.feed, now)
        else:
            assert not delivery.feed

    def saw(self, policy: Policy, state: State, observation: Observation) -> None:
        now = observation.at.steady
        if isinstance(observation, PolicyLoaded | Started | HandoverRead):
            self._since.clear()
            self._changed_at = now
        waiting = any(delivery.destination == AM.name for delivery in state.outbox.values())
        if not isinstance(observation, Ticked) or waiting:
            return
        firing = {key(labels) for labels in self.alertmanager.firing(now)}
        blind = {name for name, cluster in state.clusters.items() if not cluster.leaders_in_sight}
        due = {}
        for fingerprint, member in _members(policy, state):
            alert = member.alert
            if member.notified and not alert.ended and is_observable(alert, blind):
                since = due[fingerprint, alert.id] = self._since.get((fingerprint, alert.id), now)
                assert _labels(alert) in firing or now < since + RESEND_INTERVAL, "it fires, and no Alertmanager knows"
        self._since = due
        if now > self._changed_at + EVENT_DURATION:
            events = {rule.alert for rule in policy.rules if rule.alert in _EVENTS}
            believed = {labels for labels in firing if dict(labels)["alertname"] not in events}
            assert believed <= {_labels(member.alert) for _, member in _members(policy, state)}, "an end did not arrive"


_EVENTS: Final = frozenset({"Changed", "JobChanged", "Unobserved", "Reelected"})


def _members(policy: Policy, state: State) -> Iterator[tuple[str, Member]]:
    routes = {route.key for route in every(policy.route) if route.receiver == AM.receiver}
    for fingerprint, group in state.alerts.groups.items():
        if group.route in routes:
            yield from ((fingerprint, member) for member in group.members.values())


def _labels(alert: Alert) -> frozenset[tuple[str, str]]:
    return key({"alertname" if name == "alert" else name: value for name, value in alert.labels.items()})
