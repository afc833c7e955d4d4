"""How long silence may last before somebody has to look, and what a watch still has to tell."""

from msgspec import Struct

from sidecar.core.flink.configmaps import lapses_after
from sidecar.core.moment import SECOND
from sidecar.drivers.kubernetes.events import Version

_SILENCE_SECONDS = 7.0
"""A leader that lives renews its lease every 5 s."""
_JUST_AFTER = 0.05
_CONFIRM_SECONDS = 7.0
CONFIRMED_WITHIN = round(15 * SECOND)
"""Microseconds in which a view that can be had is confirmed again: what is heard is confirmed at the first word after 7 s, and silence is
looked into after 7 s."""
_CATCH_UP_SECONDS = 1.5
_LOOK_AT_LEAST_EACH = 295.0


class _Heard(Struct, frozen=True):
    """When one ConfigMap changed last, and its lease."""

    at: float
    lease: str | None
    renewed_at: float

    @property
    def lapses_at(self) -> float | None:
        """When a look shows that the lease has run out, if it does."""
        after = lapses_after(self.lease)
        return None if after is None else self.renewed_at + after / SECOND + _JUST_AFTER


class Expectations:
    """When to look anew, and which changes that a look showed the watch has not told of yet. Times are monotonic."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._heard: dict[str, _Heard] = {}
        self._owed: dict[str, Version | None] = {}

    def looked(self, now: float, owed: dict[str, Version | None]) -> None:
        """Somebody has looked just now. `owed`: what stands there other than was told, by name; None: what is gone."""
        self._looked_at = now
        self._owed = owed

    def heard(self, now: float, name: str, version: Version | None, lease: str | None = None) -> None:
        """The watch, or whoever looked, told of a change; None: it is gone. `lease` is its annotation."""
        if version is None:
            self._heard.pop(name, None)
        else:
            before = self._heard.get(name)
            same_lease = before is not None and before.lease == lease
            self._heard[name] = _Heard(now, lease, before.renewed_at if before and same_lease else now)
        if name in self._owed and self._owed[name] == version:
            del self._owed[name]

    def reconnected(self, now: float) -> None:
        """What was silent until now, nobody was there to hear."""
        self._heard = {name: _Heard(now, heard.lease, now) for name, heard in self._heard.items()}

    @property
    def caught_up(self) -> bool:
        """Whether the watch has told of all that the last look showed."""
        return not self._owed

    def to_be_confirmed(self, now: float) -> bool:
        """Whether it is time to look although the watch speaks: what it says may be old."""
        return self.caught_up and now > self._looked_at + _CONFIRM_SECONDS

    def next_look(self) -> float:
        """When to look, if nothing is heard until then."""
        if self._owed:
            return self._looked_at + _CATCH_UP_SECONDS
        return min(map(self._after_silence, self._heard.values()), default=self._looked_at + _SILENCE_SECONDS)

    def overdue(self, now: float) -> bool:
        """Whether the time to look has come although there is always something to hear."""
        return now > (self._looked_at + _LOOK_AT_LEAST_EACH if self.caught_up else self.next_look())

    def _after_silence(self, heard: _Heard) -> float:
        """Now and then, and just when the lease has run out: the core concludes nothing where nobody looked."""
        regular = max(heard.at, self._looked_at if self._looked_at >= heard.at + _SILENCE_SECONDS else heard.at)
        regular += _SILENCE_SECONDS
        lapses_at = heard.lapses_at
        return regular if lapses_at is None or lapses_at <= self._looked_at else min(regular, lapses_at)
