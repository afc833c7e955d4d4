"""The Kubernetes driver: one cluster, on a watch of its own. Its leaders are in one ConfigMap, or before Flink 1.15 in several."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from sidecar.core.bounds import JOBS_OF_ALL
from sidecar.core.flink.configmaps import cluster_config_map, dispatcher_config_map, is_leaders, owner_of
from sidecar.core.moment import Moment
from sidecar.core.observations import ClusterObservation, NothingFound, StoreRefused
from sidecar.drivers.kubernetes.access import Access, ApiError
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.configmap_reports import ConfigMapReports
from sidecar.drivers.kubernetes.configmap_watch import ConfigMapWatch
from sidecar.drivers.kubernetes.list_watch import end
from sidecar.drivers.kubernetes.objects import ConfigMap, ConfigMapList, WatchEvent
from sidecar.drivers.shares import Shares
from sidecar.ports import Observer

_log = logging.getLogger("sidecar.kubernetes")

_MOST_IDS = 20
_FLINK_LABEL = "type=flink-native-kubernetes"


_STOP_SECONDS = 4.5


class KubernetesDriver(ConfigMapWatch):
    """Observes one Flink cluster's leaders in ConfigMaps. Mirrors Flink's `KubernetesLeaderRetrievalDriver`.

    A cluster has one ConfigMap, selected by its name; before Flink 1.15 one for each component and job, selected by their labels.
    """

    def __init__(
        self, access: Access, namespace: str, cluster_id: str, clock: Callable[[], Moment], jobs: Shares | None = None
    ) -> None:
        """`cluster_id` is Flink's `kubernetes.cluster-id`. `jobs`: of all clusters together; None: it is the only one."""
        self._cluster_id = cluster_id
        self._cluster = Selector(name=cluster_config_map(cluster_id))
        """The cluster's ConfigMap since Flink 1.15. Also watched while it does not exist: a Role may allow this name only."""
        self._legacy = Selector(labels=f"app={cluster_id},{_FLINK_LABEL}")
        """Up to Flink 1.14."""
        self._ever_found = False
        """True if anything of the cluster has ever been found."""
        self._beside: tuple[str, ...] | None = None
        """The ids of the other clusters in the namespace, read when this one is missing; None: they cannot be read."""
        self._missing_logged = False
        self._observer: Observer | None = None
        reports = ConfigMapReports(cluster_id, self._report, jobs or Shares(JOBS_OF_ALL.most_items))
        api, subject = Api(access, namespace), f"cluster {cluster_id}"
        super().__init__(api, self._cluster, subject, "kubernetes-driver", reports, clock)

    def start(self, observer: Observer) -> None:
        if self._observer is None and not self._stopping.is_set():
            self._observer = observer
            self.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if end([self], _STOP_SECONDS):
            _log.warning("abandoned a request for the ConfigMaps of %s: it did not end in time", self._cluster_id)

    def _read_list(self) -> tuple[Selector, ConfigMapList]:
        """Tries the present selector first."""
        if self._selector is self._legacy:
            listed = self._api.read_pages(self._legacy, self._kept)
            if self._cluster.name not in listed.config_maps and any(map(self._is_legacy, listed.config_maps)):
                return self._legacy, listed
        selector, listed = self._cluster, self._api.read(self._cluster)
        if not listed.config_maps and self._has_legacy():
            selector, listed = self._legacy, self._api.read_pages(self._legacy, self._kept)
        elif not listed.config_maps:
            self._log_missing()
            return selector, listed
        self._ever_found, self._missing_logged = True, False
        return selector, listed

    def _has_legacy(self) -> bool:
        try:
            return bool(self._api.read(Selector(name=dispatcher_config_map(self._cluster_id))).config_maps)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # a Role for one name allows only the cluster's ConfigMap
                return False
            raise

    def _log_missing(self) -> None:
        """Log once that there are none yet."""
        if self._missing_logged:
            return
        self._missing_logged, self._beside = True, None
        try:
            listed = self._api.read_pages(Selector(labels=_FLINK_LABEL), names_only=True).config_maps.values()
        except ApiError as error:
            others = "no permission to list others" if error.status == HTTPStatus.FORBIDDEN else "cannot list others"
        else:
            owners = {(config_map.labels.get("app", ""), config_map.name) for config_map in listed}
            self._beside = tuple(sorted({app for app, name in owners if is_leaders(app, name)}))
            more = ", …" if len(self._beside) > _MOST_IDS else ""
            others = f"others: {', '.join(self._beside[:_MOST_IDS])}{more}" if self._beside else "no others either"
        _log.warning("no Flink cluster %s in %s yet (%s): waiting", self._cluster_id, self._api.where, others)

    def _kept(self, config_map: ConfigMap) -> ConfigMap | None:
        """The part of a ConfigMap that is kept from a list by labels, which anyone may put on other ConfigMaps."""
        if config_map.name != self._cluster.name and not is_leaders(self._cluster_id, config_map.name):
            return None
        return self._reports.bounded(config_map)

    def _is_legacy(self, name: str) -> bool:
        return owner_of(self._cluster_id, name) is not None

    def _is_wanted(self, config_map: ConfigMap) -> bool:
        if self._selector is self._cluster:
            return config_map.name == self._cluster.name
        return self._is_legacy(config_map.name)

    def _changed(self, event: WatchEvent[ConfigMap]) -> bool:
        config_map, is_legacy = event.item, self._selector is self._legacy
        if config_map and event.kind != "DELETED" and config_map.name == self._cluster.name and is_legacy:
            return False  # the cluster was upgraded to Flink 1.15 or newer
        return super()._changed(event)

    def _completed(self) -> None:
        if not self._ever_found:
            place = f"{self._cluster} in {self._api.where} of Kubernetes"
            self._report(NothingFound(self._clock(), self._cluster_id, place, self._beside))

    def _refused(self, reason: str) -> None:
        self._report(StoreRefused(self._clock(), self._cluster_id, reason))

    def _report(self, observation: ClusterObservation) -> None:
        if self._observer and not self._stopping.is_set():
            self._observer(observation)
