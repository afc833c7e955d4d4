"""One test: what happens, through the real `step`, tick by tick; and how what is told differs from what is expected."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sidecar.core.delivery.outbox import Delivery
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import Observation, Started, Stopped, Ticked
from sidecar.core.policy.policy import Policy, Store
from sidecar.settings.model import Alerting
from sidecar.settings.test_file import Expectation, RuleTest, ScenarioEvent
from sidecar.simulation.fake_flink import Pretended
from sidecar.simulation.simulator import TICK, Voice

PUNCTUAL: Final = 1 * SECOND
"""What is told within this of the expected time is told then."""


class SentNotification(NamedTuple):
    """A notification that a receiver got."""

    at: int
    """Microseconds after the test began."""
    receiver: str
    reason: str
    alerts: tuple[str, ...]
    title: str


class Difference(NamedTuple):
    """What was expected and not told, and what was told and not expected; both in the order of time."""

    missing: tuple[Expectation, ...]
    unexpected: tuple[SentNotification, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare(scene: RuleTest, told: Iterable[SentNotification]) -> Difference:
    """How `told` differs from what the test expects. Each expectation is one notification, and each notification is expected."""
    unexpected = [*told]
    missing = []
    for expectation in sorted(scene.expect, key=lambda each: each.at):
        fitting = [each for each in unexpected if _fits(expectation, each)]
        if fitting:
            unexpected.remove(min(fitting, key=lambda each: abs(each.at - expectation.at)))
        else:
            missing.append(expectation)
    return Difference(tuple(missing), tuple(unexpected))


def _fits(expectation: Expectation, told: SentNotification) -> bool:
    return (
        abs(told.at - expectation.at) < PUNCTUAL
        and expectation.alerts == {*told.alerts}
        and expectation.receiver in {None, told.receiver}
        and expectation.reason in {None, told.reason}
        and (expectation.title or "") in told.title
    )


def play(scene: RuleTest, rules: Alerting) -> Iterator[SentNotification]:
    """Everything that is told in the course of a test."""
    clusters = {event.cluster: Pretended(event.cluster) for event in scene.when}
    sidecar = _Sidecar(rules.policy_for("sidecar", dict.fromkeys(clusters, Store.ZOOKEEPER)), clusters, scene.starts)
    events = [*reversed(scene.when)]
    yield from sidecar.starts(0)
    for now in range(0, scene.until + 1, TICK):
        while events and events[-1].at <= now:
            yield from sidecar.takes(events.pop(), now)
        yield from sidecar.ticks(now)


class _Sidecar:
    """A sidecar that watches pretended clusters."""

    def __init__(self, policy: Policy, clusters: dict[str, Pretended], starts: int) -> None:
        self._voice = Voice(policy)
        self._clusters = clusters
        self._starts = starts
        self._running = True

    def starts(self, now: int) -> Iterator[SentNotification]:
        """The process begins, with whatever an earlier one left, and looks at everything."""
        at = self._moment(now)
        looks = (seen for cluster in self._clusters.values() for seen in cluster.looks(at))
        yield from self._hears([Started(at), *looks])

    def takes(self, event: ScenarioEvent, now: int) -> Iterator[SentNotification]:
        at = self._moment(now)
        if event.running is False and self._running:
            yield from self._hears([Stopped(at)])
            self._voice.ends()
            self._running = False
        seen = [*self._clusters[event.cluster].takes(event, at)]
        if event.running and not self._running:
            self._running = True
            yield from self.starts(now)
        elif self._running:
            yield from self._hears(seen)

    def ticks(self, now: int) -> Iterator[SentNotification]:
        if self._running:
            yield from self._hears([Ticked(self._moment(now))])

    def _moment(self, now: int) -> Moment:
        return Moment(self._starts + now, self._starts + now)

    def _hears(self, observations: Iterable[Observation]) -> Iterator[SentNotification]:
        return (_told(delivery, self._starts) for delivery in self._voice.hears(observations))


def _told(delivery: Delivery, starts: int) -> SentNotification:
    """From when it is queued: that a destination is told one thing at a time is nothing that rules decide."""
    alerts = tuple(delivery.alert.split(", "))
    return SentNotification(
        delivery.queued_at.steady - starts, delivery.receiver, delivery.reason.value, alerts, delivery.title
    )
