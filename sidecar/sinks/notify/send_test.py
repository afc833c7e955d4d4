"""Sends a test message to each destination, the same way as an alert."""

from collections.abc import Callable, Collection, Iterator
from queue import Queue
from typing import NamedTuple

from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery.new_deliveries import FIRES_FOR
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.message import FeedAlert
from sidecar.core.moment import Moment, timestamp
from sidecar.core.observations import DeliveryOutcome
from sidecar.core.policy.policy import Destination, Severity
from sidecar.core.records import record_id
from sidecar.settings import Settings, SettingsError
from sidecar.settings.file.settings_error import did_you_mean, quoted
from sidecar.sinks.notify.notifier import Notifier, check_endpoints


class TestResult(NamedTuple):
    """The result for one destination; `detail` is one line without secrets."""

    destination: str
    outcome: DeliveryOutcome
    detail: str


def send_test(settings: Settings, receivers: Collection[str], clock: Callable[[], Moment]) -> Iterator[TestResult]:
    """Send one message to each destination of these receivers (empty: all). Yields the results in the order of the settings.

    Raises SettingsError before anything is sent if there is no receiver, one is unknown, none has an endpoint, or one is unusable.
    """
    destinations = _destinations(settings, receivers)
    endpoints = {name: endpoint for name, endpoint in settings.endpoints().items() if name in destinations}
    checked = check_endpoints(endpoints)
    for name, problem in checked.problems.items():
        raise SettingsError(f"{settings.locations()[name]}: receiver {name}: {problem}")
    settings = settings.identified(checked.natives)
    destinations = _destinations(settings, receivers)
    endpoints = {name: settings.endpoints()[name] for name in destinations}
    settled: Queue[TestResult] = Queue()
    notifier = Notifier(endpoints, lambda name, attempt: settled.put(TestResult(name, attempt.outcome, attempt.detail)))
    notifier.start()
    try:
        now = clock()
        for destination in destinations.values():
            notifier.send(_message(settings, destination, now))
        results: dict[str, TestResult] = {}
        opened: set[str] = set()
        """Destinations that were sent an incident, which is closed then."""
        for name in destinations:
            while name not in results:
                result = settled.get()  # each is settled once, within the time limit of an attempt
                destination = destinations[result.destination]
                delivered = result.outcome is DeliveryOutcome.DELIVERED
                if destination.keeps_incidents and delivered and result.destination not in opened:
                    opened.add(result.destination)
                    notifier.send(replace(_message(settings, destination, now), reason=Reason.RESOLVED))
                else:
                    results[result.destination] = result
            yield results[name]
    finally:
        notifier.stop()


def _destinations(settings: Settings, receivers: Collection[str]) -> dict[str, Destination]:
    if not settings.receivers:
        raise SettingsError("receivers: none is configured: add one to the configuration")
    configured = [receiver.name for receiver in settings.receivers]
    for name in receivers:
        if name not in configured:
            raise SettingsError(f"--receiver: no receiver is called {quoted(name)}; {did_you_mean(configured, name)}")
    chosen = [receiver for receiver in settings.receivers if not receivers or receiver.name in receivers]
    if not any(receiver.endpoints for receiver in chosen):
        names = ", ".join(receiver.name for receiver in chosen)
        raise SettingsError(f"receivers: {names}: notifies nobody, so there is nothing to test: give it an endpoint")
    return {destination.name: destination for receiver in chosen for destination in receiver.destinations()}


def _message(settings: Settings, destination: Destination, now: Moment) -> Delivery:
    clusters = ", ".join(cluster.cluster_id for cluster in settings.clusters) or "clusters"
    return Delivery(
        id=destination.name,
        destination=destination.name,
        incident=record_id("test", settings.observer, destination.name, now.wall),
        receiver=destination.receiver,
        cluster_id=clusters,
        alert="Test",
        fingerprint="",
        reason=Reason.FIRST,
        severity=Severity.INFO,
        title=f"[TEST] {clusters}: a test message, nothing happened",
        body="This message was sent by `alert send-test`, to check that notifications arrive here.",
        facts=(
            ("cluster", clusters),
            ("observer", settings.observer),
            ("receiver", destination.name),
            ("sent", timestamp(now.wall)),
        ),
        feed=(_alert(settings, now),) if destination.feed else (),
        queued_at=now,
        next_at=now.steady,
    )


def _alert(settings: Settings, now: Moment) -> FeedAlert:
    """The test as an Alertmanager gets it: an alert that ends by itself."""
    labels = {**settings.external_labels, "alertname": "Test", "severity": "info", "observer": settings.observer}
    return FeedAlert(labels, {"summary": "a test message, nothing happened"}, now.wall, fires_for=FIRES_FOR)
