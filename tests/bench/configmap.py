"""Clusters that keep their leaders in ConfigMaps as Flink 2 does: three components and a job, and their lease."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from tests.kit.cluster import DISPATCHER, JOB, JobManager
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink

_HOST = "10.244.13.27"
_SESSION_ID = UUID("9c500829-948d-4512-9719-33d6a98b41ff")


def cluster_config_map(cluster: str) -> str:
    """The name of the one that a cluster has."""
    return f"{cluster}-cluster-config-map"


class Clusters:
    """Fake Flinks on one connection to the API server, each in one term of its lease. Sent to another process, they connect anew there."""

    def __init__(self, url: str, authority: Path, token: str, duration: str = "PT15S") -> None:
        """`duration`: of leases."""
        self._duration = duration
        self._writer = ApiServerWriter(url, authority, token)
        self._flinks: dict[str, Flink] = {}

    def create(self, cluster: str, session_id: UUID) -> None:
        """In one write, with all that a running cluster has."""
        kept = ConfigMaps(cluster_id=cluster, duration=self._duration)
        leader = JobManager(_HOST, _SESSION_ID, 0)
        self._flinks[cluster] = Flink(kept).elect(leader).submit()
        kept[cluster_config_map(cluster)].data[f"executionPlan-{JOB}"] = "a" * 200
        self._lead(kept, cluster, session_id)
        kept.attach(self._writer)

    def replace(self, cluster: str, session_id: UUID) -> None:
        """The dispatcher's leader and the renewed lease in one write: Flink writes one component after the other, too."""
        kept = self._flinks[cluster].config_maps
        with kept.writing(cluster_config_map(cluster)):
            self._lead(kept, cluster, session_id)

    def remove(self, cluster: str) -> None:
        """The leader withdraws, then the ConfigMap is deleted: as Flink and the operator do it."""
        flink = self._flinks.pop(cluster)
        flink.vacate()
        flink.config_maps.delete(cluster_config_map(cluster))

    def _lead(self, kept: ConfigMaps, cluster: str, session_id: UUID) -> None:
        config_map = kept[cluster_config_map(cluster)]
        assert config_map.lease is not None
        config_map.lease["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        address = JobManager(_HOST, session_id, 0).leads(DISPATCHER).address
        config_map.data[kept.key(DISPATCHER)] = f"{session_id},{address}"
