"""The reports made of ConfigMaps with leaders: of one cluster, or of all that are found."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.bounds import CLUSTERS
from sidecar.core.flink.configmaps import LeaderElectionRecord, cluster_config_map, decode_lease, job_of, owner_of
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ClusterFound,
    ClusterObservation,
    ClusterRemoved,
    ConfigMapObserved,
    ConnectionState,
    FinderObservation,
    LeftOut,
    SnapshotCompleted,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.core.sanitize import clean
from sidecar.drivers.kubernetes.expectations import CONFIRMED_WITHIN, Expectations
from sidecar.drivers.kubernetes.objects import ConfigMap, Version
from sidecar.drivers.shares import Shares, WatchedJobs, folder_of

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


class ConfigMapReports:
    """Reports the ConfigMaps of one cluster, in the order that a LeaderRetrievalDriver promises. Used by one thread."""

    def __init__(self, cluster_id: str, report: Callable[[ClusterObservation], None], jobs: Shares) -> None:
        """`jobs`: of all clusters together."""
        self.connection: ConnectionState | None = None
        self.complete = False
        """Everything has been read since it connected."""
        self.expectations: Final = Expectations()
        self._cluster_id = cluster_id
        self._report = report
        self._all_jobs = jobs
        self._jobs: dict[str, WatchedJobs] = {}
        """The watched jobs by cluster."""
        self._left_out: dict[str, int] = {}
        """Jobs that are not observed, as reported last, by cluster."""
        self._versions: dict[str, Version] = {}
        """The versions that were reported last, by ConfigMap."""

    @property
    def names(self) -> Collection[str]:
        """The ConfigMaps that were reported, and not as removed."""
        return self._versions.keys()

    def bounded(self, config_map: ConfigMap) -> ConfigMap:
        """The ConfigMap without the jobs that are too many to be watched."""
        if config_map.left_out is not None:
            return config_map
        cluster_id, name = self._cluster_in(config_map), config_map.name
        jobs = self._jobs.setdefault(cluster_id, WatchedJobs(self._all_jobs, self._owner_of(cluster_id)))
        owner = owner_of(cluster_id, name)
        if owner:  # up to Flink 1.14
            kept = not owner.job_id or owner.job_id in jobs.listed(name, [owner.job_id])
            return replace(config_map, data=config_map.data if kept else {}, left_out=jobs.left_out)
        by_key = {key: job_id for key in config_map.data if (job_id := job_of(key))}
        watched = jobs.listed(name, by_key.values())
        data = {key: text for key, text in config_map.data.items() if key not in by_key or by_key[key] in watched}
        return replace(config_map, data=data, left_out=jobs.left_out)

    def is_reported(self, name: str, config_map: ConfigMap | None) -> bool:
        return self._versions.get(name) == (config_map.version if config_map else None)

    def changes(self, config_maps: Mapping[str, ConfigMap]) -> dict[str, Version | None]:
        """The changes between the reported ConfigMaps and `config_maps`, by name. None: a removal."""
        existing = {self._cluster_in(config_map) for config_map in config_maps.values()} | {*self._cluster_ids}
        for cluster_id in self._jobs.keys() - existing:
            self._jobs.pop(cluster_id).end()  # of a list that was never reported
        changed: dict[str, Version | None] = {name: None for name in self._versions if name not in config_maps}
        return changed | {name: new.version for name, new in config_maps.items() if not self.is_reported(name, new)}

    def view(self, at: Moment, connection: ConnectionState) -> bool:
        """Returns whether the connection changed."""
        if connection is self.connection:
            return False
        self.connection, self.complete = connection, False
        self._left_out.clear()  # everything is read again
        for cluster_id in self._cluster_ids:
            self._report(ViewObserved(at, cluster_id, connection))
        return True

    def observed(self, at: Moment, config_map: ConfigMap, *, anew: bool = False) -> None:
        """`anew`: nothing could be observed before."""
        name = config_map.name
        self._versions[name] = config_map.version
        self.expectations.leases.observed(time.monotonic(), name, config_map.leader, anew=anew)
        self.expectations.delivered(name, config_map.version)
        config_map, cluster_id = self.bounded(config_map), self._cluster_of(name)
        left_out = config_map.left_out or 0
        if left_out != self._left_out.get(cluster_id, 0):  # first: else a job that was taken out would have ended
            self._left_out[cluster_id] = left_out
            self._report(LeftOut(at, cluster_id, left_out))
        leaders = config_map.data, config_map.leader
        self._report(ConfigMapObserved(at, cluster_id, name, *config_map.version, *leaders))

    def removed(self, at: Moment, name: str) -> None:
        del self._versions[name]
        if jobs := self._jobs.get(self._cluster_of(name)):
            jobs.listed(name, ())
        self.expectations.leases.removed(name)
        self.expectations.delivered(name, None)
        self._report(ConfigMapObserved(at, self._cluster_of(name), name))

    def confirmed(self, at: Moment, now: Moment) -> bool:
        """Everything that existed at `at` was reported. Returns whether that completes the view."""
        completed, self.complete = not self.complete, True
        for cluster_id in self._cluster_ids if completed else ():
            self._report(SnapshotCompleted(now, cluster_id))
        for cluster_id in self._cluster_ids:
            self._report(ViewConfirmed(at, cluster_id, CONFIRMED_WITHIN))
        return completed

    def _cluster_in(self, config_map: ConfigMap) -> str:  # noqa: ARG002  all are of the one cluster
        return self._cluster_id

    def _owner_of(self, cluster_id: str) -> str:
        """The owner whose share of the jobs the cluster uses."""
        return cluster_id

    @property
    def _cluster_ids(self) -> Iterable[str]:
        return (self._cluster_id,)

    def _cluster_of(self, name: str) -> str:  # noqa: ARG002  all are of the one cluster
        return self._cluster_id


class FoundReports(ConfigMapReports):
    """Reports each ConfigMap as a cluster of its own, between ClusterFound and ClusterRemoved."""

    def __init__(
        self, found_clusters: FoundClusters, report: Callable[[FinderObservation], None], jobs: Shares
    ) -> None:
        super().__init__("", report, jobs)
        self._report_found = report
        self._found_clusters = found_clusters
        self._clusters: dict[str, str] = {}
        """The clusters by the name of their ConfigMap."""

    def observed(self, at: Moment, config_map: ConfigMap, *, anew: bool = False) -> None:
        new = config_map.name not in self._clusters
        cluster_id = self._clusters.setdefault(config_map.name, cluster_of(config_map))
        if new:
            self._report_found(ClusterFound(at, cluster_id))
            self._report(ViewObserved(at, cluster_id, ConnectionState.CONNECTED))
        super().observed(at, config_map, anew=anew)
        if new and self.complete:
            self._report(SnapshotCompleted(at, cluster_id))

    def removed(self, at: Moment, name: str) -> None:
        self._found_clusters.forget(self._clusters[name])
        self._report_found(ClusterRemoved(at, self._clusters[name]))
        super().removed(at, name)  # if it counts as an outage
        if jobs := self._jobs.pop(self._clusters[name], None):
            jobs.end()
        self._left_out.pop(self._clusters[name], None)
        del self._clusters[name]

    def _cluster_in(self, config_map: ConfigMap) -> str:
        return cluster_of(config_map)

    def _owner_of(self, cluster_id: str) -> str:
        return folder_of(cluster_id)

    @property
    def _cluster_ids(self) -> Iterable[str]:
        return self._clusters.values()

    def _cluster_of(self, name: str) -> str:
        return self._clusters[name]
