"""What a finder told, by cluster."""

import threading
import time
from collections.abc import Callable

from sidecar.core.observations import (
    ClusterObservation,
    ClustersListed,
    ConnectionState,
    FinderObservation,
    ViewConfirmed,
    ViewObserved,
)
from sidecar.ports import ClusterFinder
from tests.kit.waiting import PATIENCE_SECONDS


class Recorder:
    """An observer that keeps what it was told, in order."""

    def __init__(self, finder: ClusterFinder) -> None:
        self.finder = finder
        self.all: list[FinderObservation] = []
        self.confirmed: list[ViewConfirmed] = []
        """Apart from all the rest: these come all the time."""
        self._told = threading.Condition()

    def __call__(self, observation: FinderObservation) -> None:
        with self._told:
            if isinstance(observation, ViewConfirmed):
                self.confirmed.append(observation)
            else:
                self.all.append(observation)
            self._told.notify_all()

    def of(self, cluster_id: str) -> list[ClusterObservation]:
        """What was told of one cluster."""
        return [each for each in list(self.all) if getattr(each, "cluster_id", None) == cluster_id]  # type: ignore[misc]

    def listed(self) -> list[ClustersListed]:
        return [each for each in list(self.all) if isinstance(each, ClustersListed)]

    def views(self, cluster_id: str) -> list[ConnectionState]:
        return [each.connection for each in self.of(cluster_id) if isinstance(each, ViewObserved)]

    def wait(self, condition: Callable[[], object], timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until what was told makes `condition` true; fails with what was told when it does not."""
        deadline = time.monotonic() + timeout
        with self._told:
            while not condition():
                assert time.monotonic() < deadline, f"not within {timeout} s, of {self.all[-12:]}"
                self._told.wait(0.05)

    def wait_listed(self, cluster_ids: set[str]) -> None:
        """Wait until everything has been read, and these clusters are what there is."""
        self.wait(lambda: [each.cluster_ids for each in self.listed()][-1:] == [frozenset(cluster_ids)])
