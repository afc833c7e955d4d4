"""What a finder reported, by cluster."""

from sidecar.core.observations import (
    ClusterObservation,
    ClustersListed,
    ConnectionState,
    FinderObservation,
    ViewObserved,
)
from sidecar.ports import ClusterFinder
from tests.kit.driver_recorder import Observations


class Recorder(Observations[FinderObservation]):
    """What a finder observed."""

    def __init__(self, finder: ClusterFinder) -> None:
        super().__init__()
        self.finder = finder

    def of(self, cluster_id: str) -> list[ClusterObservation]:
        """What was reported of one cluster."""
        return [observation for observation in list(self.all) if getattr(observation, "cluster_id", None) == cluster_id]  # type: ignore[misc]

    def listed(self) -> list[ClustersListed]:
        return [observation for observation in list(self.all) if isinstance(observation, ClustersListed)]

    def views(self, cluster_id: str) -> list[ConnectionState]:
        return [observation.connection for observation in self.of(cluster_id) if isinstance(observation, ViewObserved)]

    def wait_listed(self, cluster_ids: set[str]) -> None:
        """Wait until everything has been read, and these clusters are what there is."""
        self.wait(lambda: [observation.cluster_ids for observation in self.listed()][-1:] == [frozenset(cluster_ids)])
