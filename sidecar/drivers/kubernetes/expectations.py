"""Decides when to confirm the view, when leases expire, and what the watch has yet to deliver. Times are monotonic."""

import heapq
from typing import Final

from msgspec import Struct

from sidecar.core.flink.configmaps import lapses_after
from sidecar.core.moment import SECOND, Moment
from sidecar.drivers.kubernetes.objects import Version

CONFIRMED_WITHIN: Final = round(15 * SECOND)
"""Microseconds within which a view is confirmed again: it is due 7 s after the last time, at the next event or after 7 s of silence."""
_CONFIRM_SECONDS: Final = 7.0
"""A living leader renews its lease every 5 s."""
_CATCH_UP_SECONDS: Final = 1.5
"""The time that the watch may be silent although it has changes to deliver."""
_LONGEST_CATCH_UP: Final = 10.0
_JUST_AFTER: Final = 0.05


class _Lease(Struct, frozen=True):
    annotation: str | None
    expires_at: float | None


class Leases:
    """The expiry of each ConfigMap's lease, which a renewal postpones."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._due: list[tuple[float, str]] = []
        """A heap. Entries of leases that were renewed meanwhile are skipped."""

    def observed(self, now: float, name: str, annotation: str | None, *, anew: bool = False) -> None:
        """`anew`: nothing could be observed before."""
        previous = self._leases.get(name)
        if previous and previous.annotation == annotation and not anew:
            return
        after = lapses_after(annotation)
        expires_at = None if after is None else now + after / SECOND + _JUST_AFTER
        self._leases[name] = _Lease(annotation, expires_at)
        if expires_at is not None:
            heapq.heappush(self._due, (expires_at, name))

    def removed(self, name: str) -> None:
        self._leases.pop(name, None)

    def next(self) -> float | None:
        """The time at which the next lease expires."""
        while self._due:
            at, name = self._due[0]
            if (lease := self._leases.get(name)) and lease.expires_at == at:
                return at
            heapq.heappop(self._due)
        return None

    def expired(self, now: float) -> str | None:
        """The ConfigMap of a lease that has expired by now, until that is `confirmed`; None: there is none."""
        at = self.next()
        return None if at is None or at > now else self._due[0][1]

    def confirmed(self, name: str) -> None:
        """Note that it was read whether the lease was renewed."""
        self._leases[name] = _Lease(self._leases[name].annotation, None)


class _Question(Struct, frozen=True):
    """A read at `at`, which confirms the view once the watch has delivered it."""

    at: Moment
    resource_version: str | None
    """The resource version that the watch has to reach. None: the changes that it has yet to deliver are known."""
    give_up_at: float


class Expectations:
    """Schedules confirmations, and knows what a list has found that the watch has yet to deliver."""

    def __init__(self) -> None:
        self.leases: Final = Leases()
        self.undelivered: dict[str, Version | None] = {}
        """The versions that the watch has yet to deliver, by name. None: a removal."""
        self._asked: _Question | None = None
        self._asked_at = 0.0
        self._heard_at = 0.0
        self._not_before = 0.0

    def asked(self, now: float, at: Moment, resource_version: str | None = None, *, few: bool = False) -> None:
        """Note a read. `few`: it can be repeated soon."""
        self._asked = _Question(at, resource_version, now + (_CATCH_UP_SECONDS if few else _LONGEST_CATCH_UP))
        self._asked_at = now

    def postponed(self, now: float, seconds: float) -> None:
        """The API server asks not to be asked for so long."""
        self._not_before = now + seconds

    def heard(self, now: float) -> None:
        """The watch has begun, or delivers."""
        self._heard_at = now

    def delivered(self, name: str, version: Version | None) -> None:
        if name in self.undelivered and self.undelivered[name] == version:
            del self.undelivered[name]

    def forget(self) -> None:
        """The connection is lost."""
        self._asked = None

    @property
    def caught_up(self) -> bool:
        """True if the watch has delivered all that was asked for."""
        return not self.undelivered and self._asked is None

    def given_up(self, now: float) -> bool:
        """True if the watch takes too long to deliver what was asked for."""
        return self._asked is not None and now > self._asked.give_up_at

    def is_due(self, now: float) -> bool:
        """True if it is time to ask although the watch delivers: its events may be old."""
        if self._asked or now < self._not_before:
            return False
        return now > self._asked_at + _CONFIRM_SECONDS or self.leases.expired(now) is not None

    def deadline(self) -> float:
        """The time to ask if the watch stays silent until then: the core concludes only from what was read that a lease has expired."""
        silent_since = max(self._heard_at, self._asked_at)
        if self._asked:
            return min(silent_since + _CATCH_UP_SECONDS, self._asked.give_up_at)
        due, lease = silent_since + _CONFIRM_SECONDS, self.leases.next()
        return max(due if lease is None else min(due, lease), self._not_before)

    def confirmed(self, until: str | None) -> Moment | None:
        """The time of the confirmed view when the watch has delivered everything up to `until`; returned once. None: not yet."""
        question = self._asked
        if question is None or self.undelivered:
            return None
        if question.resource_version is not None and is_older(until or "", question.resource_version) is not False:
            return None
        self._asked = None
        return question.at


def is_older(resource_version: str, other: str) -> bool | None:
    """True if one resource version is older than another; None: not known. They are numbers in every API server so far."""
    if resource_version == other:
        return False
    if not all(version.isdecimal() and len(version) < 20 for version in (resource_version, other)):
        return None
    return int(resource_version) < int(other)
