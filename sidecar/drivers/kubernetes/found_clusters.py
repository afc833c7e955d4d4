"""Which ConfigMaps with Flink's labels hold the leaders of a cluster, and how many clusters are watched."""

import logging
import threading
from typing import Final

from sidecar.core.flink.configmaps import LeaderElectionRecord, cluster_config_map, decode_lease, owner_of
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.responses import ConfigMap

MOST_CLUSTERS: Final = 5_000
_MOST_LOGGED: Final = 20

_log = logging.getLogger("sidecar.kubernetes")


def cluster_of(config_map: ConfigMap) -> str:
    """The id of the cluster whose leaders the ConfigMap holds by its name and label; "": it holds no leaders.

    It begins with the namespace if the name of the ConfigMap does.
    """
    namespace, slash, name = config_map.name.rpartition("/")
    app = config_map.labels.get("app", "")
    return f"{namespace}{slash}{app}" if app and name == cluster_config_map(app) else ""


class FoundClusters:
    """The clusters that are watched, at most `most`. Thread-safe."""

    def __init__(self, most: int = MOST_CLUSTERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._left_out: set[str] = set()
        self._logged: set[str] = set()

    @property
    def watched(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._watched)

    @property
    def left_out(self) -> int:
        return len(self._left_out)

    def admit(self, config_map: ConfigMap) -> str:
        """The id of the cluster whose leaders the ConfigMap holds, if it is watched from now on; "": it is not."""
        cluster_id = cluster_of(config_map)
        if not cluster_id:
            self._log_legacy(config_map)
            return ""
        lease = decode_lease(config_map.leader) if config_map.leader is not None else None
        if not isinstance(lease, LeaderElectionRecord):
            why = lease.reason if lease else "it has no lease"
            self._log_ignored(config_map, f"it holds no leaders ({why})")
            return ""
        with self._lock:
            if cluster_id not in self._watched and len(self._watched) >= self._most:
                self._leave_out(cluster_id)
                return ""
            self._watched.add(cluster_id)
            self._left_out.discard(cluster_id)
        return cluster_id

    def forget(self, *cluster_ids: str) -> None:
        """These clusters do not exist any more."""
        with self._lock:
            self._watched.difference_update(cluster_ids)
            self._left_out.difference_update(cluster_ids)

    def _leave_out(self, cluster_id: str) -> None:
        if not self._left_out:
            _log.warning(
                "%d clusters are watched, the most: cluster %s and others are not; narrow kubernetes.selector or kubernetes.namespaces",
                self._most,
                clean(cluster_id),
            )
        if len(self._left_out) < self._most:
            self._left_out.add(cluster_id)

    def _log_legacy(self, config_map: ConfigMap) -> None:
        app = config_map.labels.get("app", "")
        if owner_of(app, config_map.name.rpartition("/")[2]):
            self._log_ignored(
                config_map, "clusters of Flink 1.14 and older are not found: list this one under clusters"
            )

    def _log_ignored(self, config_map: ConfigMap, why: str) -> None:
        """One line for each of the first ConfigMaps: anybody may create them."""
        with self._lock:
            if config_map.uid in self._logged or len(self._logged) >= _MOST_LOGGED:
                return
            self._logged.add(config_map.uid)
        _log.warning("ignored ConfigMap %s: %s", clean(config_map.name), why)
