"""All clusters below a root, on one session: each is read as one that is configured, from when it is found until it is removed."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ClusterFound,
    ClusterRemoved,
    ClustersListed,
    ConnectionState,
    FinderObservation,
)
from sidecar.core.sanitize import clean
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.zookeeper.discovery import Discovery
from sidecar.drivers.zookeeper.driver import changes
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.place import Inquiry
from sidecar.drivers.zookeeper.reporter import Reporter
from sidecar.drivers.zookeeper.session import Answer, Value
from sidecar.drivers.zookeeper.tree import Tree
from sidecar.drivers.zookeeper.watch_set import Ask

MOST_CLUSTERS: Final = 5_000
MOST_PATHS: Final = 20_000
"""That are listed to find them."""
REMOVED_SECONDS: Final = 15.0
"""How long nothing of a cluster has to exist until it counts as removed. A JobManager that runs writes it again within a second, and one
that is restarted is missed less soon than anybody is paged.
"""
CONFIRM_SECONDS: Final = 5.0
_CONFIRMED_WITHIN: Final = round((CONFIRM_SECONDS + 3) * SECOND)
_READ_AT_ONCE: Final = 8

_log = logging.getLogger("sidecar.zookeeper")


class _Cluster(Struct, eq=False):
    tree: Tree
    reporter: Reporter
    watched_roots: frozenset[str] = frozenset()
    reading: bool = True
    """Whether it has not been read completely since it was found, or since the connection began."""


class ManyClusters:
    """A `sidecar.drivers.zookeeper.place.Place`: a Tree for each cluster that a Discovery finds."""

    def __init__(
        self,
        where: str,
        place: str,
        report: Callable[[FinderObservation], None],
        *,
        most: int = MOST_CLUSTERS,
        most_paths: int = MOST_PATHS,
    ) -> None:
        """`where`: the quorum and the root. `place`: the same as text. `most`: clusters that are watched."""
        self.throttle = LogThrottle()
        self.view: ConnectionState | None = None
        self.found = True
        self._where = where
        self._place = place
        self._report = report
        self._most = most
        self._discovery = Discovery(most_paths)
        self._clusters: dict[str, _Cluster] = {}
        self._vanished: dict[str, float] = {}
        """Clusters of which nothing exists, and since when (monotonic)."""
        self._reading: set[str] = set()
        """Clusters that have not been read completely."""
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
        self._listed: tuple[bool, int, str] | None = None
        self._left_out = 0
        self._confirmed_at = 0
        self._missing_logged = False

    @property
    def waiting(self) -> int:
        return self._discovery.waiting + sum(self._clusters[name].tree.waiting for name in self._ready)

    @property
    def throttled(self) -> bool:
        return bool(self._contested)

    # -- the connection ------------------------------------------------------------------------------------------------

    def connected(self, at: Moment, *, persistent: bool) -> None:
        self.throttle.reset()
        self.view, self._persistent, self._complete = ConnectionState.CONNECTED, persistent, False
        for waiting in (self._vanished, self._ready, self._contested, self._ended_roots):
            waiting.clear()
        self._discovery.read_all()
        for name, cluster in self._clusters.items():
            cluster.watched_roots = frozenset()
            cluster.reporter.report_view(at, ConnectionState.CONNECTED)
            self._read_all(name, cluster)

    def disconnected(self, at: Moment, state: ConnectionState) -> None:
        self.view, self._complete = state, False
        for cluster in self._clusters.values():
            cluster.reporter.report_view(at, state)
        self._list(at)

    def completed(self, at: Moment, since: Moment, zxid: int) -> bool:
        if self._complete or self._reading or not self._discovery.is_complete:
            return False
        self._complete = True
        for cluster in self._clusters.values():
            cluster.reporter.report_complete(at)
            cluster.reporter.report_confirmed(since)
            cluster.reporter.report_store(at, zxid)
        self._list(at)
        return True

    def nothing_found(self, at: Moment, siblings: Answer) -> None:
        """That there is no cluster is reported by `ClustersListed`."""

    def confirmed(self, at: Moment) -> None:
        if not self._complete:
            return
        if at.steady - self._confirmed_at >= CONFIRM_SECONDS * SECOND:
            self._confirmed_at = at.steady
            for name in self._clusters.keys() - self._reading:
                self._clusters[name].reporter.report_confirmed(at)
        now = time.monotonic()
        if gone := [name for name, since in self._vanished.items() if now - since >= REMOVED_SECONDS]:
            for name in gone:
                self._remove(at, name)
            self._compare(at)  # there may be room for others

    # -- questions and answers -----------------------------------------------------------------------------------------

    def next(self) -> Inquiry | None:
        if found := self._discovery.next():
            question, path = found
            return Inquiry(question, path, watch=True, answered=partial(self._listed_below, path))
        while self._ready:
            name = next(iter(self._ready))
            cluster = self._clusters[name]
            if ask := cluster.tree.next():
                answered = partial(self._answered, name, cluster, ask)
                return Inquiry(ask.question, f"/{name}{ask.path}", watch=not self._persistent, answered=answered)
            del self._ready[name]
        return None

    def changed_roots(self) -> Iterable[tuple[str, bool]]:
        ended, self._ended_roots = self._ended_roots, []
        changed = [(root, False) for root in ended]
        for name in self._new_roots:
            cluster = self._clusters[name]
            before, cluster.watched_roots = cluster.watched_roots, cluster.tree.roots
            changed += [(f"/{name}{root}", wanted) for root, wanted in changes(before, cluster.watched_roots)]
        self._new_roots.clear()
        return changed

    def happened(self, at: Moment, event: ZNodeEvent, path: str) -> None:
        self._discovery.happened(path)
        end = len(path)
        while (end := path.rfind("/", 0, end)) > 0:
            if cluster := self._clusters.get(path[1:end]):
                if report := cluster.tree.happened(event, path[end:], time.monotonic()):
                    cluster.reporter.report_path(at, report)
                self._note(path[1:end], cluster)
                return

    def read_again(self, at: Moment, zxid: int) -> None:
        """Of one cluster some paths are read. Of several, those that ended are forgotten."""
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
        self._discovery.read_refused()
        for name, cluster in self._clusters.items():
            cluster.tree.read_refused()
            self._note(name, cluster)

    def read_throttled(self) -> None:
        contested, self._contested = self._contested, set()
        for name in contested:
            self._clusters[name].tree.read_throttled()
            self._note(name, self._clusters[name])

    def lost_watch(self) -> str | None:
        path, self._lost = self._lost, None
        return path

    def _answered(self, name: str, cluster: _Cluster, ask: Ask, at: Moment, answer: Answer) -> None:
        if self._clusters.get(name) is not cluster:
            return  # removed meanwhile
        if isinstance(answer, Value):  # positions are those of the cluster, as they are on a session of its own
            answer = Value(answer.data, replace(answer.position, path=ask.path))
        if report := cluster.tree.answered(ask, answer, time.monotonic()):
            cluster.reporter.report_path(at, report)
        if cluster.tree.completed():
            self._reading.discard(name)
            if self._complete:  # it was found later than the others
                cluster.reporter.report_complete(at)
                cluster.reporter.report_confirmed(at)
        self._note(name, cluster)

    def _note(self, name: str, cluster: _Cluster) -> None:
        """After anything that a tree was asked or told."""
        tree = cluster.tree
        if tree.waiting:
            self._ready[name] = None
        if tree.throttled:
            self._contested.add(name)
        if tree.roots is not cluster.watched_roots:
            self._new_roots[name] = None
        if tree.unnotified:
            self._lost, tree.unnotified = f"/{name}{tree.unnotified}", None

    # -- which clusters ------------------------------------------------------------------------------------------------

    def _listed_below(self, path: str, at: Moment, answer: Answer) -> None:
        before = self._discovery.problem
        self._discovery.answered(path, answer)
        if refused := self._discovery.refused:
            self._discovery.refused = None
            path, reason = refused
            if self.throttle.is_due(path):
                _log.warning("cannot find clusters below %s%s: %s", self._where, clean(path), reason)
        if (problem := self._discovery.problem) and problem != before:
            _log.warning("no cluster can be found below %s in ZooKeeper: %s; retrying", self._where, problem)
            self._complete = False
            self._list(at)
        self._compare(at)

    def _compare(self, at: Moment) -> None:
        """Begin with the clusters that were found, and note which are gone."""
        exist, now = self._discovery.clusters, time.monotonic()
        for name in self._clusters.keys() - exist:
            self._vanished.setdefault(name, now)
        for name in self._vanished.keys() & exist:
            del self._vanished[name]
        new = sorted(exist - self._clusters.keys())
        room = max(0, self._most - len(self._clusters))
        for name in new[:room]:
            self._add(at, name)
        self._left_out = len(new[room:]) + self._discovery.left_out
        if self._complete:
            self._list(at)

    def _add(self, at: Moment, name: str) -> None:
        reporter = Reporter(name, f"{self._where}/{name}", self.throttle, _CONFIRMED_WITHIN)
        reporter.observer = self._report
        cluster = self._clusters[name] = _Cluster(Tree(), reporter)
        self._report(ClusterFound(at, name))
        reporter.report_view(at, ConnectionState.CONNECTED)
        self._read_all(name, cluster)

    def _read_all(self, name: str, cluster: _Cluster) -> None:
        self._reading.add(name)
        cluster.tree.read_all(persistent=self._persistent)
        self._note(name, cluster)

    def _remove(self, at: Moment, name: str) -> None:
        cluster = self._clusters.pop(name)
        self._ended_roots += [f"/{name}{root}" for root in cluster.watched_roots]
        for noted in (self._vanished, self._ready, self._new_roots):
            noted.pop(name, None)
        for names in (self._reading, self._contested):
            names.discard(name)
        self._report(ClusterRemoved(at, name))

    def _list(self, at: Moment) -> None:
        """Report what is known of the clusters that there are, if that changed."""
        refused = self._discovery.problem or ""
        if self._listed == (self._complete, self._left_out, refused):
            return
        self._listed = self._complete, self._left_out, refused
        ids = frozenset(self._clusters) if self._complete else None
        self._report(ClustersListed(at, self._place, ids, self._left_out, refused))
        if self._left_out and self.throttle.is_due("left out"):
            _log.warning("%d paths below %s are not watched: there are too many", self._left_out, self._where)
        if self._complete and not self._clusters and not self._missing_logged:
            self._missing_logged = True
            _log.warning("no Flink cluster was found in %s yet: waiting", self._place)
