"""When to list although the watch is silent, and which changes the watch has not delivered yet."""

from msgspec import Struct

from sidecar.core.flink.configmaps import lapses_after
from sidecar.core.moment import SECOND
from sidecar.drivers.kubernetes.responses import Version

_SILENCE_SECONDS = 7.0
"""A living leader renews its lease every 5 s."""
_JUST_AFTER = 0.05
_CONFIRM_SECONDS = 7.0
CONFIRMED_WITHIN = round(15 * SECOND)
"""Microseconds within which a view is confirmed again: a list is due 7 s after the last one, at the next event or after 7 s of silence."""
_CATCH_UP_SECONDS = 1.5
_LONGEST_WITHOUT_LIST = 295.0


class _Change(Struct, frozen=True):
    """The last change of one ConfigMap, and its lease."""

    at: float
    lease: str | None
    renewed_at: float

    @property
    def lapses_at(self) -> float | None:
        """When a list would show that the lease has expired."""
        after = lapses_after(self.lease)
        return None if after is None else self.renewed_at + after / SECOND + _JUST_AFTER


class Expectations:
    """Schedules lists, and knows which changes a list has found that the watch has not delivered yet. Times are monotonic."""

    def __init__(self) -> None:
        self._listed_at = 0.0
        self._changes: dict[str, _Change] = {}
        self._undelivered: dict[str, Version | None] = {}

    def listed(self, now: float, undelivered: dict[str, Version | None]) -> None:
        """A list was read. `undelivered`: by name, what differs from the last report; None: deleted."""
        self._listed_at = now
        self._undelivered = undelivered

    def changed(self, now: float, name: str, version: Version | None, lease: str | None = None) -> None:
        """A ConfigMap has changed; `version` None: deleted. `lease` is its annotation."""
        if version is None:
            self._changes.pop(name, None)
        else:
            previous = self._changes.get(name)
            renewed_at = previous.renewed_at if previous and previous.lease == lease else now
            self._changes[name] = _Change(now, lease, renewed_at)
        if name in self._undelivered and self._undelivered[name] == version:
            del self._undelivered[name]

    def reconnected(self, now: float) -> None:
        """Restart all leases and silences: nothing could be observed while disconnected."""
        self._changes = {name: _Change(now, change.lease, now) for name, change in self._changes.items()}

    @property
    def caught_up(self) -> bool:
        """Whether the watch has delivered all changes that the last list found."""
        return not self._undelivered

    def confirmation_due(self, now: float) -> bool:
        """Whether to list although the watch delivers: its events may be old."""
        return self.caught_up and now > self._listed_at + _CONFIRM_SECONDS

    def next_list(self) -> float:
        """When to list if the watch stays silent until then."""
        if self._undelivered:
            return self._listed_at + _CATCH_UP_SECONDS
        return min(map(self._after_silence, self._changes.values()), default=self._listed_at + _SILENCE_SECONDS)

    def list_overdue(self, now: float) -> bool:
        """Whether to list although the watch is never silent."""
        return now > (self._listed_at + _LONGEST_WITHOUT_LIST if self.caught_up else self.next_list())

    def _after_silence(self, change: _Change) -> float:
        """Regularly, and just after the lease expires: the core concludes that only from a list."""
        silent_since = self._listed_at if self._listed_at >= change.at + _SILENCE_SECONDS else change.at
        regular = silent_since + _SILENCE_SECONDS
        lapses_at = change.lapses_at
        return regular if lapses_at is None or lapses_at <= self._listed_at else min(regular, lapses_at)
