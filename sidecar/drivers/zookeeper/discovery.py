"""Finds the clusters below a root by lists of children, each with a one-shot watch."""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from msgspec import Struct

from sidecar.core.bounds import STORE_LIST
from sidecar.core.flink import znode_paths
from sidecar.drivers.shares import Shares, folder_of
from sidecar.drivers.zookeeper.zookeeper_session import (
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
"""The names that only Flink uses: a path with one of them is, was or will be a cluster's."""
_MOST_PARTS: Final = 7
"""The most parts of a path that is listed: a cluster id may be a path itself, and the last part is `leader`."""
_LONGEST_PATH: Final = 260


class _Folder(Struct, eq=False):
    own: frozenset[str] = frozenset()
    """The children that show whether it is a cluster: Flink's own, and one leader."""
    below: frozenset[str] = frozenset()
    """The paths below it that are listed, too. Others are only counted: anybody may create as many as they like."""
    left_out: int = 0
    """The number of children beyond those that are listed."""
    is_cluster: bool = False
    reading: bool = False
    stale: bool = False
    """True if the folder changed while it was read."""
    refused: bool = False
    too_long: bool = False
    """True if the folder's list is too long to be read: it is then read now and then, not at each change."""
    absent: bool = False
    """True if the folder did not exist when it was last asked for: nothing was watched then."""


class Discovery:
    """Lists the root and what is below it, except what Flink itself keeps there. Paths are below the root, which is `/`.

    Whoever writes to one folder below the root uses up at most half of what the others leave, and so does who writes directly to the root.
    """

    def __init__(self, most: int, known: Iterable[str] = ()) -> None:
        """`most`: paths that are listed. `known`: clusters that were watched before; theirs come first."""
        self.clusters: Final = set[str]()
        """The ids of the clusters: paths without the first slash."""
        self.problem: str | None = None
        """Why the root cannot be listed."""
        self.refused: tuple[str, str] | None = None
        """A path below it that could not be listed, and why; whoever logs it sets it to None."""
        self.left_out: Final = Counter[str]()
        """Paths that are not listed because there are too many, by the folder below the root; "": the root itself."""
        self._shares = Shares(most)
        self._has_room = False
        """True if there are fewer paths than when those that are left out were counted."""
        self._known = _paths_to(known)
        self._folders = {ROOT: _Folder()}
        self._queue: deque[tuple[Question, str]] = deque()
        self._unread: set[str] = set()

    @property
    def is_complete(self) -> bool:
        """True if everything has been listed since `read_all`."""
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
        folder = self._folders.get(path)
        if folder and not folder.too_long:
            self._ask(path)

    def read_refused(self) -> None:
        has_room, self._has_room = self._has_room, False
        for path, folder in self._folders.items():
            if folder.refused or (has_room and folder.left_out):
                self._ask(path)

    def answered(self, path: str, answer: Answer) -> None:
        folder = self._folders.get(path)
        if folder is None or isinstance(answer, Interrupted):
            return
        folder.reading = False
        if isinstance(answer, Children) and len(answer.names) > STORE_LIST.most_items:
            answer = TooManyChildren(len(answer.names))
        folder.too_long = isinstance(answer, TooManyChildren)
        was_absent, folder.absent = folder.absent, isinstance(answer, Absent)
        problem = self._learn(path, folder, answer)
        if path == ROOT and folder.absent and not was_absent:
            folder.reading = True
            self._queue.append((Question.EXISTS, ROOT))  # its watch reports when the root is created
        if path == ROOT:
            self.problem = None if folder.too_long else problem
        if problem and not folder.refused and (path != ROOT or folder.too_long):
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
                # What is listed has a watch of its own, so it can stay; and a cluster that was watched before is found without the list.
                parent = path.rstrip("/")
                before = {known.rpartition("/")[2] for known in self._known if known.rpartition("/")[0] == parent}
                self._follow(path, folder, {*folder.own, *map(_name, folder.below), *before})
                self._leave_out(path, folder, max(0, count - len(folder.below)))
                return f"its {count} children are too many"
            case Refused(reason):
                return reason
        return None

    def _arrange(self, path: str, folder: _Folder, names: tuple[str, ...]) -> None:
        """The children of `path` are known: what is it, and what is listed below it?"""
        a_leader = next(filter(znode_paths.is_leaders_child, names), None)
        folder.own = znode_paths.OWN_NAMES.intersection(names) | ({a_leader} if a_leader else set())
        parent, _, name = path.rpartition("/")
        if f"/{name}" == _LEADER and (above := self._folders.get(parent)):
            self._decide(parent, above)
            if path not in self._folders:
                return  # it is Flink's
        if path != ROOT:
            self._decide(path, folder)
        self._follow(path, folder, names)

    def _decide(self, path: str, folder: _Folder) -> None:
        """Decides whether `path` is a cluster, and what that changes below it."""
        leader = self._folders.get(path + _LEADER)
        was, folder.is_cluster = (
            folder.is_cluster,
            _LEADER[1:] in folder.own
            and (folder.is_cluster or znode_paths.is_cluster(folder.own, leader.own if leader else ())),
        )
        if folder.is_cluster is not was:
            (self.clusters.add if folder.is_cluster else self.clusters.discard)(path[1:])
            self._follow(path, folder)

    def _follow(self, path: str, folder: _Folder, names: Iterable[str] | None = None) -> None:
        """List what may be a cluster, or lead to one. `names`: all children, if they were read."""
        wanted = {*folder.own, *map(_name, folder.below)} if names is None else {*names}
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
        for child in self._admitted(below - listed):
            listed.add(child)
            self._folders[child] = _Folder()
            self._unread.add(child)
            self._ask(child)
        folder.below = frozenset(listed)
        if names is not None:
            self._leave_out(path, folder, len(below - listed))

    def _admitted(self, children: set[str]) -> list[str]:
        """The new paths that are listed from now on."""
        known, new = sorted(children & self._known), sorted(children - self._known)
        admitted = [child for child in known if self._shares.take_first(_owner(child), 1)]
        return admitted + [child for child in new if self._shares.take(_owner(child), 1)]

    def _leave_out(self, path: str, folder: _Folder, count: int) -> None:
        top = folder_of(path)
        self.left_out[top] += count - folder.left_out
        if not self.left_out[top]:
            del self.left_out[top]
        folder.left_out = count

    def _drop(self, path: str) -> None:
        folder = self._folders.pop(path)
        self._leave_out(path, folder, 0)
        self._shares.give_back(_owner(path), 1)
        self._has_room = True
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


def _owner(path: str) -> str:
    """Whose share a path is of: its folder's. "": the root's, of which the znodes are that are directly below it, and their leaders."""
    return "" if path.removesuffix(_LEADER).count("/") <= 1 else folder_of(path)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _paths_to(clusters: Iterable[str]) -> frozenset[str]:
    """The paths that must be listed to find these clusters."""
    ends = (f"/{cluster}{_LEADER}" for cluster in clusters)
    parts = (accumulate(end.split("/")[1:], lambda above, name: f"{above}/{name}", initial="") for end in ends)
    return frozenset(path for paths in parts for path in paths if path)
