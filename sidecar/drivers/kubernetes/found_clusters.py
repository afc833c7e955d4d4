"""Decides which ConfigMaps with Flink's labels hold the leaders of a cluster, and how many clusters are watched."""

import logging
import threading
from collections.abc import Iterable
from typing import Final

from sidecar.core.bounds import CLUSTERS
from sidecar.core.flink.configmaps import LeaderElectionRecord, cluster_config_map, decode_lease, owner_of
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.objects import ConfigMap
from sidecar.drivers.shares import Shares, folder_of

_MOST_LOGGED: Final = 20
_MOST_NAMED: Final = 5

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

    def __init__(self, most: int = CLUSTERS.most_items, known: Iterable[str] = ()) -> None:
        """`known`: those that were watched before; they come first."""
        self._most = most
        self._known = frozenset(known)
        self._shares = Shares(most)
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

    @property
    def crowded(self) -> tuple[str, ...]:
        """The first namespaces, or clusters, of those that are left out."""
        with self._lock:
            return tuple(sorted({*map(folder_of, self._left_out)})[:_MOST_NAMED])

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
            take = self._shares.take_first if cluster_id in self._known else self._shares.take
            if cluster_id not in self._watched and not take(folder_of(cluster_id), 1):
                self._leave_out(cluster_id)
                return ""
            self._watched.add(cluster_id)
            self._left_out.discard(cluster_id)
        return cluster_id

    def forget(self, *cluster_ids: str) -> None:
        """Remove clusters that do not exist any more."""
        with self._lock:
            for cluster_id in self._watched.intersection(cluster_ids):
                self._shares.give_back(folder_of(cluster_id), 1)
            self._watched.difference_update(cluster_ids)
            self._left_out.difference_update(cluster_ids)

    def _leave_out(self, cluster_id: str) -> None:
        if not self._left_out:
            _log.warning(
                "too many clusters: %s and others are not watched, %d are; narrow kubernetes.selector or kubernetes.namespaces",
                clean(cluster_id),
                len(self._watched),
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
        """Log why a ConfigMap is ignored, for the first few only: anyone may create them."""
        with self._lock:
            if config_map.uid in self._logged or len(self._logged) >= _MOST_LOGGED:
                return
            self._logged.add(config_map.uid)
        _log.warning("ignored ConfigMap %s: %s", clean(config_map.name), why)
