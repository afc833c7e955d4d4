"""Finds the Flink clusters of namespaces by the labels of their ConfigMaps, and watches them."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from sidecar.core.bounds import CLUSTERS, JOBS_OF_ALL
from sidecar.core.moment import Moment
from sidecar.core.observations import ClustersListed, ConnectionState, FinderObservation
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.configmap_reports import FoundClusters, FoundReports, cluster_of
from sidecar.drivers.kubernetes.configmap_watch import ConfigMapWatch
from sidecar.drivers.kubernetes.list_watch import end
from sidecar.drivers.kubernetes.objects import ConfigMap, ConfigMapList
from sidecar.drivers.shares import Shares
from sidecar.ports import FinderObserver
from sidecar.settings import FinderSettings

FEW: Final = 10
"""The most clusters that are all listed to confirm the view. Of more, and where the list is long, one is read."""
_LONG: Final = 4 << 20
"""Bytes of a list in which others have large ConfigMaps if it has few clusters: from then on, their values are not listed."""
_LARGE: Final = 256 << 10
"""Characters of a ConfigMap that is named if it holds no leaders."""
_MOST_NAMED: Final = 5
_MOST_LARGE: Final = 1_000

_log = logging.getLogger("sidecar.kubernetes")


class FoundClustersWatch(ConfigMapWatch):
    """Reports each cluster as `sidecar.ports.LeaderRetrievalDriver` does, between ClusterFound and ClusterRemoved."""

    def __init__(
        self,
        api: Api,
        selector: Selector,
        found_clusters: FoundClusters,
        clock: Callable[[], Moment],
        report: Callable[[FinderObservation], None],
        publish: Callable[[], None],
        jobs: Shares,
    ) -> None:
        """`jobs`: of all clusters together. `publish` is called when the scope was read completely, was lost, or leaves clusters out."""
        reports = FoundReports(found_clusters, report, jobs)
        super().__init__(api, selector, f"clusters in {api.where}", "kubernetes-finder", reports, clock)
        self._found_clusters = found_clusters
        self._publish = publish
        self._left_out = 0
        self._long = False
        """True if the last list with values was."""
        self._large: list[str] = []
        """The large ConfigMaps that were logged last."""
        self._larger: list[str] = []
        """The ConfigMaps in the list that is read."""
        self.refused = ""
        """Why the API server does not let the clusters be found."""

    @property
    def complete(self) -> bool:
        return self._reports.complete

    @property
    def _is_short(self) -> bool:
        clusters = len(self._reports.names)
        return not clusters or (clusters <= FEW and not self._long)

    def _is_wanted(self, config_map: ConfigMap) -> bool:
        return config_map.name in self._reports.names or bool(self._found_clusters.admit(config_map))

    def _read_list(self) -> tuple[Selector, ConfigMapList]:
        return self._selector, self._read_clusters()

    def _read_clusters(self) -> ConfigMapList:
        """Everything, where the list is long only the values of clusters."""
        if self._long:
            listed = self._api.read_pages(self._selector, self._kept, names_only=True)
            names = [*listed.config_maps]
            if len(names) <= FEW:
                config_maps: dict[str, ConfigMap] = {}
                for name in names:
                    config_maps |= self._api.read_one(name, at=listed.resource_version).config_maps
                return ConfigMapList(listed.resource_version, config_maps)
        self._larger.clear()
        listed = self._api.read_pages(self._selector, self._kept_with_values)
        self._long = listed.size > _LONG
        self._log_large(sorted(self._larger))
        return listed

    def _kept(self, config_map: ConfigMap) -> ConfigMap | None:
        """The part of a ConfigMap that is kept. None for a ConfigMap of no cluster: anyone may create as many as they like."""
        return config_map if self._is_wanted(config_map) else None

    def _kept_with_values(self, config_map: ConfigMap) -> ConfigMap | None:
        if config_map.size > _LARGE and not cluster_of(config_map) and len(self._larger) < _MOST_LARGE:
            self._larger.append(config_map.name)
        return self._reports.bounded(config_map) if self._is_wanted(config_map) else None

    def _log_large(self, names: list[str]) -> None:
        """Log which ConfigMaps of no cluster make lists long; once, until there are others."""
        if names and names != self._large:
            _log.warning(
                "%d ConfigMaps in %s have Flink's label, hold no leaders, and are larger than %d KiB (%s%s): lists take longer; "
                "take the label off, or narrow kubernetes.selector or kubernetes.namespaces",
                len(names),
                self._api.where,
                _LARGE >> 10,
                ", ".join(map(clean, names[:_MOST_NAMED])),
                ", …" if len(names) > _MOST_NAMED else "",
            )
        self._large = names

    def _deleted(self, config_map: ConfigMap) -> None:
        super()._deleted(config_map)
        self._found_clusters.forget(cluster_of(config_map))  # it may be one of those that were left out

    def _reached(self) -> None:
        super()._reached()
        if self._found_clusters.left_out != self._left_out:
            self._left_out = self._found_clusters.left_out
            self._publish()

    def _completed(self) -> None:
        self._publish()

    def _view_changed(self, previous: ConnectionState | None) -> None:
        if self._reports.connection is ConnectionState.CONNECTED:
            self.refused = ""
        elif previous is not ConnectionState.CONNECTED:
            return
        self._publish()

    def _refused(self, reason: str) -> None:
        if reason != self.refused:
            self.refused = reason
            self._publish()


_STOP_SECONDS: Final = 4.5


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
            FoundClustersWatch(
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
