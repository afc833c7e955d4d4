"""The fake Flink: what the JobManagers of a cluster write, in memory and, where a writer is given, in a real store."""

from sidecar.core.flink.leadership import ComponentId, LeaderInformation
from tests.kit.cluster import ALL_FOUR, JOB, JobManager
from tests.kit.config_maps import ConfigMaps
from tests.kit.znodes import ZNodes


class Flink:
    """A Flink cluster that keeps what it writes in `store`."""

    def __init__(self, store: ZNodes | ConfigMaps | None = None) -> None:
        """None: znodes as Flink has them since 1.19, in memory alone."""
        self._store = store or ZNodes()

    @property
    def znodes(self) -> ZNodes:
        """What it keeps, if that is znodes."""
        assert isinstance(self._store, ZNodes)
        return self._store

    @property
    def config_maps(self) -> ConfigMaps:
        """What it keeps, if that is ConfigMaps."""
        assert isinstance(self._store, ConfigMaps)
        return self._store

    def submit(self, job_id: str = JOB) -> "Flink":
        """Keep the job's graph, from which a JobManager recovers it."""
        self._store.submit(job_id)
        return self

    def forget(self, job_id: str = JOB) -> "Flink":
        """Drop the job's graph: there is nothing to recover any more."""
        self._store.forget(job_id)
        return self

    def elect(self, leader: JobManager, *components: ComponentId) -> "Flink":
        """`leader` is granted leadership and publishes itself, for all four components unless given otherwise."""
        return self.grant(leader, *components).publish_all(leader, *components)

    def grant(self, leader: JobManager, *components: ComponentId) -> "Flink":
        """`leader` is granted leadership: nothing is published with that."""
        self._store.grant(leader, components or ALL_FOUR)
        return self

    def publish_all(self, leader: JobManager, *components: ComponentId) -> "Flink":
        """`leader` publishes itself, for all four components unless given otherwise."""
        for component in components or ALL_FOUR:
            self.publish(component, leader.leads(component), leader.zookeeper_session)
        return self

    def publish(self, component: ComponentId, leader: LeaderInformation, owner: int = 7) -> "Flink":
        """Publish that information. `owner`: the ZooKeeper session that does."""
        self._store.publish(component, leader, owner)
        return self

    def vacate(self, *components: ComponentId) -> "Flink":
        """What had been published is removed: where ZooKeeper is the store, because the leader's session ended."""
        for component in components or ALL_FOUR:
            self._store.remove(component)
        return self
