"""The ZooKeeper driver: one cluster, on a connection of its own."""

from collections.abc import Callable

from sidecar.core.bounds import JOBS_OF_ALL
from sidecar.core.moment import SECOND, Moment
from sidecar.drivers.log_throttle import LogThrottle
from sidecar.drivers.shares import Shares, WatchedJobs
from sidecar.drivers.zookeeper.connection import Connection
from sidecar.drivers.zookeeper.place import Place
from sidecar.drivers.zookeeper.probe import Probe
from sidecar.drivers.zookeeper.reporter import Reporter
from sidecar.drivers.zookeeper.security import PLAIN, Security
from sidecar.ports import Observer


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
        jobs: Shares | None = None,
        *,
        session_timeout: float = 60.0,
        connection_timeout: float = 15.0,
        security: Security = PLAIN,
    ) -> None:
        """`quorum` as in `h1:2181,h2:2181[/chroot]`, `namespace` as in `/flink/default`; observed paths are relative to it.

        `clock` is called in several threads. `jobs`: of all clusters together; None: it is the only one. Timeouts in seconds, as Flink's
        `high-availability.zookeeper.client.*`. Raises ValueError when the quorum is malformed.
        """
        where, probe, throttle = root_of(quorum, namespace), Probe(session_timeout), LogThrottle()
        self._reporter = Reporter(cluster_id, where, throttle, round(probe.interval * SECOND))
        place = Place(throttle)
        jobs = jobs or Shares(JOBS_OF_ALL.most_items)
        place.add("", self._reporter, WatchedJobs(jobs, cluster_id))
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


def root_of(quorum: str, namespace: str) -> str:
    """`host:port/root`, as a Connection takes it."""
    return f"{''.join(quorum.split()).rstrip('/')}/{namespace.strip('/')}".rstrip("/")
