"""The Kubernetes driver: one cluster, on a watch of its own."""

import logging
from collections.abc import Callable

from sidecar.core.bounds import JOBS_OF_ALL
from sidecar.core.flink.configmaps import is_leaders
from sidecar.core.moment import Moment
from sidecar.core.observations import ClusterObservation, NothingFound, StoreRefused
from sidecar.drivers.kubernetes.access import Access
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.configmap_names import LeaderConfigMaps
from sidecar.drivers.kubernetes.configmap_reports import Reports
from sidecar.drivers.kubernetes.configmap_watch import ConfigMapWatch
from sidecar.drivers.kubernetes.list_watch import end
from sidecar.drivers.kubernetes.objects import ConfigMap, ConfigMapList, WatchEvent
from sidecar.drivers.shares import Shares
from sidecar.ports import Observer

_log = logging.getLogger("sidecar.kubernetes")

_STOP_SECONDS = 4.5


class KubernetesDriver(ConfigMapWatch):
    """Observes one Flink cluster's leaders in ConfigMaps. Mirrors Flink's `KubernetesLeaderRetrievalDriver`.

    A cluster has one ConfigMap, selected by its name; before Flink 1.15 one for each component and job, selected by their labels.
    """

    def __init__(
        self,
        access: Access,
        namespace: str,
        cluster_id: str,
        clock: Callable[[], Moment],
        jobs: Shares | None = None,
    ) -> None:
        """`cluster_id` is Flink's `kubernetes.cluster-id`. `jobs`: of all clusters together; None: it is the only one."""
        jobs = jobs or Shares(JOBS_OF_ALL.most_items)
        api, reports = Api(access, namespace), Reports(cluster_id, self._report, jobs)
        self._cluster_id = cluster_id
        self._config_maps = LeaderConfigMaps(api, namespace, cluster_id)
        self._observer: Observer | None = None
        super().__init__(api, self._config_maps.cluster, f"cluster {cluster_id}", "kubernetes-driver", reports, clock)

    def start(self, observer: Observer) -> None:
        if self._observer is None and not self._stopping.is_set():
            self._observer = observer
            self.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if end([self], _STOP_SECONDS):
            _log.warning("abandoned a request for the ConfigMaps of %s: it did not end in time", self._cluster_id)

    def _read_list(self) -> tuple[Selector, ConfigMapList]:
        return self._config_maps.find(self._selector, self._kept)

    def _kept(self, config_map: ConfigMap) -> ConfigMap | None:
        """The part of a ConfigMap that is kept from a list by labels, which anyone may put on other ConfigMaps."""
        place = self._config_maps.cluster.name
        if config_map.name != place and not is_leaders(self._cluster_id, config_map.name):
            return None
        return self._reports.bounded(config_map)

    def _is_wanted(self, config_map: ConfigMap) -> bool:
        return self._config_maps.includes(self._selector, config_map.name)

    def _changed(self, event: WatchEvent[ConfigMap]) -> bool:
        place, config_map = self._config_maps.cluster, event.item
        if config_map and event.kind != "DELETED" and config_map.name == place.name and self._selector is not place:
            return False  # the cluster was upgraded to Flink 1.15 or newer
        return super()._changed(event)

    def _completed(self) -> None:
        if not self._config_maps.ever_found:
            place = f"{self._config_maps.cluster} in {self._api.where} of Kubernetes"
            self._report(NothingFound(self._clock(), self._cluster_id, place, self._config_maps.beside))

    def _refused(self, reason: str) -> None:
        self._report(StoreRefused(self._clock(), self._cluster_id, reason))

    def _report(self, observation: ClusterObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)
