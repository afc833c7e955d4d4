"""Finds the Flink clusters below a root in ZooKeeper, and watches them: one session, two threads."""

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from msgspec.structs import replace

from sidecar.core.bounds import CLUSTERS, JOBS_OF_ALL, PATHS
from sidecar.core.finder import Finder
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ClusterFound, ClusterRemoved, ClustersListed, ConnectionState, FinderObservation
from sidecar.core.sanitize import clean
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.shares import Shares, WatchedJobs, owner_below_root
from sidecar.drivers.zookeeper.discovery import ROOT, Discovery
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.place import Inquiry, Place
from sidecar.drivers.zookeeper.reporter import Probe, Reporter
from sidecar.drivers.zookeeper.security import Security
from sidecar.drivers.zookeeper.zookeeper_driver import Connection, root_of
from sidecar.drivers.zookeeper.zookeeper_session import Answer
from sidecar.ports import FinderObserver
from sidecar.settings import ZooKeeperFinderSettings

REMOVED_SECONDS: Final = 15.0
"""The time without anything of a cluster until it counts as removed. A JobManager that runs writes it again within a second, and one that
is restarted is missed less soon than anybody is paged.
"""
CONFIRM_SECONDS: Final = 5.0
MOST_NAMED: Final = 5
"""Folders that are named because not everything in them is watched."""
MOST: Final = CLUSTERS.most_items
"""Clusters that are watched."""
MOST_PATHS: Final = PATHS.most_items
"""Paths that are listed to find them."""
_CONFIRMED_WITHIN: Final = round((CONFIRM_SECONDS + 3) * SECOND)

_log = logging.getLogger("sidecar.zookeeper")


class ClustersBelowRoot(Place):
    """The clusters that a Discovery finds, each from when it is found until it is removed."""

    ever_found = True
    """True: `ClustersListed` reports that there is no cluster."""

    def __init__(
        self, where: str, place: str, report: Callable[[FinderObservation], None], known: Collection[str]
    ) -> None:
        """`where`: the quorum and the root. `place`: the same as text. `known`: clusters that were watched before; they come first."""
        super().__init__(LogThrottle(), CONFIRM_SECONDS)
        self._where = where
        self._place = place
        self._report = report
        self._known = frozenset(known)
        self._shares = Shares(MOST)
        self._jobs = Shares(JOBS_OF_ALL.most_items)
        self._discovery = Discovery(MOST_PATHS, known)
        self._vanished: dict[str, float] = {}
        """Clusters of which nothing exists, and since when (monotonic)."""
        self._listed: ClustersListed | None = None
        """The last reported `ClustersListed`, without the time and the clusters."""
        self._waiting: set[str] = set()
        """Clusters that are not watched: there are too many."""
        self._missing_logged = False

    @property
    def waiting(self) -> int:
        return self._discovery.waiting + super().waiting

    def connected(self, at: Moment, *, persistent: bool) -> None:
        self._vanished.clear()
        self._discovery.read_all()
        super().connected(at, persistent=persistent)

    def disconnected(self, at: Moment, state: ConnectionState) -> None:
        super().disconnected(at, state)
        self._list(at)

    def completed(self, at: Moment, since: Moment, zxid: int) -> bool:
        completed = self._discovery.is_complete and super().completed(at, since, zxid)
        if completed:
            self._list(at)
        return completed

    def confirmed(self, at: Moment) -> None:
        super().confirmed(at)
        if not self._complete:
            return
        now = time.monotonic()
        gone = [name for name, since in self._vanished.items() if now - since >= REMOVED_SECONDS]
        for name in gone:
            self._remove(name)
            self._shares.give_back(owner_below_root(name), 1)
            del self._vanished[name]
            self._report(ClusterRemoved(at, name))
        if gone:
            self._compare(at)  # there may be room for others

    def next(self) -> Inquiry | None:
        if question := self._discovery.next():
            return Inquiry(*question, watch=True, answered=partial(self._listed_below, question[1]))
        return super().next()

    def happened(self, at: Moment, event: ZNodeEvent, path: str) -> None:
        self._discovery.happened(path)
        super().happened(at, event, path)

    def read_refused(self) -> None:
        self._discovery.read_refused()
        super().read_refused()

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
        new = sorted(exist - self._clusters.keys(), key=lambda name: (name not in self._known, name))
        for name in new:
            take = self._shares.take_first if name in self._known else self._shares.take
            if take(owner_below_root(name), 1):
                self._begin(at, name)
        self._waiting = {*new} - self._clusters.keys()
        if self._complete:
            self._list(at)

    def _begin(self, at: Moment, name: str) -> None:
        reporter = Reporter(name, f"{self._where}/{name}", self.throttle, _CONFIRMED_WITHIN)
        reporter.observer = self._report
        self._report(ClusterFound(at, name))
        reporter.report_view(at, ConnectionState.CONNECTED)
        self._read_all(name, self.add(name, reporter, self._jobs_of(name)))

    def _jobs_of(self, name: str) -> WatchedJobs:
        """Clusters directly below the root share what the root gets."""
        owner = owner_below_root(name)
        return WatchedJobs(self._jobs, owner, part="" if owner else name)

    def _list(self, at: Moment) -> None:
        """Report what is known of the clusters that there are, if that changed."""
        unlisted, waiting = self._discovery.left_out, self._waiting
        folders = sorted({*unlisted, *map(owner_below_root, waiting)})
        ids = frozenset(self._clusters) if self._complete else None
        listed = ClustersListed(
            at,
            self._place,
            ids,
            left_out=len(waiting),
            unlisted=unlisted.total(),
            beyond=tuple(folder or ROOT for folder in folders[:MOST_NAMED]),
            refused=self._discovery.problem or "",
        )
        same = replace(listed, at=Moment(0, 0), cluster_ids=None if ids is None else frozenset())
        if self._listed == same:
            return
        self._listed = same
        self._report(listed)
        if folders and self.throttle.is_due("left out"):
            _log.warning("%s", Finder.from_listed(listed).problem(len(self._clusters)))
        if self._complete and not self._clusters and not self._missing_logged:
            self._missing_logged = True
            _log.warning("no Flink cluster was found in %s yet: waiting", self._place)


class ZooKeeperFinder(Connection):
    """A `sidecar.ports.ClusterFinder`."""

    def __init__(
        self, settings: ZooKeeperFinderSettings, clock: Callable[[], Moment], known: Collection[str] = ()
    ) -> None:
        """`known`: clusters that were watched before; they come first."""
        self._observer: FinderObserver | None = None
        where = root_of(settings.quorum, settings.root)
        super().__init__(
            where,
            ClustersBelowRoot(where, settings.place, self._report, known),
            Probe(settings.session_timeout),
            clock,
            session_timeout=settings.session_timeout,
            connection_timeout=settings.connection_timeout,
            security=Security(settings.tls, settings.sasl, settings.authorization),
        )

    def start(self, observer: FinderObserver) -> None:
        if self._observer is None:
            self._observer = observer
            self._begin()

    def stop(self) -> None:
        self._observer = None
        super().stop()

    def _report(self, observation: FinderObservation) -> None:
        if observer := self._observer:
            observer(observation)
