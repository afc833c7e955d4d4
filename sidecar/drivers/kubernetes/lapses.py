"""When the leases of many ConfigMaps expire, if they are not renewed."""

import heapq
from typing import Final

from msgspec import Struct

from sidecar.core.flink.configmaps import lapses_after
from sidecar.core.moment import SECOND

_JUST_AFTER: Final = 0.05


class _Held(Struct, frozen=True):
    lease: str | None
    lapses_at: float | None


class Lapses:
    """The next expiry of each lease, which a renewal postpones. Times are monotonic."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._due: list[tuple[float, str]] = []
        """A heap. Entries of leases that were renewed meanwhile are skipped."""

    def observed(self, now: float, name: str, lease: str | None, *, anew: bool) -> None:
        """The ConfigMap was observed with this annotation. `anew`: nothing could be observed before."""
        known = self._held.get(name)
        if known and known.lease == lease and not anew:
            return
        after = lapses_after(lease)
        held = self._held[name] = _Held(lease, None if after is None else now + after / SECOND + _JUST_AFTER)
        if held.lapses_at is not None:
            heapq.heappush(self._due, (held.lapses_at, name))

    def removed(self, name: str) -> None:
        self._held.pop(name, None)

    def next(self) -> float | None:
        """When the next lease expires."""
        while self._due:
            at, name = self._due[0]
            if (held := self._held.get(name)) and held.lapses_at == at:
                return at
            heapq.heappop(self._due)
        return None

    def pop(self, now: float) -> str | None:
        """The ConfigMap of a lease that has expired by now, once; None: there is none."""
        at = self.next()
        if at is None or at > now:
            return None
        _, name = heapq.heappop(self._due)
        self._held[name] = _Held(self._held[name].lease, None)
        return name
