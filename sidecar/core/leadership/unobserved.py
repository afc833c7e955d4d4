"""What could not be observed: the changes between two reads of a leader, and for how long no leader worked.

A change is a creation, a set or a deletion. The last one before a read is observed: the node that is there, or its absence.

Three counters, the surest first:
- the `version` of one node (the same czxid) counts how often it was set, whether or not it was observed;
- while a watch delivers each event, the driver counts the changes itself;
- the parent's `cversion` counts new nodes, observed or not; those that are gone were deleted. How often such a node was set is not counted:
  then only a lower bound is known.

In Kubernetes writes are not counted, but elections are, in the lease, since Flink 1.18.

A vacancy is the time without a published leader. One that dies stays published until its ZooKeeper session expires, or until another
holder takes its lease. Its death is bounded: at the earliest when the store last heard of it, at the latest when it cannot have led any
more. "Working" means alive and in contact with the store: a disconnected leader may have continued for a while, and a hanging one may still
be heard.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from msgspec import Struct

from sidecar.core.flink.configmaps import LEASE_MARGIN
from sidecar.core.flink.leadership import Births, ConfigMapPosition, Position, ZNodePosition
from sidecar.core.leadership.leases import Lease, Term, Vacancy, VacancyReason
from sidecar.core.moment import SECOND, Duration, Moment, Steady, in_seconds
from sidecar.core.observations import NodeObserved


class Gap(Struct, frozen=True):
    """Unobserved changes. `exact` is None if only the lower bound `at_least` is known."""

    exact: int | None = 0
    at_least: int = 0

    def __add__(self, more: "Gap") -> "Gap":
        exact = None if self.exact is None or more.exact is None else self.exact + more.exact
        return Gap(exact, self.at_least + more.at_least)


class Loss(Struct, frozen=True):
    """An interval in which this observer could not read the store."""

    began: Moment
    ended: Moment | None = None
    obscured: bool = False
    """Whether leaders became unknown, and no episode is related to it."""


NO_GAP: Final = Gap()
NOT_KNOWABLE: Final = Gap(None)


class Look(Struct, frozen=True, gc=False):
    """The last read of a leader's path, and what was missed since the last recorded transition."""

    path: str
    czxid: int | None
    """None: there was no node."""
    version: int
    births: Births | None
    gap: Gap = NO_GAP


class Elections(Struct, frozen=True, gc=False):
    """The elections that the lease in one ConfigMap had counted at the last read, and how many were not observed since the last recorded
    transition.
    """

    uid: str
    count: int | None
    """None: the lease counts something else."""
    sure: bool
    """Whether it was observed to count elections: until then, nothing is concluded."""
    gap: Gap = NOT_KNOWABLE


def elections_after(before: Elections | None, uid: str, count: int | None, *, sure: bool) -> Elections:
    if before is None:
        return Elections(uid, count, sure)
    if count is None or before.count is None or uid != before.uid or count < before.count:
        return Elections(uid, count, sure, Gap(None, before.gap.at_least))
    return Elections(uid, count, sure, before.gap + _exact_gap(max(0, count - before.count - 1)))


def look(before: Look | None, node: NodeObserved) -> Look:
    """The read that follows `before`. Before the first one nothing counts as missed, but the number is not known either."""
    position = node.position
    missed = _gap_between(before, node)
    return Look(
        node.path,
        position.czxid if position else None,
        position.version if position else 0,
        node.births or _births_still(before, node),
        before.gap + missed if before else missed,
    )


def _gap_between(before: Look | None, node: NodeObserved) -> Gap:
    position = node.position
    if before and position and position.czxid == before.czxid and before.path == node.path:
        sets = position.version - before.version
        return _exact_gap(max(0, sets - 1)) if sets >= 0 else NOT_KNOWABLE  # the store itself went back in time
    if node.writes is not None:
        return _exact_gap(max(0, node.writes - 1))
    if before is None:
        return NOT_KNOWABLE
    sets = position.version if position else 0
    if before.path != node.path:
        return Gap(None, sets)
    stood, stands = int(before.czxid is not None), int(position is not None)
    born = _born_between(before.births, node.births)
    created = stands if born is None else max(born, stands)
    deleted = stood + created - stands
    missed = max(0, created + deleted + sets - 1)
    return _exact_gap(missed) if born is not None and not deleted else Gap(None, missed)


def _born_between(before: Births | None, after: Births | None) -> int | None:
    """How many nodes were created between the two counts, if one parent made both counts."""
    if before is None or after is None or before.parent_czxid != after.parent_czxid:
        return None
    return after.count - before.count if after.count >= before.count else None  # the counter, of 32 bits, began anew


def _births_still(before: Look | None, node: NodeObserved) -> Births | None:
    """The previous count, if no new node was created since."""
    if before is None or before.path != node.path:
        return None
    same_node = node.position is not None and node.position.czxid == before.czxid
    return before.births if same_node or (node.position is None and node.writes == 0) else None


def _exact_gap(writes: int) -> Gap:
    return Gap(writes, writes)


TICK: Final = 2 * SECOND
"""ZooKeeper's default `tickTime`: it expires sessions at multiples of a tick, and grants none that is shorter than two."""


class LastLed(Struct, frozen=True):
    """When a leader that is gone may have worked last (steady)."""

    earliest: Steady | None
    """A time at which it is known to have worked. None: not known."""
    latest: Steady | None
    """The time after which it cannot have worked. None: not known."""


class Downtime(Struct, frozen=True):
    """For how long no leader worked (microseconds)."""

    at_least: Duration = 0
    at_most: Duration | None = 0
    """None: not known."""

    def __add__(self, more: "Downtime") -> "Downtime":
        at_most = None if self.at_most is None or more.at_most is None else self.at_most + more.at_most
        return Downtime(self.at_least + more.at_least, at_most)


def longest(downs: Sequence[Downtime]) -> Downtime | None:
    """Bounds of the longest of these; None of none."""
    if not downs:
        return None
    at_most = [down.at_most for down in downs if down.at_most is not None]
    return Downtime(max(down.at_least for down in downs), max(at_most) if len(at_most) == len(downs) else None)


class Bounds(TypedDict):
    """The bounds of a downtime as fields of a record. None: not known."""

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
    """The position of its address in the store."""
    at: int
    """When its absence was observed (steady)."""
    written_at: int | None
    """When the leader was observed to publish itself. None: it led already at the first observation."""
    vacancy: Vacancy | None
    """Why there is no leader, in Kubernetes."""
    in_sight: bool
    """Whether the store was observed without a gap, so that the loss was observed when it happened."""


def last_led(gone: Gone, session_timeout: int | None, loss: Loss | None, leases: Mapping[str, Lease]) -> LastLed:
    """When the leader that is gone may have worked last. `session_timeout`: of its ZooKeeper client, where known; `leases`: as they were
    before it was gone."""
    match gone.position:
        case ZNodePosition() as position:
            return LastLed(_expired(gone, position, session_timeout, loss), gone.at)
        case ConfigMapPosition() as position:
            term = Term(position.holder_identity, position.acquire_time)
            return _not_renewed(gone, leases.get(position.name), term, loss)


def ended_at(led: LastLed | None, at: int) -> LastLed:
    """`led` for a leader whose process ended at `at` (steady, from the kernel): it worked until then at the latest."""
    latest = at if led is None or led.latest is None else min(led.latest, at)
    return LastLed(latest, latest)


def downtime_since(led: LastLed, at: int, *, same_leader: bool) -> Downtime:
    """The time without a working leader until one leads at `at`. The same leader may have worked all the time."""
    at_least = 0 if same_leader or led.latest is None else max(0, at - led.latest)
    return Downtime(at_least, None if led.earliest is None else max(0, at - led.earliest))


def _expired(gone: Gone, position: ZNodePosition, session_timeout: int | None, loss: Loss | None) -> int | None:
    """When the server last heard of a session that has expired, at the earliest."""
    if session_timeout is None or not position.ephemeral_owner:
        return None
    longest = max(session_timeout, 2 * TICK) + TICK
    valid_at = gone.at
    if loss and (loss.ended is None or gone.at - loss.ended.steady <= longest):
        valid_at = loss.began.steady  # after an outage ZooKeeper restarts the timeout of all sessions
    return max(valid_at - longest, gone.written_at or 0)


def _not_renewed(gone: Gone, lease: Lease | None, term: Term, loss: Loss | None) -> LastLed:
    if gone.vacancy and gone.vacancy.reason is VacancyReason.REMOVED and gone.in_sight:
        return LastLed(gone.at, gone.at)
    if lease is None or lease.term != term or lease.renewed_at is None:
        return LastLed(None, gone.at)
    store_away = loss is not None and (loss.ended is None or loss.ended.steady >= lease.renewed_at)
    if lease.renewed_every is None or store_away:  # during an outage no renewal is missed
        return LastLed(lease.renewed_at, gone.at)
    missed = lease.renewed_at + lease.renewed_every + LEASE_MARGIN
    return LastLed(lease.renewed_at, min(gone.at, missed))
