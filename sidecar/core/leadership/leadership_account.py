"""Accounts of one cluster over time: how long it was led, and whether its leader has had a standby.

Every microsecond since the account of leadership began is led, vacant, suspended or unobserved, and only one of them.
Led: this observer sees that dispatcher, resource manager and REST server have a leader. Vacant: it sees that one of them has none, also
in a planned failover. Suspended: the same while the cluster's FlinkDeployment is suspended or deleted. Unobserved: all other time, also
that in which this sidecar did not run. Jobs do not count: their leaders are in the process that leads the dispatcher.

The edges are those of the coverage records and transitions, so that the audit (`leadership_slo`) comes to the same figures.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment, Steady

MOST_CHANGES: Final = 32
"""The most changes kept that may turn out to have been unobserved."""


class Standing(StrEnum):
    """How one moment of a cluster counts in its account."""

    LED = "led"
    VACANT = "vacant"
    SUSPENDED = "suspended"
    UNOBSERVED = "unobserved"


class Change(Struct, frozen=True, array_like=True):
    """The standing from `at` on (steady)."""

    at: Steady
    standing: Standing


class Lasted(Struct, frozen=True):
    """The parts of a time (microseconds)."""

    led: int = 0
    vacant: int = 0
    suspended: int = 0
    unobserved: int = 0

    def plus(self, standing: Standing, duration: int) -> "Lasted":
        """These parts with `duration` more of `standing`."""
        return replace(self, **{standing.value: getattr(self, standing.value) + duration})


class Account(Struct, frozen=True):
    """The account of one cluster. It changes when the standing does, never because time passes."""

    settled: Steady
    """The time (steady) up to which `lasted` is final."""
    standing: Standing = Standing.UNOBSERVED
    """The standing from `settled` on."""
    changes: tuple[Change, ...] = ()
    """Later ones, the oldest first: a view that turns out to be stale was blind since its last confirmation, which may be before them."""
    lasted: Lasted = Lasted()

    @property
    def now(self) -> Standing:
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
    return Account(at)


def changed(account: Account, standing: Standing, at: int, final: int) -> Account:
    """The account with another standing since `at`; what it had of later times is void. Until `final` nothing can become void any more."""
    at = max(at, account.settled)
    earlier = tuple([change for change in account.changes if change.at < at])
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


def _settled(account: Account, final: int) -> Account:
    """The account in which the changes until `final` are final."""
    if not account.changes or account.changes[0].at > final:
        return account
    last = [change for change in account.changes if change.at <= final][-1]
    later = tuple(change for change in account.changes if change.at > last.at)
    return replace(account, settled=last.at, standing=last.standing, changes=later, lasted=totals(account, last.at))


# -- the standby ------------------------------------------------------------------------------------------------------
#
# A standby that has left is lacked until it has contended for two minutes, and then for as long as it was lacked: one that crashes again
# and again comes back each time, and none of these times makes up for the one before. The state has a fixed size, whatever happens.

STANDBY_AGE: Final = 120 * SECOND
"""How long several must have contended before one of them counts as a standby: a restarted JobManager contends beside the latch of its
predecessor until that session expires."""
MOST_LACKED: Final = 600 * SECOND
"""The most time without a standby that has to be made up for."""
MOST_LEFT: Final = 1_000_000


class Standby(Struct, frozen=True):
    """Whether a leader has had a standby, as far as is known."""

    several_since: Moment | None = None
    """Since when several JobManagers contend, or contended until one was left."""
    alone_since: Moment | None = None
    """Since when one JobManager contends after there was a standby."""
    lacking_since: Moment | None = None
    """Since when the standby is unreliable: when it left, as long as the time without it is not made up for."""
    left: Annotated[int, Meta(ge=0, le=MOST_LEFT)] = 0
    """How often the standby has left since `lacking_since`."""
    lacked: Annotated[int, Meta(ge=0, le=MOST_LACKED)] = 0
    """Microseconds still to be made up for when several, or one, began to contend: see `counted_at`."""
    counted_at: Moment | None = None

    @property
    def loops(self) -> bool:
        """Whether the standby comes back and leaves again."""
        return self.left > 1

    def with_contenders(self, number: int, at: Moment) -> "Standby":
        if number > 1:
            if self.several_since and not self.alone_since:
                return self
            lacked = self.lacked_at(at) if self.lacking_since else 0
            return Standby(at, None, self.lacking_since, self.left, lacked, at)
        if number == 0 or self.alone_since or self.several_since is None:
            return self
        now = self.settled(at)
        if now.lacking_since is None and at.steady - self.several_since.steady < STANDBY_AGE:
            return Standby()
        lacked = now.lacked_at(at) if now.lacking_since else 0
        left = min(now.left + 1, MOST_LEFT)
        return Standby(now.several_since, at, now.lacking_since or at, left, lacked, at)

    def settled(self, at: Moment) -> "Standby":
        """The standby at this time: all that was lacked may be made up for."""
        if self.lacking_since is None or self.alone_since or self.lacked_at(at):
            return self
        return Standby(several_since=self.several_since)

    def lacked_at(self, at: Moment) -> int:
        """The time without a standby that is still to be made up for at `at`. A standby that has just come back does not count yet."""
        elapsed = max(0, at.steady - self.counted_at.steady) if self.counted_at else 0
        unproven = elapsed if self.alone_since else min(elapsed, STANDBY_AGE)
        return max(0, min(self.lacked + unproven, MOST_LACKED) - (elapsed - unproven))
