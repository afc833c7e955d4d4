"""One watched path: the state of its reading, and the watch events since its last report."""

from typing import NamedTuple

from msgspec import Struct

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import Births
from sidecar.drivers.zookeeper.zookeeper_session import Absent, Answer, Children, Question, TooManyChildren, Value

DISCOVERY = frozenset({znode_paths.LEADER, znode_paths.JOBS})
"""The lists that lead to all leaders."""

_CHURN = 100
_CHURN_SECONDS = 10.0
_RETURN_WEIGHT = 10
_VALUES_REMEMBERED = 3


class Watched(Struct, eq=False):
    """One path. Fields up to `churn` also describe earlier connections, all others only this one."""

    path: str
    question: Question
    names: tuple[str, ...] = ()
    """The children of a list that leads to other paths."""
    value: int | None = None
    """The hash of the last value."""
    past: tuple[int, ...] = ()
    """The hashes of a few earlier values, latest first."""
    churn: tuple[float, ...] = ()
    """The time (monotonic) at which the node was deleted or, with more weight, an earlier value came back. Bounded."""
    reading: bool = False
    """A question is queued or in progress: never more than one."""
    stale: bool = False
    """The path changed while it was read, so the answer may be old."""
    refused: bool = False
    state: object = None
    """The last answer, as `state_in` reads it; None: none yet."""
    events: int = 0
    """Writes since the last report; of a list, children created or deleted."""
    notified: bool = False
    """True if any watch event arrived since the last report."""
    counted: bool = False
    """True if `events` counts all writes since the last report."""
    births: Births | None = None

    def renewed(self) -> "Watched":
        """This path as it begins on a new connection."""
        return Watched(self.path, self.question, self.names, self.value, self.past, self.churn)

    @property
    def leads_on(self) -> bool:
        """True if other paths to watch depend on this list."""
        return self.question is Question.CHILDREN and znode_paths.leads_on(self.path)

    @property
    def was_written(self) -> bool:
        """True if something was written since the last report, for certain."""
        return self.counted and self.events > 0

    def state_in(self, answer: Answer) -> object:
        """The part of an answer that is equal in two answers of one state: the position of a value; not the number of too many children; an
        absent list is an empty one.
        """
        match answer:
            case Value(position=position):
                return position
            case TooManyChildren():
                return TooManyChildren
            case Absent() if self.question is Question.CHILDREN:
                return Children(())
            case _:
                return answer

    def names_in(self, answer: Answer) -> tuple[str, ...]:
        """The children that an answer has of a list that leads to other paths."""
        match answer:
            case Children(names):
                return names
            case TooManyChildren() if self.path == znode_paths.LEADER:
                return (znode_paths.LATCH.rpartition("/")[2],)  # a layout with so many jobs has a latch
            case _:
                return ()

    def note_value(self, value: int, now: float) -> bool:
        """Remember the hash of a value that was read. Returns whether the path is contested: an earlier value came back too often."""
        if value == self.value:
            return False
        contested = value in self.past and self.note_churn(now, _RETURN_WEIGHT)
        if self.value is not None:
            self.past = (self.value, *(other for other in self.past if other != value))[:_VALUES_REMEMBERED]
        self.value = value
        return contested

    def note_churn(self, now: float, weight: int = 1) -> bool:
        """Count a deletion, or the return of a value. Returns whether the path is contested.

        Two processes that delete each other's node as fast as they can would cause as many reads and reports.
        """
        self.churn = (*self.churn, *(now,) * weight)[-_CHURN:]
        return len(self.churn) == _CHURN and now - self.churn[0] <= _CHURN_SECONDS


class Ask(NamedTuple):
    """A question for `watched`: its own, or how often its parent `path` had a new child."""

    watched: Watched
    question: Question
    path: str


class ParentGone(NamedTuple):
    """The parent of a leader's path was deleted, too."""


class WatchReport(NamedTuple):
    """A change of a watched path."""

    watched: Watched
    answer: Answer | ParentGone
    writes: int | None
    births: Births | None
