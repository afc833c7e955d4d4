"""Which clusters there are below a root: found by lists of children, each with a one-shot watch."""

from collections import deque
from typing import Final

from msgspec import Struct

from sidecar.core.flink import znode_paths
from sidecar.drivers.zookeeper.session import (
    Absent,
    Answer,
    Children,
    Interrupted,
    Present,
    Question,
    Refused,
    TooManyChildren,
)

ROOT: Final = "/"
_LEADER: Final = znode_paths.LEADER
_REMAINS: Final = znode_paths.OWN_NAMES - {_LEADER[1:], znode_paths.JOBS[1:]}
"""What only Flink makes: a path that has one of them is, was or will be a cluster's."""
_MOST_PARTS: Final = 7
"""Of a path that is listed: a cluster id may be a path itself, and the last part is `leader`."""
_LONGEST_PATH: Final = 260


class _Folder(Struct, eq=False):
    names: tuple[str, ...] = ()
    below: frozenset[str] = frozenset()
    """The paths below it that are listed, too."""
    left_out: int = 0
    """How many more there are: they are too many."""
    is_cluster: bool = False
    reading: bool = False
    stale: bool = False
    """It changed while it was read."""
    refused: bool = False
    absent: bool = False
    """It did not exist when it was last asked for: nothing was watched then."""


class Discovery:
    """Lists the root and what is below it, except what Flink itself keeps there. Paths are below the root, which is `/`."""

    def __init__(self, most: int) -> None:
        """`most`: paths that are listed."""
        self.clusters: Final = set[str]()
        """Their ids: paths without the first slash."""
        self.problem: str | None = None
        """Why the root cannot be listed."""
        self.refused: tuple[str, str] | None = None
        """A path below it that could not be listed, and why; whoever logs it sets it to None."""
        self.left_out = 0
        """Paths that are not listed: there are too many."""
        self._most = most
        self._folders = {ROOT: _Folder()}
        self._queue: deque[tuple[Question, str]] = deque()
        self._unread: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """Whether everything has been listed since `read_all`."""
        return not self._unread and self.problem is None

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def read_all(self) -> None:
        """Start over, on a new connection."""
        self._queue.clear()
        self._unread = {*self._folders}
        for path, folder in self._folders.items():
            folder.reading = False
            self._ask(path)

    def next(self) -> tuple[Question, str] | None:
        """The next question, if any. It is to set a one-shot watch."""
        return self._queue.popleft() if self._queue else None

    def happened(self, path: str) -> None:
        """The children of a path have changed, or it came or went."""
        if path in self._folders:
            self._ask(path)

    def read_refused(self) -> None:
        for path, folder in self._folders.items():
            if folder.refused:
                self._ask(path)

    def answered(self, path: str, answer: Answer) -> None:
        folder = self._folders.get(path)
        if folder is None or isinstance(answer, Interrupted):
            return
        folder.reading = False
        was_absent, folder.absent = folder.absent, isinstance(answer, Absent)
        problem = self._learn(path, folder, answer)
        if path == ROOT and folder.absent and not was_absent:
            folder.reading = True
            self._queue.append((Question.EXISTS, ROOT))  # its watch reports when the root is created
        if path == ROOT:
            self.problem = problem
        elif problem and not folder.refused:
            self.refused = path, problem
        folder.refused = bool(problem) and not isinstance(answer, Absent)
        self._unread.discard(path)
        if folder.stale or isinstance(answer, Present):
            self._ask(path)

    def _learn(self, path: str, folder: _Folder, answer: Answer) -> str | None:
        """Returns why the path could not be listed."""
        match answer:
            case Children(names):
                self._arrange(path, folder, names)
            case Absent():
                self._arrange(path, folder, ())
                return "it does not exist: check zookeeper.root" if path == ROOT else None
            case TooManyChildren(count):
                return f"its {count} children are too many"
            case Refused(reason):
                return reason
        return None

    def _arrange(self, path: str, folder: _Folder, names: tuple[str, ...]) -> None:
        """The children of `path` are known: what is it, and what is listed below it?"""
        folder.names = names
        parent, _, name = path.rpartition("/")
        if f"/{name}" == _LEADER and (above := self._folders.get(parent)):
            self._decide(parent, above)
            if path not in self._folders:
                return  # it is Flink's
        if path != ROOT:
            self._decide(path, folder)
        self._follow(path, folder)

    def _decide(self, path: str, folder: _Folder) -> None:
        """Whether `path` is a cluster, and what that changes below it."""
        leader = self._folders.get(path + _LEADER)
        was, folder.is_cluster = (
            folder.is_cluster,
            _LEADER[1:] in folder.names
            and (folder.is_cluster or znode_paths.is_cluster(folder.names, leader.names if leader else ())),
        )
        if folder.is_cluster is not was:
            (self.clusters.add if folder.is_cluster else self.clusters.discard)(path[1:])
            self._follow(path, folder)

    def _follow(self, path: str, folder: _Folder) -> None:
        """List what may be a cluster, or lead to one."""
        wanted = {*folder.names}
        if folder.is_cluster:
            wanted -= znode_paths.OWN_NAMES
        elif not _REMAINS.isdisjoint(wanted):
            wanted -= znode_paths.OWN_NAMES - {_LEADER[1:]}
        elif path.endswith(_LEADER):
            wanted = {name for name in wanted if not znode_paths.is_leaders_child(name)}
        prefix = path.rstrip("/")
        below = {f"{prefix}/{name}" for name in wanted if path.count("/") < _MOST_PARTS}
        for child in [child for child in below if len(child) > _LONGEST_PATH or not child.isprintable()]:
            below.discard(child)
            self.refused = child, "its name is too long, or cannot be shown"
        for child in folder.below - below:
            self._drop(child)
        listed = set(folder.below & below)
        for child in listed:
            if self._folders[child].absent:  # it came back before its absence was known here
                self._ask(child)
        self.left_out -= folder.left_out
        for child in sorted(below - listed):
            if len(self._folders) < self._most:
                listed.add(child)
                self._folders[child] = _Folder()
                self._unread.add(child)
                self._ask(child)
        folder.below = frozenset(listed)
        folder.left_out = len(below - listed)
        self.left_out += folder.left_out

    def _drop(self, path: str) -> None:
        folder = self._folders.pop(path)
        self.left_out -= folder.left_out
        self._unread.discard(path)
        self.clusters.discard(path[1:])
        for child in folder.below:
            self._drop(child)

    def _ask(self, path: str) -> None:
        folder = self._folders[path]
        folder.stale = folder.reading
        if not folder.reading:
            folder.reading, folder.absent = True, False
            self._queue.append((Question.CHILDREN, path))
