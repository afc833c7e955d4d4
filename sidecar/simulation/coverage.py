"""When one sidecar could not see a cluster's store, by the coverage that it recorded."""

from bisect import bisect_right
from typing import Final, NamedTuple

from sidecar.core.cluster.state import Sighting
from sidecar.core.cluster.store_view import COVERAGE_INTERVAL
from sidecar.core.moment import SECOND

_PIECE: Final = (COVERAGE_INTERVAL, COVERAGE_INTERVAL + 10 * SECOND)
"""So long are the pieces in which a long stretch is recorded: behind one, it goes on."""
_BLINK: Final = 4 * SECOND
"""So long the store may be out of sight before leaders become unknown."""
_FOR_EVER: Final = 1 << 62


class Stretch(NamedTuple):
    """From when until when (microseconds since the epoch). Out of sight: whether somebody ran who noticed."""

    began: int
    ended: int
    noticed: bool = False


class BlindTimes:
    """The stretches in which a store was out of sight."""

    def __init__(self) -> None:
        self._blind: list[Stretch] = []
        self._open: int | None = None
        """Since when it is out of sight, behind the last record."""
        self._noticed_at = 0

    def noticed(self, at: int) -> None:
        """Leaders became unknown: somebody runs, and does not see."""
        self._noticed_at = at

    def covered(self, began: int, ended: int, state: str) -> None:
        """The next stretch that was recorded: each follows the one of before."""
        if self._blind and began < self._blind[-1].began:
            return  # the clock was set back: what was covered stays so
        is_piece = _PIECE[0] <= ended - began <= _PIECE[1]
        if state == Sighting.BLIND:
            noticed = self._noticed_at >= began or ended - began <= _BLINK
            if self._blind and self._blind[-1].ended >= began:
                before = self._blind.pop()
                began, noticed = before.began, noticed or before.noticed
            self._blind.append(Stretch(began, max(began, ended), noticed))
            self._open = began if is_piece else None
        else:
            self._open = None if is_piece else ended

    def blind_at(self, wall: int) -> Stretch | None:
        """The stretch in which it is out of sight at that time."""
        if self._open is not None and wall >= self._open:
            return Stretch(self._open, _FOR_EVER, self._noticed_at >= self._open)
        found = bisect_right(self._blind, (wall, _FOR_EVER))
        return self._blind[found - 1] if found and wall < self._blind[found - 1].ended else None

    def next_change(self, wall: int) -> int | None:
        """When it is lost or comes back next, after that time."""
        if (blind := self.blind_at(wall)) is not None:
            return blind.ended if blind.ended < _FOR_EVER else None
        found = bisect_right(self._blind, (wall, _FOR_EVER))
        if found < len(self._blind):
            return self._blind[found].began
        return self._open if self._open is not None and self._open > wall else None
