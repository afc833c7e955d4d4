"""For how long no leader worked: bounds, where a vacancy says only for how long none was published.

A leader that dies stays published until its ZooKeeper session expires, or until another holder takes its lease. What is known of its death
is when the store last heard of it, at the earliest, and when it cannot have led any more, at the latest. To work means here: to be alive
and in contact with the store. A leader that was cut off from the store may have gone on for a while, and one that hangs may be heard.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from msgspec import Struct

from sidecar.core.cluster.causes import Loss
from sidecar.core.cluster.leases import Lease, Term
from sidecar.core.cluster.vacancy import Vacancy, VacancyReason
from sidecar.core.flink.configmaps import LEASE_MARGIN
from sidecar.core.flink.leadership import ConfigMapPosition, Position, ZNodePosition
from sidecar.core.moment import SECOND, in_seconds

TICK: Final = 2 * SECOND
"""ZooKeeper's default `tickTime`: it expires sessions at multiples of a tick, and grants none that is shorter than two."""


class LastLed(Struct, frozen=True):
    """When a leader that is gone may have worked last (steady)."""

    earliest: int | None
    """It is known to have worked then. None: not known of any time."""
    latest: int | None
    """It cannot have worked after that. None: not known of any time."""


class Downtime(Struct, frozen=True):
    """For how long no leader worked (microseconds)."""

    at_least: int = 0
    at_most: int | None = 0
    """None: not known."""

    def __add__(self, more: "Downtime") -> "Downtime":
        at_most = None if self.at_most is None or more.at_most is None else self.at_most + more.at_most
        return Downtime(self.at_least + more.at_least, at_most)


def longest(known: Sequence[Downtime]) -> Downtime | None:
    """Bounds of the longest of these; None of none."""
    if not known:
        return None
    at_most = [each.at_most for each in known if each.at_most is not None]
    return Downtime(max(each.at_least for each in known), max(at_most) if len(at_most) == len(known) else None)


class Bounds(TypedDict):
    """As records have them. None: not known."""

    downtime_seconds_at_least: float | None
    downtime_seconds_at_most: float | None


def bounds_in_seconds(down: Downtime | None) -> Bounds:
    """The bounds as fields of a record. None, and what bounds nothing: both are not known."""
    if down is None or down == Downtime(0, None):
        return {"downtime_seconds_at_least": None, "downtime_seconds_at_most": None}
    at_most = None if down.at_most is None else in_seconds(down.at_most)
    return {"downtime_seconds_at_least": in_seconds(down.at_least), "downtime_seconds_at_most": at_most}


class Gone(Struct, frozen=True):
    """A leader that is not published any more."""

    position: Position
    """Where it was."""
    at: int
    """When that was seen (steady)."""
    written_at: int | None
    """When it was observed to publish itself; None: it led already at the first observation."""
    vacancy: Vacancy | None
    """Why there is no leader, in Kubernetes."""
    in_sight: bool
    """Whether the store was observed all the time, so that the loss was seen when it happened."""


def last_led(gone: Gone, session_timeout: int | None, loss: Loss | None, known: Mapping[str, Lease]) -> LastLed:
    """When it worked last. `session_timeout`: of its ZooKeeper client, where known; `known`: the leases before it was gone."""
    match gone.position:
        case ZNodePosition() as position:
            return LastLed(_expired(gone, position, session_timeout, loss), gone.at)
        case ConfigMapPosition() as position:
            term = Term(position.holder_identity, position.acquire_time)
            return _not_renewed(gone, known.get(position.name), term, loss)


def until(led: LastLed, at: int, *, same_leader: bool) -> Downtime:
    """For how long no leader worked until one leads `at` that time. The same one may have worked all the time."""
    at_least = 0 if same_leader or led.latest is None else max(0, at - led.latest)
    return Downtime(at_least, None if led.earliest is None else max(0, at - led.earliest))


def _expired(gone: Gone, position: ZNodePosition, session_timeout: int | None, loss: Loss | None) -> int | None:
    """When the server last heard of a session that has expired, at the earliest."""
    if session_timeout is None or not position.ephemeral_owner:
        return None
    longest = max(session_timeout, 2 * TICK) + TICK
    valid_at = gone.at
    if loss and (loss.ended is None or gone.at - loss.ended.steady <= longest):
        valid_at = loss.began.steady  # a ZooKeeper that was away gives all sessions their whole time again
    return max(valid_at - longest, gone.written_at or 0)


def _not_renewed(gone: Gone, lease: Lease | None, term: Term, loss: Loss | None) -> LastLed:
    if gone.vacancy and gone.vacancy.reason is VacancyReason.REMOVED and gone.in_sight:
        return LastLed(gone.at, gone.at)
    if lease is None or lease.term != term or lease.renewed_at is None:
        return LastLed(None, gone.at)
    store_away = loss is not None and (loss.ended is None or loss.ended.steady >= lease.renewed_at)
    if lease.renewed_every is None or store_away:  # a renewal that nobody could write is not missed
        return LastLed(lease.renewed_at, gone.at)
    missed = lease.renewed_at + lease.renewed_every + LEASE_MARGIN
    return LastLed(lease.renewed_at, min(gone.at, missed))
