"""The ZooKeeper driver: one cluster, on a connection of its own."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.zookeeper.connection import Connection
from sidecar.drivers.zookeeper.persistent import ZNodeEvent
from sidecar.drivers.zookeeper.place import Inquiry
from sidecar.drivers.zookeeper.probe import Probe
from sidecar.drivers.zookeeper.reporter import Reporter
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.drivers.zookeeper.session import Answer
from sidecar.drivers.zookeeper.tree import Tree
from sidecar.drivers.zookeeper.watch_set import Ask
from sidecar.ports import Observer

_CONFIRMED_AT_ONCE: Final = 8


class ZooKeeperDriver(Connection):
    """Observes one Flink cluster's leaders in ZooKeeper. Mirrors `org.apache.flink.runtime.leaderretrieval.ZooKeeperLeaderRetrievalDriver`.

    All components and jobs, the layouts of all Flink versions, one connection, two threads.
    """

    def __init__(
        self,
        quorum: str,
        namespace: str,
        cluster_id: str,
        clock: Callable[[], Moment],
        *,
        session_timeout: float = 60.0,
        connection_timeout: float = 15.0,
        security: Security = PLAIN,
    ) -> None:
        """`quorum` as in `h1:2181,h2:2181[/chroot]`, `namespace` as in `/flink/default`; observed paths are relative to it.

        `clock` is called in several threads. Timeouts in seconds, as Flink's `high-availability.zookeeper.client.*`. Raises ValueError
        when the quorum is malformed.
        """
        where, probe, throttle = root_of(quorum, namespace), Probe(session_timeout), LogThrottle()
        self._reporter = Reporter(cluster_id, where, throttle, round(probe.each * SECOND))
        self._tree = Tree()
        place = OneCluster(self._tree, self._reporter, throttle)
        timeouts = {"session_timeout": session_timeout, "connection_timeout": connection_timeout}
        try:
            super().__init__(where, place, probe, clock, **timeouts, security=security)
        except ValueError as error:
            raise ValueError(f"ZooKeeper quorum {quorum!r} is not like host:port,host:port/chroot: {error}") from error

    def start(self, observer: Observer) -> None:
        if self._reporter.observer is None:
            self._reporter.observer = observer
            self._begin()

    def stop(self) -> None:
        self._reporter.observer = None
        super().stop()


class OneCluster:
    """The place of one cluster: a `sidecar.drivers.zookeeper.place.Place`."""

    def __init__(self, tree: Tree, reporter: Reporter, throttle: LogThrottle) -> None:
        self.throttle = throttle
        self._tree = tree
        self._reporter = reporter
        self._watched_roots: frozenset[str] = frozenset()

    @property
    def view(self) -> ConnectionState | None:
        return self._reporter.view

    @property
    def waiting(self) -> int:
        return self._tree.waiting

    @property
    def throttled(self) -> bool:
        return bool(self._tree.throttled)

    @property
    def found(self) -> bool:
        return self._reporter.found

    def connected(self, at: Moment, *, persistent: bool) -> None:
        self.throttle.reset()
        self._watched_roots = frozenset()
        self._reporter.report_view(at, ConnectionState.CONNECTED)
        self._tree.read_all(persistent=persistent)

    def disconnected(self, at: Moment, state: ConnectionState) -> None:
        self._reporter.report_view(at, state)

    def changed_roots(self) -> Iterable[tuple[str, bool]]:
        before, self._watched_roots = self._watched_roots, self._tree.roots
        return changes(before, self._watched_roots)

    def next(self) -> Inquiry | None:
        ask = self._tree.next()
        return ask and Inquiry(ask.question, ask.path, not self._tree.persistent, partial(self._answered, ask))

    def happened(self, at: Moment, event: ZNodeEvent, path: str) -> None:
        if report := self._tree.happened(event, path, time.monotonic()):
            self._reporter.report_path(at, report)

    def completed(self, at: Moment, since: Moment, zxid: int) -> bool:
        if not self._tree.completed():
            return False
        self._reporter.report_complete(at)
        self._reporter.report_confirmed(since)
        self._reporter.report_store(at, zxid)
        return True

    def nothing_found(self, at: Moment, siblings: Answer) -> None:
        self._reporter.report_missing(at, siblings)

    def confirmed(self, at: Moment) -> None:
        if self._tree.is_complete:
            self._reporter.report_confirmed(at)

    def read_again(self, at: Moment, zxid: int) -> None:
        self._tree.confirm(_CONFIRMED_AT_ONCE, time.monotonic())
        self._reporter.report_store(at, zxid)

    def read_refused(self) -> None:
        self._tree.read_refused()

    def read_throttled(self) -> None:
        self._tree.read_throttled()

    def lost_watch(self) -> str | None:
        path, self._tree.unnotified = self._tree.unnotified, None
        return path

    def _answered(self, ask: Ask, at: Moment, answer: Answer) -> None:
        if report := self._tree.answered(ask, answer, time.monotonic()):
            self._reporter.report_path(at, report)


def changes(before: frozenset[str], now: frozenset[str]) -> list[tuple[str, bool]]:
    """What differs, as `changed_roots` of a Place returns it."""
    if before is now:
        return []
    return [(root, True) for root in now - before] + [(root, False) for root in before - now]


def root_of(quorum: str, namespace: str) -> str:
    """`host:port/root`, as a Connection takes it."""
    return f"{''.join(quorum.split()).rstrip('/')}/{namespace.strip('/')}".rstrip("/")
