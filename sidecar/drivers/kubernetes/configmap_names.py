"""Finds the ConfigMaps with a cluster's leaders: one since Flink 1.15; one per component and job before."""

import logging
from http import HTTPStatus

from sidecar.core.flink.configmaps import cluster_config_map, dispatcher_config_map, is_leaders, owner_of
from sidecar.drivers.kubernetes.api import Api, Keep, Selector
from sidecar.drivers.kubernetes.api_error import ApiError
from sidecar.drivers.kubernetes.objects import ConfigMapList

_log = logging.getLogger("sidecar.kubernetes")

_MOST_IDS = 20
_FLINK_LABEL = "type=flink-native-kubernetes"


class LeaderConfigMaps:
    """Finds one cluster's leader ConfigMaps, and logs once if there are none yet."""

    def __init__(self, api: Api, namespace: str, cluster_id: str) -> None:
        self.cluster = Selector(name=cluster_config_map(cluster_id))
        """The cluster's ConfigMap since Flink 1.15. Also watched while it does not exist: a Role may allow this name only."""
        self._legacy = Selector(labels=f"app={cluster_id},{_FLINK_LABEL}")
        """Up to Flink 1.14."""
        self._dispatcher = Selector(name=dispatcher_config_map(cluster_id))
        self._api = api
        self._namespace = namespace
        self._cluster_id = cluster_id
        self.ever_found = False
        """Whether anything of the cluster has ever been found."""
        self.beside: tuple[str, ...] | None = None
        """The ids of the other clusters in the namespace, read when this one is missing; None: they cannot be read."""
        self._missing_logged = False

    def includes(self, selector: Selector, name: str) -> bool:
        """Whether the ConfigMap `name`, found by `selector`, has leaders of this cluster."""
        if selector is self.cluster:
            return name == self.cluster.name
        return owner_of(self._cluster_id, name) is not None

    def find(self, previous: Selector, keep: Keep) -> tuple[Selector, ConfigMapList]:
        """The selector that finds the leaders, and its list. Tries `previous` first. `keep`: as of `Api.read_pages`. Raises ApiError."""
        if previous is self._legacy:
            listed = self._api.read_pages(self._legacy, keep)
            upgraded = self.cluster.name in listed.config_maps
            if not upgraded and any(self.includes(self._legacy, name) for name in listed.config_maps):
                return self._legacy, listed
        selector, listed = self.cluster, self._api.read(self.cluster)
        if not listed.config_maps and self._has_legacy():
            selector, listed = self._legacy, self._api.read_pages(self._legacy, keep)
        elif not listed.config_maps:
            self._log_missing()
            return selector, listed
        self.ever_found, self._missing_logged = True, False
        return selector, listed

    def _has_legacy(self) -> bool:
        try:
            return bool(self._api.read(self._dispatcher).config_maps)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # a Role for one name allows only the cluster's ConfigMap
                return False
            raise

    def _log_missing(self) -> None:
        if self._missing_logged:
            return
        self._missing_logged, self.beside = True, None
        try:
            listed = self._api.read_pages(Selector(labels=_FLINK_LABEL), names_only=True).config_maps.values()
        except ApiError as error:
            others = "no permission to list others" if error.status == HTTPStatus.FORBIDDEN else "cannot list others"
        else:
            owners = {(config_map.labels.get("app", ""), config_map.name) for config_map in listed}
            self.beside = tuple(sorted({app for app, name in owners if is_leaders(app, name)}))
            more = ", …" if len(self.beside) > _MOST_IDS else ""
            others = f"others: {', '.join(self.beside[:_MOST_IDS])}{more}" if self.beside else "no others either"
        _log.warning("no Flink cluster %s in namespace %s yet (%s): waiting", self._cluster_id, self._namespace, others)
