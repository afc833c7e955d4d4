"""Runs one rule test through the real `step`, tick by tick, and compares the notifications with the expected ones."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation, Started, Stopped, Ticked
from sidecar.core.policy.policy import Policy, Source, Store
from sidecar.core.state_and_effects import Send, State
from sidecar.core.step import step
from sidecar.settings.model import Alerting
from sidecar.settings.rule_tests import NotificationInTest, RuleTest, ScenarioEvent
from sidecar.simulation.fake_flink import SimulatedFlink

TICK: Final = SECOND // 2


class Simulator:
    """Runs `step` with a policy over observations."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._state = State()

    def observe(self, observations: Iterable[Observation]) -> Iterator[Delivery]:
        """The deliveries that these observations cause, in order, without resends."""
        for observation in observations:
            self._state, effects = step(self._policy, self._state, observation)
            sent = [effect.delivery for effect in effects if isinstance(effect, Send)]
            yield from (delivery for delivery in sent if delivery.reason is not Reason.RESEND)
            yield from self.observe(
                DeliverySettled(observation.at, delivery.id, DeliveryOutcome.DELIVERED) for delivery in sent
            )

    def restart(self) -> None:
        """End the process: only the state in the journal is left."""
        self._state, _ = assemble(changes(State(), self._state))


PUNCTUAL: Final = 1 * SECOND
"""The tolerance for the time of a notification."""


class Difference(NamedTuple):
    """Expected notifications that were not sent, and unexpected ones that were, in the order of time."""

    missing: tuple[NotificationInTest, ...]
    unexpected: tuple[NotificationInTest, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def compare(test: RuleTest, sent: Iterable[NotificationInTest]) -> Difference:
    """The differences between `sent` and the expectations. Each expectation matches one notification."""
    unexpected = [*sent]
    missing = []
    for expectation in sorted(test.expect, key=attrgetter("at")):
        matching = [notification for notification in unexpected if _matches(expectation, notification)]
        if matching:
            unexpected.remove(min(matching, key=lambda notification: abs(notification.at - expectation.at)))
        else:
            missing.append(expectation)
    return Difference(tuple(missing), tuple(unexpected))


def _matches(expectation: NotificationInTest, sent: NotificationInTest) -> bool:
    return (
        abs(sent.at - expectation.at) < PUNCTUAL
        and {*expectation.alerts} == {*sent.alerts}
        and expectation.receiver in {None, sent.receiver}
        and expectation.reason in {None, sent.reason}
        and (expectation.title or "") in (sent.title or "")
    )


def play(test: RuleTest, alerting: Alerting) -> Iterator[NotificationInTest]:
    """All notifications that are sent during a test."""
    policy = alerting.policy_for("sidecar", dict.fromkeys((event.cluster for event in test.when), Store.ZOOKEEPER))
    if any(event.is_of_rest for event in test.when):
        policy = replace(policy, evidence=frozenset({Source.FLINK_REST}))
    for delivery in simulated(policy, test.when, test.starts, test.until):
        # The time of queueing: how fast a destination takes messages is not a matter of rules.
        at, alerts = delivery.queued_at.steady - test.starts, tuple(delivery.alert.split(", "))
        yield NotificationInTest(at, alerts, delivery.receiver, delivery.reason, delivery.title)


def simulated(policy: Policy, when: Sequence[ScenarioEvent], starts: int, until: int) -> Iterator[Delivery]:
    """The deliveries of a sidecar with `policy` during these events. `starts`: wall time (µs); `until`: µs after it."""
    sidecar = _Sidecar(policy, {event.cluster: SimulatedFlink(event.cluster) for event in when}, starts)
    events = [*reversed(when)]
    yield from sidecar.start(0)
    for now in range(0, until + 1, TICK):
        while events and events[-1].at <= now:
            yield from sidecar.apply(events.pop(), now)
        yield from sidecar.tick(now)


class _Sidecar:
    """A sidecar that watches simulated clusters."""

    def __init__(self, policy: Policy, clusters: dict[str, SimulatedFlink], starts: int) -> None:
        self._simulator = Simulator(policy)
        self._clusters = clusters
        self._starts = starts
        self._running = True

    def start(self, now: int) -> Iterator[Delivery]:
        """Start the process, with the state of a previous one, and read all clusters."""
        at = self._moment(now)
        views = chain.from_iterable(cluster.connect(at) for cluster in self._clusters.values())
        yield from self._simulator.observe([Started(at), *views])

    def apply(self, event: ScenarioEvent, now: int) -> Iterator[Delivery]:
        at = self._moment(now)
        if event.running is False and self._running:
            yield from self._simulator.observe([Stopped(at)])
            self._simulator.restart()
            self._running = False
        observations = [*self._clusters[event.cluster].apply(event, at)]
        if event.running and not self._running:
            self._running = True
            yield from self.start(now)
        elif self._running:
            yield from self._simulator.observe(observations)

    def tick(self, now: int) -> Iterator[Delivery]:
        if self._running:
            at = self._moment(now)
            pictures = chain.from_iterable(cluster.pictured(at) for cluster in self._clusters.values())
            yield from self._simulator.observe([*pictures, Ticked(at)])

    def _moment(self, now: int) -> Moment:
        return Moment(self._starts + now, self._starts + now)
