"""For how long a cluster was led: every microsecond since the account began is led, vacant, suspended or unobserved, and only one of them.

Led: this observer sees that dispatcher, resource manager and REST server have a leader. Vacant: it sees that one of them has none, also
in a planned failover. Suspended: the same while the cluster's FlinkDeployment is suspended or deleted. Unobserved: all other time, also
that in which this sidecar did not run. Jobs do not count: their leaders are in the process that leads the dispatcher.

The edges are those of the coverage records and transitions, so that the audit (`leadership_slo`) comes to the same figures.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND

MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
RECENT: Final = 6 * HOUR
"""So long minutes are kept; hours are kept for LONGEST."""
LONGEST: Final = 90 * 24 * HOUR
MOST_CHANGES: Final = 32
"""That may turn out to have been unobserved."""


class Standing(StrEnum):
    """What one moment of a cluster counts as."""

    LED = "led"
    VACANT = "vacant"
    SUSPENDED = "suspended"
    UNOBSERVED = "unobserved"


class Bucket(Struct, frozen=True, array_like=True):
    """The time in one minute, or one hour, in which the cluster was not led (microseconds). There is none where it was led all the time."""

    start: int
    """Steady, as all times here."""
    vacant: int = 0
    suspended: int = 0
    unobserved: int = 0


class Change(Struct, frozen=True, array_like=True):
    """From `at` on (steady)."""

    at: int
    standing: Standing


class Lasted(Struct, frozen=True):
    """The parts of a time (microseconds)."""

    led: int = 0
    vacant: int = 0
    suspended: int = 0
    unobserved: int = 0

    def plus(self, standing: Standing, duration: int) -> "Lasted":
        """With `duration` more of `standing`."""
        return replace(self, **{standing.value: getattr(self, standing.value) + duration})

    @property
    def elapsed(self) -> int:
        return self.led + self.vacant + self.suspended + self.unobserved


class Account(Struct, frozen=True):
    """The account of one cluster. It changes when the standing does, never because time passes."""

    began: int
    settled: int
    """Until then it is final: `lasted`, `minutes`, `hours`."""
    standing: Standing = Standing.UNOBSERVED
    """From `settled` on."""
    changes: tuple[Change, ...] = ()
    """Later ones, the oldest first: a view that turns out to be stale was blind since its last confirmation, which may be before them."""
    lasted: Lasted = Lasted()
    minutes: tuple[Bucket, ...] = ()
    hours: tuple[Bucket, ...] = ()

    @property
    def now(self) -> Standing:
        """The current standing."""
        return self.changes[-1].standing if self.changes else self.standing

    def runs(self, until: int) -> Iterator[tuple[Standing, int, int]]:
        """The stretches from `settled` until then: standing, begin and end."""
        standing, since = self.standing, self.settled
        for change in self.changes:
            if change.at >= until:
                break
            yield standing, since, change.at
            standing, since = change.standing, change.at
        if since < until:
            yield standing, since, until


def opened(at: int) -> Account:
    """An account that begins at `at`, when nothing has been observed yet."""
    return Account(at, at)


def changed(account: Account, standing: Standing, at: int, final: int) -> Account:
    """The account with another standing since `at`; what it had of later times is void. Until `final` nothing can become void any more."""
    at = max(at, account.settled)
    earlier = tuple(change for change in account.changes if change.at < at)
    before = earlier[-1].standing if earlier else account.standing
    if at == account.settled:
        changes: tuple[Change, ...] = ()
        account = replace(account, standing=standing)
    else:
        changes = earlier if before is standing else (*earlier, Change(at, standing))
    if changes != account.changes:
        account = replace(account, changes=changes)
    if len(changes) > MOST_CHANGES:
        final = max(final, changes[-MOST_CHANGES].at)
    return _settled(account, final)


def totals(account: Account, until: int) -> Lasted:
    """The parts of the time since the account began. Of what is not final, the time after `until` does not count."""
    lasted = account.lasted
    for standing, since, ended in account.runs(until):
        lasted = lasted.plus(standing, ended - since)
    return lasted


def vacant_within(account: Account, until: int, window: int) -> int:
    """The vacant part of the last `window` before `until`, as in `within`: asked in each tick while nobody leads."""
    begin = max(until - window, account.began)
    spent = sum(bucket.vacant for bucket in _buckets(account, begin, window))
    for standing, since, ended in account.runs(until):
        if standing is Standing.VACANT and ended > begin:
            spent += ended - max(since, begin)
    return min(spent, max(0, until - begin))


def _buckets(account: Account, begin: int, window: int) -> list[Bucket]:
    size, buckets = (MINUTE, account.minutes) if window <= RECENT else (HOUR, account.hours)
    return [bucket for bucket in buckets if bucket.start + size > begin]


def within(account: Account, until: int, window: int) -> Lasted:
    """The parts of the last `window` before `until`, or of the time since the account began. A minute, or an hour (of a window longer than
    RECENT), that began before the window counts with all of its time that was not led.
    """
    begin = max(until - window, account.began)
    buckets = _buckets(account, begin, window)
    parts = {
        Standing.VACANT: sum(bucket.vacant for bucket in buckets),
        Standing.SUSPENDED: sum(bucket.suspended for bucket in buckets),
        Standing.UNOBSERVED: sum(bucket.unobserved for bucket in buckets),
    }
    for standing, since, ended in account.runs(until):
        if standing in parts:
            parts[standing] += max(0, ended - max(since, begin))
    rest = max(0, until - begin)
    lasted = Lasted()
    for standing, part in parts.items():
        lasted = lasted.plus(standing, min(part, rest - lasted.elapsed))  # never more than there was
    return lasted.plus(Standing.LED, rest - lasted.elapsed)


def is_consistent(account: Account) -> bool:
    """Whether an account that others could write adds up."""
    times = (account.began, account.settled, *(change.at for change in account.changes))
    return account.lasted.elapsed == account.settled - account.began and list(times) == sorted(times)


def _settled(account: Account, final: int) -> Account:
    """The account in which the changes until `final` are final."""
    if not account.changes or account.changes[0].at > final:
        return account
    last = [change for change in account.changes if change.at <= final][-1]
    lasted, minutes, hours = account.lasted, account.minutes, account.hours
    for standing, since, ended in account.runs(last.at):
        lasted = lasted.plus(standing, ended - since)
        if standing is not Standing.LED:
            minutes = _spent(minutes, standing, max(since, last.at - RECENT), ended, MINUTE)
            hours = _spent(hours, standing, max(since, last.at - LONGEST), ended, HOUR)
    return replace(
        account,
        settled=last.at,
        standing=last.standing,
        changes=tuple(change for change in account.changes if change.at > last.at),
        lasted=lasted,
        minutes=tuple(bucket for bucket in minutes if bucket.start + MINUTE > last.at - RECENT),
        hours=tuple(bucket for bucket in hours if bucket.start + HOUR > last.at - LONGEST),
    )


def _spent(buckets: tuple[Bucket, ...], standing: Standing, since: int, ended: int, size: int) -> tuple[Bucket, ...]:
    """The buckets with a stretch that was not led."""
    filled = list(buckets)
    while since < ended:
        if not filled or since >= filled[-1].start + size:
            filled.append(Bucket(since // size * size))
        last = filled[-1]
        part = min(ended, last.start + size) - since
        filled[-1] = replace(last, **{standing.value: getattr(last, standing.value) + part})
        since += part
    return tuple(filled)
