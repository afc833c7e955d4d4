"""One watched path: where its reading stands, and what has been heard since it was last told of."""

from typing import NamedTuple

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import Births
from sidecar.drivers.zookeeper.session import Answer, Question


class Watched:
    """One path, and where its reading stands."""

    __slots__ = (
        "births",
        "counted",
        "events",
        "heard",
        "names",
        "past",
        "path",
        "question",
        "reading",
        "refused",
        "resting",
        "seen",
        "stale",
        "unrest",
        "value",
    )

    def __init__(self, path: str, question: Question) -> None:
        self.path = path
        self.question = question
        self.names: tuple[str, ...] = ()
        """The children of a list that leads on, also as an earlier connection saw them."""
        self.value: int | None = None
        """The hash of the last value."""
        self.past: tuple[int, ...] = ()
        """Those of the few before it, the latest first, to know one that comes back."""
        self.unrest: tuple[float, ...] = ()
        """When (monotonic) it was deleted, or, weighing more, a value came back that others had replaced: the latest of it."""
        self.forget()

    def forget(self) -> None:
        """Begin anew, on a new connection."""
        self.reading = False
        """A question is queued or under way: never more than one."""
        self.stale = False
        """It changed while it was read, so the answer may be old."""
        self.resting = False
        """It is contested: read now and then, its changes counted."""
        self.refused = False
        self.seen: object = None
        """What was last learnt on this connection (of a value its position; a list that is absent is empty); None: nothing yet."""
        self.events = 0
        """Writes heard of since it was last told of; of a list, children that came or went."""
        self.heard = False
        """Whether anything was heard since then."""
        self.counted = False
        """Whether all writes since then were heard."""
        self.births: Births | None = None

    @property
    def leads_on(self) -> bool:
        """Whether what else to watch depends on it."""
        return self.question is Question.CHILDREN and znode_paths.leads_on(self.path)

    @property
    def idle(self) -> bool:
        """Nothing is on its way."""
        return not self.reading and not self.resting


class Ask(NamedTuple):
    """A question on behalf of `watched`: its own, or how often there was a new node (`path` is its parent)."""

    watched: Watched
    question: Question
    path: str


class PlaceGone(NamedTuple):
    """The parent of a leader's path is gone too."""


class WatchReport(NamedTuple):
    """News of a watched path."""

    watched: Watched
    answer: Answer | PlaceGone
    writes: int | None
    births: Births | None
