"""What was reported of the clusters in one scope, and what the watch has yet to deliver."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ClusterFound,
    ClusterRemoved,
    ConfigMapObserved,
    ConnectionState,
    FinderObservation,
    SnapshotCompleted,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.drivers.kubernetes.expectations import CONFIRMED_WITHIN
from sidecar.drivers.kubernetes.found_clusters import FoundClusters, cluster_of
from sidecar.drivers.kubernetes.lapses import Lapses
from sidecar.drivers.kubernetes.responses import ConfigMap, Version


class ScopeReports:
    """Reports ConfigMaps as observations of their clusters, in the order that a LeaderRetrievalDriver promises. Used by one thread."""

    def __init__(self, found: FoundClusters, report: Callable[[FinderObservation], None]) -> None:
        self.clusters: Final[dict[str, str]] = {}
        """By the name of their ConfigMap."""
        self.undelivered: dict[str, Version | None] = {}
        """What a list has found, and the watch has yet to deliver; None: a removal."""
        self.connected = False
        self.complete = False
        """Everything has been read since it connected."""
        self.lapses: Final = Lapses()
        self._found = found
        self._report = report
        self._reported: dict[str, Version] = {}

    def is_wanted(self, config_map: ConfigMap) -> bool:
        """Whether the ConfigMap holds the leaders of a cluster that is watched."""
        return config_map.name in self.clusters or bool(self._found.admit(config_map))

    def is_reported(self, name: str, config_map: ConfigMap | None) -> bool:
        """Whether that is what was reported last of the ConfigMap."""
        return self._reported.get(name) == (config_map.version if config_map else None)

    def changes(self, found: Mapping[str, ConfigMap]) -> dict[str, Version | None]:
        """What differs between what was reported and all that was `found`."""
        changed: dict[str, Version | None] = {name: None for name in self._reported if name not in found}
        return changed | {name: each.version for name, each in found.items() if not self.is_reported(name, each)}

    def view(self, at: Moment, connection: ConnectionState) -> bool:
        """The connection of all clusters. Returns whether it changed."""
        connected = connection is ConnectionState.CONNECTED
        if connected is self.connected:
            return False
        self.connected, self.complete = connected, False
        self._each(lambda cluster_id: ViewObserved(at, cluster_id, connection))
        return True

    def observed(self, at: Moment, config_map: ConfigMap, *, anew: bool = False) -> None:
        """`anew`: nothing could be observed before."""
        name = config_map.name
        new = name not in self.clusters
        if new:
            cluster_id = self.clusters[name] = cluster_of(config_map)
            self._report(ClusterFound(at, cluster_id))
            self._report(ViewObserved(at, cluster_id, ConnectionState.CONNECTED))
        cluster_id = self.clusters[name]
        self.lapses.observed(time.monotonic(), name, config_map.leader, anew=anew)
        self._reported[name] = config_map.version
        self._deliver(name, config_map.version)
        self._report(ConfigMapObserved(at, cluster_id, name, *config_map.version, config_map.data, config_map.leader))
        if new and self.complete:
            self._report(SnapshotCompleted(at, cluster_id))

    def deleted(self, at: Moment, config_map: ConfigMap) -> None:
        """The watch has delivered a deletion."""
        if config_map.name in self.clusters:
            self.removed(at, config_map.name)
        else:
            self._found.forget(cluster_of(config_map))

    def removed(self, at: Moment, *names: str) -> None:
        for name in names:
            cluster_id = self.clusters.pop(name)
            self.lapses.removed(name)
            self._reported.pop(name, None)
            self._deliver(name, None)
            self._found.forget(cluster_id)
            self._report(ClusterRemoved(at, cluster_id))
            self._report(ConfigMapObserved(at, cluster_id, name))  # if it counts as an outage

    def confirmed(self, at: Moment, now: Moment) -> bool:
        """Everything that existed at `at` was reported. Returns whether that completes the view."""
        completed, self.complete = not self.complete, True
        if completed:
            self._each(lambda cluster_id: SnapshotCompleted(now, cluster_id))
        self._each(lambda cluster_id: ViewConfirmed(at, cluster_id, CONFIRMED_WITHIN))
        return completed

    def _each(self, observation: Callable[[str], FinderObservation]) -> None:
        for cluster_id in self.clusters.values():
            self._report(observation(cluster_id))

    def _deliver(self, name: str, version: Version | None) -> None:
        if name in self.undelivered and self.undelivered[name] == version:
            del self.undelivered[name]
