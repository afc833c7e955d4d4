"""In which ConfigMaps a cluster's leaders are: since Flink 1.15 in one, before in one for each component and job."""

import logging
from http import HTTPStatus

from sidecar.core.flink.configmaps import cluster_config_map, dispatcher_config_map, is_leaders, owner_of
from sidecar.drivers.kubernetes.api import Api, Selector
from sidecar.drivers.kubernetes.errors import ApiError
from sidecar.drivers.kubernetes.events import Listing

_log = logging.getLogger("sidecar.kubernetes")

_MOST_IDS = 20
_FLINKS = "type=flink-native-kubernetes"


class Places:
    """Where to look for one cluster's leaders. Says once, until the cluster is there, that it is not."""

    def __init__(self, api: Api, namespace: str, cluster_id: str) -> None:
        self.cluster = Selector(name=cluster_config_map(cluster_id))
        """Since 1.15. Where nothing is, too: who may see this name alone waits for it."""
        self.leaders = Selector(labels=f"app={cluster_id},{_FLINKS}")
        """Up to 1.14."""
        self._dispatcher = Selector(name=dispatcher_config_map(cluster_id))
        self._api = api
        self._namespace = namespace
        self._cluster_id = cluster_id
        self.found = False
        """Whether anything of the cluster has been there, at any time."""
        self.beside: tuple[str, ...] | None = None
        """The ids of the clusters that are there where this one is not; None: which there are cannot be read."""
        self._missing_said = False

    def holds(self, place: Selector, name: str) -> bool:
        """Whether what was found at `place` by this name is one of the cluster's leaders."""
        if place is self.cluster:
            return name == self.cluster.name
        return owner_of(self._cluster_id, name) is not None

    def find(self, place: Selector) -> tuple[Selector, Listing]:
        """Where the leaders are, and what stands there; it is looked for first at `place`, where they were. Raises ApiError."""
        if place is self.leaders:
            listing = self._api.read(self.leaders)
            upgraded = self.cluster.name in listing.found
            if not upgraded and any(self.holds(self.leaders, name) for name in listing.found):
                return self.leaders, listing
        listing = self._api.read(self.cluster)
        if listing.found:
            self.found, self._missing_said = True, False
        elif self._is_of_old():
            self.found, self._missing_said = True, False
            return self.leaders, self._api.read(self.leaders)
        elif not self._missing_said:
            self._missing_said = True
            self.beside, what_there_is = self._others()
            _log.warning(
                "no Flink cluster %s in namespace %s yet (%s): waiting for it",
                self._cluster_id,
                self._namespace,
                what_there_is,
            )
        return self.cluster, listing

    def _is_of_old(self) -> bool:
        try:
            return bool(self._api.read(self._dispatcher).found)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:  # a Role for one name allows the cluster's alone
                return False
            raise

    def _others(self) -> tuple[tuple[str, ...] | None, str]:
        """The ids of the clusters in this namespace, as far as they can be seen, and that in words."""
        try:
            seen = self._api.read(Selector(labels=_FLINKS), names_alone=True).found.values()
        except ApiError as error:
            forbidden = error.status == HTTPStatus.FORBIDDEN
            return None, "which there are, we may not see" if forbidden else "which there are is unknown"
        ids = sorted(
            {app for config_map in seen if is_leaders(app := config_map.labels.get("app", ""), config_map.name)}
        )
        if not ids:
            return (), "there is none at all"
        return tuple(ids), "there are: " + ", ".join(ids[:_MOST_IDS]) + (", …" if len(ids) > _MOST_IDS else "")
