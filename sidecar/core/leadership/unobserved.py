"""Unobserved changes: how many lie between two reads of a leader's znode, by the counters that ZooKeeper keeps.

A change is a creation, a set or a deletion. The last one before a read is observed: the node that is there, or its absence.

Three counters, the surest first:
- the `version` of one node (the same czxid) counts how often it was set, whether or not it was observed;
- while a watch delivers each event, the driver counts the changes itself;
- the parent's `cversion` counts new nodes, observed or not; those that are gone were deleted. How often such a node was set is not counted:
  then only a lower bound is known.

In Kubernetes writes are not counted, but elections are, in the lease, since Flink 1.18.
"""

from typing import Final

from msgspec import Struct

from sidecar.core.flink.leadership import Births
from sidecar.core.moment import Moment
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
    """The elections that follow `before`."""
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
