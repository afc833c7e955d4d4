"""Finds the Flink clusters of namespaces by the labels of their ConfigMaps, and watches them."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.core.bounds import CLUSTERS, JOBS_OF_ALL
from sidecar.core.moment import Moment
from sidecar.core.observations import ClustersListed, FinderObservation
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.found_clusters import FoundClusters
from sidecar.drivers.kubernetes.list_watch import end
from sidecar.drivers.kubernetes.scope import Scope
from sidecar.drivers.shares import Shares
from sidecar.ports import FinderObserver
from sidecar.settings import FinderSettings

_STOP_SECONDS: Final = 4.5

_log = logging.getLogger("sidecar.kubernetes")


class KubernetesFinder:
    """A `sidecar.ports.ClusterFinder`: one thread and one open watch for each namespace, or one for all namespaces."""

    def __init__(
        self,
        access: Access,
        settings: FinderSettings,
        clock: Callable[[], Moment],
        most: int = CLUSTERS.most_items,
        known: Iterable[str] = (),
    ) -> None:
        """`most`: clusters that are watched. `known`: those that were watched before; they come first."""
        self._clock = clock
        self._place = settings.place
        self._found_clusters = FoundClusters(most, known)
        self._observer: FinderObserver | None = None
        self._stopping = threading.Event()
        self._listing = threading.Lock()
        self._missing_logged = False
        jobs = Shares(JOBS_OF_ALL.most_items)
        namespaces: tuple[str | None, ...] = (None,) if settings.namespaces is None else settings.namespaces
        self._scopes = [
            Scope(
                Api(access, namespace, qualified=settings.qualified),
                Selector(labels=settings.selector),
                self._found_clusters,
                clock,
                self._report,
                self._list,
                jobs,
            )
            for namespace in namespaces
        ]

    def start(self, observer: FinderObserver) -> None:
        if self._observer is None and not self._stopping.is_set():
            self._observer = observer
            for scope in self._scopes:
                scope.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if abandoned := end(self._scopes, _STOP_SECONDS):
            _log.warning("abandoned %d requests for ConfigMaps: they did not end in time", abandoned)

    def _list(self) -> None:
        """Report whether everything was read, after that changed. Called by the threads of the scopes."""
        with self._listing:
            complete, watched = all(scope.complete for scope in self._scopes), self._found_clusters.watched
            listed = watched if complete else None
            refused = next((scope.refused for scope in self._scopes if scope.refused), "")
            found, at = self._found_clusters, self._clock()
            self._report(ClustersListed(at, self._place, listed, found.left_out, beyond=found.crowded, refused=refused))
            if not complete or watched:
                return
            if not self._missing_logged:
                self._missing_logged = True
                _log.warning("no Flink cluster was found in %s yet: waiting", self._place)

    def _report(self, observation: FinderObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)
