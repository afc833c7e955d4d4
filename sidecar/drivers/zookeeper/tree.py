"""Which paths are watched, which of them is to be read next, and what of the answers was news."""

from collections import deque

from sidecar.core import layout
from sidecar.core.leadership import ZNodePosition
from sidecar.drivers.zookeeper.session import Absent, Answer, Children, Interrupted, Present, Question, Refused, Value

_DISCOVERY = frozenset({layout.LEADER, layout.JOBS})
"""The lists that say which leader nodes there are. The core is not told of them."""

_NOTHING = (Absent(), Children(()))


class Watched:
    """One path, and where its reading stands."""

    __slots__ = ("changed", "names", "next", "path", "question", "reading", "refused", "seen")

    def __init__(self, path: str, question: Question) -> None:
        self.path = path
        self.question = question
        self.next = question
        """What to ask now, or what was asked last."""
        self.reading = False
        """A question is queued or under way: never more than one."""
        self.changed = False
        """It changed while it was read, so the answer may be old."""
        self.refused = False
        self.seen: object = None
        """What was last learnt on this connection (of a value its position; a list that is absent is empty); None: nothing yet."""
        self.names: tuple[str, ...] = ()
        """The children of a list of discovery, also as an earlier connection saw them."""


class Tree:
    """All paths of one cluster that matter, as `layout.wanted` finds them from list to list.

    A path that is no longer wanted stays until it was seen absent, so that its end is told.
    """

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}
        self._wanted = layout.wanted({})
        self._queue: deque[Watched] = deque()
        self._unread: set[Watched] | None = None

    def read_all(self) -> None:
        """Begin again, on a new connection: nothing is under way, every answer will be news."""
        self._queue.clear()
        self._unread = set(self._watched.values())
        for watched in self._unread:
            watched.seen = None
            self._ask(watched, watched.question)
        self._follow_lists()

    def changed(self, path: str) -> None:
        """Something happened to `path`: read it, and once more if it is being read."""
        watched = self._watched.get(path)
        if watched is None:
            return
        if watched.reading:
            watched.changed = True
        else:
            self._ask(watched, watched.question)

    def deleted(self, path: str) -> bool:
        """`path` ceased to be. True when a value was known of it."""
        watched = self._watched.get(path)
        had_value = watched is not None and isinstance(watched.seen, ZNodePosition)
        if watched is not None and had_value:
            watched.seen = Absent()
        self.changed(path)
        return had_value

    def read_refused(self) -> None:
        """Try again what the server would not say: no watch was left there."""
        for watched in self._watched.values():
            if watched.refused:
                self.changed(watched.path)

    def next(self) -> Watched | None:
        """Whose question to ask now (`Watched.next`), if any."""
        return self._queue.popleft() if self._queue else None

    def answered(self, watched: Watched, answer: Answer) -> bool:
        """Take in what `watched` was answered. True when it was not known on this connection."""
        if self._watched.get(watched.path) is not watched or isinstance(answer, Interrupted):
            return False
        watched.reading = False
        watched.refused = isinstance(answer, Refused)
        for_creation = watched.next is Question.EXISTS
        news = not for_creation and self._learn(watched, answer)
        if watched.changed or isinstance(answer, Present):
            self._ask(watched, watched.question)
        elif isinstance(answer, Absent) and not for_creation:
            if self._is_wanted(watched.path):
                self._ask(watched, Question.EXISTS)
            else:
                del self._watched[watched.path]
        return news

    def completed(self) -> bool:
        """Whether everything has been read since `read_all`; true once. A list of discovery that is refused keeps it from being so."""
        if self._unread is None or self._unread:
            return False
        self._unread = None
        return True

    def _ask(self, watched: Watched, question: Question) -> None:
        watched.next = question
        watched.reading = True
        watched.changed = False
        self._queue.append(watched)

    def _learn(self, watched: Watched, answer: Answer) -> bool:
        seen: object = answer
        if isinstance(answer, Value):
            seen = answer.position
        elif isinstance(answer, Absent) and watched.question is Question.CHILDREN:
            seen = Children(())
        news = seen != watched.seen
        watched.seen = seen
        discovers = watched.path in _DISCOVERY
        if self._unread and not (discovers and watched.refused):
            self._unread.discard(watched)
        if news and discovers and not watched.refused:
            watched.names = answer.names if isinstance(answer, Children) else ()
            self._follow_lists()
        return news

    def _follow_lists(self) -> None:
        names = {path: self._watched[path].names for path in _DISCOVERY if path in self._watched}
        self._wanted = layout.wanted(names)
        for paths, question in ((self._wanted.lists, Question.CHILDREN), (self._wanted.nodes, Question.VALUE)):
            for path in paths - self._watched.keys():
                watched = self._watched[path] = Watched(path, question)
                if self._unread is not None:
                    self._unread.add(watched)
                self._ask(watched, question)
        for watched in [w for w in self._watched.values() if not self._is_wanted(w.path)]:
            if watched.seen in _NOTHING or watched.path in _DISCOVERY:
                del self._watched[watched.path]
                if self._unread:
                    self._unread.discard(watched)

    def _is_wanted(self, path: str) -> bool:
        return path in self._wanted.nodes or path in self._wanted.lists
