"""How long silence may last before somebody has to look, and what a watch still has to tell."""

from sidecar.drivers.kubernetes.events import Version

_SILENCE_SECONDS = 7.0
"""A leader that lives renews its lease every 5 s."""
_ALERT_SECONDS = 20.0
_ALERT_INTERVAL = 1.5
_CATCH_UP_SECONDS = 1.5
_LOOK_AT_LEAST_EACH = 295.0


class Expectations:
    """When to look anew, and which changes that a look showed the watch has not told of yet. Times are monotonic."""

    def __init__(self) -> None:
        self._looked_at = 0.0
        self._changed_at: dict[str, float] = {}
        self._owed: dict[str, Version | None] = {}

    def looked(self, now: float, owed: dict[str, Version | None]) -> None:
        """Somebody has looked just now. `owed`: what stands there other than was told, by name; None: what is gone."""
        self._looked_at = now
        self._owed = owed

    def heard(self, now: float, name: str, version: Version | None) -> None:
        """The watch, or whoever looked, told of a change; None: it is gone."""
        if version is None:
            self._changed_at.pop(name, None)
        else:
            self._changed_at[name] = now
        if name in self._owed and self._owed[name] == version:
            del self._owed[name]

    def reconnected(self, now: float) -> None:
        """What was silent until now, nobody was there to hear."""
        self._changed_at = dict.fromkeys(self._changed_at, now)

    @property
    def caught_up(self) -> bool:
        """Whether the watch has told of all that the last look showed."""
        return not self._owed

    def next_look(self) -> float:
        """When to look, if nothing is heard until then."""
        if self._owed:
            return self._looked_at + _CATCH_UP_SECONDS
        silences = [self._after_silence(changed_at) for changed_at in self._changed_at.values()]
        return min(silences, default=self._looked_at + _SILENCE_SECONDS)

    def overdue(self, now: float) -> bool:
        """Whether the time to look has come although there is always something to hear."""
        return now > (self._looked_at + _LOOK_AT_LEAST_EACH if self.caught_up else self.next_look())

    def _after_silence(self, changed_at: float) -> float:
        """A lease that has run out is noticed within two seconds; one that ran out long ago is not news."""
        silent = self._looked_at - changed_at
        if silent < _SILENCE_SECONDS:
            return changed_at + _SILENCE_SECONDS
        return self._looked_at + (_ALERT_INTERVAL if silent < _SILENCE_SECONDS + _ALERT_SECONDS else _SILENCE_SECONDS)
