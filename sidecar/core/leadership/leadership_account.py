"""Accounts how long a cluster was led: every microsecond since the account began is led, vacant, suspended or unobserved, and only one of
them.

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

from sidecar.core.moment import Steady

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
