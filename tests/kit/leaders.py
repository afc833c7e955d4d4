"""Leaders of a cluster in a real ZooKeeper, who follow each other when a test says so: a failover of a real Flink takes seconds."""

import threading
import time
from typing import Final
from uuid import UUID

from kazoo.client import KazooClient

from tests.kit.cluster import CLUSTER, JobManager
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected

_VACANT_SECONDS: Final = 0.1
_LEADING_SECONDS: Final = 0.6
"""For how long each leads who is one of many."""


def await_election(address: str, cluster_id: str = CLUSTER) -> None:
    """Leave what a Flink does that has started and has no leader yet: a cluster of which nothing is there has no vacancy."""
    with connected(address) as client:
        client.ensure_path(f"/flink/{cluster_id}/leader/latch")


class Leaders:
    """The fake Flink with one JobManager after the other: `jm-00001` with the session id 1 is the first."""

    def __init__(self, address: str, cluster_id: str = CLUSTER) -> None:
        self.cluster_id = cluster_id
        self.client = KazooClient(address, timeout=60)
        self.term = 0
        self.led: list[str] = []
        """The hosts of all that led so far."""
        self._flink = Flink(ZNodes(writer=ZooKeeperWriter(self.client, f"/flink/{cluster_id}")))

    @property
    def present(self) -> str:
        """The host of the one who leads."""
        return f"jm-{self.term:05}"

    def start(self) -> None:
        """The job is submitted, and the first one leads."""
        self.client.start()
        self._flink.submit()
        self.fail_over()

    def fail_over(self) -> None:
        """The leader is gone; a moment later the next one has published itself everywhere."""
        self.vacate()
        time.sleep(_VACANT_SECONDS)
        self.elect()

    def vacate(self) -> None:
        """The leader is gone."""
        self._flink.vacate()

    def elect(self) -> None:
        """The next one publishes itself everywhere."""
        self.term += 1
        self.led.append(self.present)
        self._flink.elect(JobManager(self.present, UUID(int=self.term), self.term))

    def stop(self) -> None:
        self.client.stop()
        self.client.close()


class Flapping(Leaders):
    """Leaders that fail over and over, until they settle."""

    def __init__(self, address: str, cluster_id: str = CLUSTER) -> None:
        super().__init__(address, cluster_id)
        self._settling = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flapping")

    def start(self) -> None:
        super().start()
        self._thread.start()

    def settle(self) -> None:
        """One last failover, and its leaders stay."""
        self._settling.set()
        self._thread.join()
        self.fail_over()

    def stop(self) -> None:
        self._settling.set()
        self._thread.join()
        super().stop()

    def _run(self) -> None:
        while not self._settling.wait(_LEADING_SECONDS):
            self.fail_over()
