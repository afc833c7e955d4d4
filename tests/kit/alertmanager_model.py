"""What an Alertmanager makes of the alerts that it gets: a model for histories of the core, whose clock is not that of a server.

The rules are those of Alertmanager 0.25 (`provider/mem`, `types.Alert.Merge`). tests/e2e/test_alertmanager.py has the server itself.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sidecar.core.message import FeedAlert


class HeldAlert(NamedTuple):
    """An alert: when it began and until when it fires. In microseconds, by the clock of the history."""

    began: int
    until: int


class AlertmanagerModel:
    """Alerts by their labels."""

    def __init__(self) -> None:
        self.alerts: dict[frozenset[tuple[str, str]], HeldAlert] = {}
        self.sent: list[FeedAlert] = []

    def take(self, alerts: Iterable[FeedAlert], now: int) -> None:
        """Alerts arrive, as the sender makes them of `alerts`."""
        for alert in alerts:
            labels = key(alert.labels)
            old = self.alerts.get(labels)
            if not alert.seen and (old is None or old.until <= now):
                continue
            self.sent.append(alert)
            new = HeldAlert(min(alert.began, now), now + alert.fires_for if alert.fires_for else now)
            self.alerts[labels] = _merged(old, new, now) if old else new

    def firing(self, now: int) -> list[Mapping[str, str]]:
        """The labels of what fires."""
        return [dict(labels) for labels, alert in self.alerts.items() if alert.until > now]


def key(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The identity of an alert."""
    return frozenset(labels.items())


def _merged(old: HeldAlert, new: HeldAlert, now: int) -> HeldAlert:
    overlap = old.began < new.until < old.until or old.began < new.began < old.until
    if not overlap:
        return new
    began = min(old.began, new.began)
    if new.until <= now:
        return HeldAlert(began, max(old.until, new.until) if old.until <= now else new.until)
    return HeldAlert(began, max(old.until, new.until))
