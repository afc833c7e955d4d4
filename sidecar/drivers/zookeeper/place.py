"""The place that one session observes: clusters, each as if it had a session of its own."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.shares import WatchedJobs
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.reporter import Reporter
from sidecar.drivers.zookeeper.tree import Tree
from sidecar.drivers.zookeeper.watch_set import Ask
from sidecar.drivers.zookeeper.zookeeper_session import Answer, Question, Value

_READ_AT_ONCE: Final = 8


class Inquiry(NamedTuple):
    """A question to be asked, and who gets the answer. Paths are below the session's root."""

    question: Question
    path: str
    watch: bool
    """True if it sets a one-shot watch."""
    answered: Callable[[Moment, Answer], None]


class Cluster(Struct, eq=False):
    """One cluster that is observed."""

    tree: Tree
    reporter: Reporter
    watched_roots: frozenset[str] = frozenset()


class Place:
    """Clusters by their ids; "": the one at the session's root. Used by the connection's thread.

    Times are of the clock; `zxid` is the newest transaction that the server has reported.
    """

    def __init__(self, throttle: LogThrottle, confirm_seconds: float = 0.0) -> None:
        """`confirm_seconds`: how long a confirmation of the view is enough, at least."""
        self.throttle = throttle
        self.view: ConnectionState | None = None
        """The last reported connection state."""
        self._clusters: dict[str, Cluster] = {}
        self._reading: set[str] = set()
        """Clusters that have not been read completely since they were added, or since the connection began."""
        self._ready: dict[str, None] = {}
        """Clusters that have questions, in order."""
        self._contested: set[str] = set()
        self._new_roots: dict[str, None] = {}
        """Clusters whose roots to watch may have changed."""
        self._ended_roots: list[str] = []
        self._lost: str | None = None
        self._round: deque[str] = deque()
        self._persistent = True
        self._complete = False
        self._confirm_interval = round(confirm_seconds * SECOND)
        self._confirmed_at = 0

    def add(self, name: str, reporter: Reporter, jobs: WatchedJobs) -> Cluster:
        """Observe this cluster from the next connection on. `jobs`: decides which of its jobs."""
        cluster = self._clusters[name] = Cluster(Tree(jobs), reporter)
        return cluster

    @property
    def waiting(self) -> int:
        return sum(self._clusters[name].tree.waiting for name in self._ready)

    @property
    def throttled(self) -> bool:
        """True if there are contested paths, for `read_throttled`."""
        return bool(self._contested)

    @property
    def ever_found(self) -> bool:
        """True if anything of the clusters has ever been found."""
        return any(cluster.reporter.ever_found for cluster in self._clusters.values())

    # -- the connection ------------------------------------------------------------------------------------------------

    def connected(self, at: Moment, *, persistent: bool) -> None:
        """A connection begins: everything is read. `persistent`: whether watches are."""
        self.throttle.reset()
        self.view, self._persistent, self._complete = ConnectionState.CONNECTED, persistent, False
        for waiting in (self._ready, self._contested, self._ended_roots):
            waiting.clear()
        for name, cluster in self._clusters.items():
            cluster.watched_roots = frozenset()
            cluster.reporter.report_view(at, ConnectionState.CONNECTED)
            self._read_all(name, cluster)

    def disconnected(self, at: Moment, state: ConnectionState) -> None:
        self.view, self._complete = state, False
        for cluster in self._clusters.values():
            cluster.reporter.report_view(at, state)

    def completed(self, at: Moment, since: Moment, zxid: int) -> bool:
        """Called after each answer. Whether everything has been read since the connection began (`since`); true once."""
        if self._complete or self._reading:
            return False
        self._complete = True
        for cluster in self._clusters.values():
            cluster.reporter.report_complete(at)
            cluster.reporter.report_confirmed(since)
            cluster.reporter.report_store(at, zxid)
        return True

    def nothing_found(self, at: Moment, siblings: Answer) -> None:
        """Nothing was found. `siblings`: the children of the root's parent."""
        for cluster in self._clusters.values():
            cluster.reporter.report_missing(at, siblings)

    def confirmed(self, at: Moment) -> None:
        """Everything that existed at `at` has been answered or notified."""
        if not self._complete or at.steady - self._confirmed_at < self._confirm_interval:
            return
        self._confirmed_at = at.steady
        for name in self._clusters.keys() - self._reading:
            self._clusters[name].reporter.report_confirmed(at)

    # -- questions and answers -----------------------------------------------------------------------------------------

    def changed_roots(self) -> Iterable[tuple[str, bool]]:
        """The paths that are to be watched recursively from now on (True), or no longer; after `connected`, all."""
        ended, self._ended_roots = self._ended_roots, []
        changed = [(root, False) for root in ended]
        for name in self._new_roots:
            cluster = self._clusters[name]
            before, cluster.watched_roots = cluster.watched_roots, cluster.tree.roots
            changed += [(path_of(name, root), True) for root in cluster.watched_roots - before]
            changed += [(path_of(name, root), False) for root in before - cluster.watched_roots]
        self._new_roots.clear()
        return changed

    def next(self) -> Inquiry | None:
        while self._ready:
            name = next(iter(self._ready))
            cluster = self._clusters[name]
            if ask := cluster.tree.next():
                answered = partial(self._answered, name, cluster, ask)
                return Inquiry(ask.question, path_of(name, ask.path), watch=not self._persistent, answered=answered)
            del self._ready[name]
        return None

    def happened(self, at: Moment, event: ZNodeEvent, path: str) -> None:
        end = len(path)
        while (end := path.rfind("/", 0, end)) >= 0:
            name = path[1:end]
            if cluster := self._clusters.get(name):
                if report := cluster.tree.happened(event, path[end:], time.monotonic()):
                    cluster.reporter.report_path(at, report)
                self._note(name, cluster)
                return

    def read_again(self, at: Moment, zxid: int) -> None:
        """Called every few seconds. Of one cluster a few paths are read, in case a watch is lost; of several, those that ended are
        forgotten.
        """
        now = time.monotonic()
        if not self._round:
            self._round.extend(self._clusters)
        for paths in (_READ_AT_ONCE, *(0,) * (len(self._clusters) // 20)):
            name = self._round.popleft() if self._round else ""
            if cluster := self._clusters.get(name):
                cluster.tree.confirm(paths, now)
                self._note(name, cluster)
        for cluster in self._clusters.values():
            cluster.reporter.report_store(at, zxid)

    def read_refused(self) -> None:
        for name, cluster in self._clusters.items():
            cluster.tree.read_refused()
            self._note(name, cluster)

    def read_throttled(self) -> None:
        contested, self._contested = self._contested, set()
        for name in contested:
            self._clusters[name].tree.read_throttled()
            self._note(name, self._clusters[name])

    def lost_watch(self) -> str | None:
        """A path that changed without a watch event, once."""
        path, self._lost = self._lost, None
        return path

    def _read_all(self, name: str, cluster: Cluster) -> None:
        self._reading.add(name)
        cluster.tree.read_all(persistent=self._persistent)
        self._note(name, cluster)

    def _answered(self, name: str, cluster: Cluster, ask: Ask, at: Moment, answer: Answer) -> None:
        if self._clusters.get(name) is not cluster:
            return  # removed meanwhile
        if isinstance(answer, Value):  # positions are those of the cluster, as they are on a session of its own
            answer = Value(answer.data, replace(answer.position, path=ask.path))
        report = cluster.tree.answered(ask, answer, time.monotonic())
        # First: else a job that is not in the list would have ended.
        cluster.reporter.report_left_out(at, cluster.tree.jobs.left_out, cluster.tree.too_long)
        if report:
            cluster.reporter.report_path(at, report)
        if cluster.tree.completed():
            self._reading.discard(name)
            if self._complete:  # it was added later than the others
                cluster.reporter.report_complete(at)
                cluster.reporter.report_confirmed(at)
        self._note(name, cluster)

    def _note(self, name: str, cluster: Cluster) -> None:
        """Keep the state up to date after each request to a tree, and after each answer or event for it."""
        tree = cluster.tree
        if tree.waiting:
            self._ready[name] = None
        if tree.throttled:
            self._contested.add(name)
        if tree.roots is not cluster.watched_roots:
            self._new_roots[name] = None
        if tree.unnotified:
            self._lost, tree.unnotified = path_of(name, tree.unnotified), None

    def _remove(self, name: str) -> None:
        cluster = self._clusters.pop(name)
        cluster.tree.jobs.end()
        self._ended_roots += [path_of(name, root) for root in cluster.watched_roots]
        for noted in (self._ready, self._new_roots):
            noted.pop(name, None)
        for names in (self._reading, self._contested):
            names.discard(name)


def path_of(name: str, path: str) -> str:
    """A path of a cluster, as the session has it."""
    return f"/{name}{path}" if name else path
