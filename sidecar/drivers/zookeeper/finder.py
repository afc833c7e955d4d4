"""Finds the Flink clusters below a root in ZooKeeper, and watches them: one session, two threads."""

from collections.abc import Callable

from sidecar.core.moment import Moment
from sidecar.core.observations import FinderObservation
from sidecar.drivers.zookeeper.connection import Connection
from sidecar.drivers.zookeeper.driver import root_of
from sidecar.drivers.zookeeper.many_clusters import MOST_CLUSTERS, ManyClusters
from sidecar.drivers.zookeeper.probe import Probe
from sidecar.drivers.zookeeper.security import Security
from sidecar.ports import FinderObserver
from sidecar.settings import ZooKeeperFinderSettings


class ZooKeeperFinder(Connection):
    """A `sidecar.ports.ClusterFinder`."""

    def __init__(
        self, settings: ZooKeeperFinderSettings, clock: Callable[[], Moment], most: int = MOST_CLUSTERS
    ) -> None:
        """`most`: clusters that are watched."""
        self._observer: FinderObserver | None = None
        where = root_of(settings.quorum, settings.root)
        super().__init__(
            where,
            ManyClusters(where, settings.place, self._report, most=most),
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
