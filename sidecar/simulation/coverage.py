"""When a sidecar could not observe the store of a cluster, from its coverage records."""

from bisect import bisect_right
from typing import Final, NamedTuple

from sidecar.core.cluster.state import Sighting
from sidecar.core.cluster.store.store_view import COVERAGE_INTERVAL
from sidecar.core.moment import SECOND

_SPLIT: Final = (COVERAGE_INTERVAL, COVERAGE_INTERVAL + 10 * SECOND)
"""The shortest and longest record of a longer period that is recorded in several: the next record continues it."""
_BLINK: Final = 4 * SECOND
"""After a longer blind period leaders become unknown."""
_FOR_EVER: Final = 1 << 62


class BlindPeriod(NamedTuple):
    """Microseconds since the epoch. `noticed`: a running sidecar noticed that it was blind."""

    began: int
    ended: int
    noticed: bool = False


class BlindPeriods:
    """The periods in which the store of a cluster could not be observed."""

    def __init__(self) -> None:
        self._periods: list[BlindPeriod] = []
        self._open: int | None = None
        """When the period began that goes on behind the last record."""
        self._noticed_at = 0

    def noticed(self, at: int) -> None:
        """Leaders became unknown: a sidecar runs and is blind."""
        self._noticed_at = at

    def covered(self, began: int, ended: int, state: str) -> None:
        """Add the next coverage record."""
        if self._periods and began < self._periods[-1].began:
            return  # the clock was set back: keep the recorded coverage
        continues = _SPLIT[0] <= ended - began <= _SPLIT[1]
        if state == Sighting.BLIND:
            noticed = self._noticed_at >= began or ended - began <= _BLINK
            if self._periods and self._periods[-1].ended >= began:
                previous = self._periods.pop()
                began, noticed = previous.began, noticed or previous.noticed
            self._periods.append(BlindPeriod(began, max(began, ended), noticed))
            self._open = began if continues else None
        else:
            self._open = None if continues else ended

    def blind_at(self, wall: int) -> BlindPeriod | None:
        """The blind period at that time."""
        if self._open is not None and wall >= self._open:
            return BlindPeriod(self._open, _FOR_EVER, self._noticed_at >= self._open)
        place = bisect_right(self._periods, (wall, _FOR_EVER))
        return self._periods[place - 1] if place and wall < self._periods[place - 1].ended else None

    def next_change(self, wall: int) -> int | None:
        """When the sidecar next becomes blind, or can observe again, after that time."""
        if (blind := self.blind_at(wall)) is not None:
            return blind.ended if blind.ended < _FOR_EVER else None
        place = bisect_right(self._periods, (wall, _FOR_EVER))
        if place < len(self._periods):
            return self._periods[place].began
        return self._open if self._open is not None and self._open > wall else None
