"""The Flink cluster that the tests know: its id, its job, its components and its JobManagers."""

from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, LeaderInformation
from sidecar.core.moment import SECOND

CLUSTER: Final = "default"
START: Final = 1_795_161_600 * SECOND
"""2026-11-20T08:00:00Z."""

JOB: Final = "ff595cc2c737b4d30a69e740b7002d50"
RESOURCE_MANAGER, DISPATCHER, REST_SERVER = CLUSTER_COMPONENTS
THE_JOB: Final = ComponentId(Component.JOB, JOB)
ALL_FOUR: Final = (*CLUSTER_COMPONENTS, THE_JOB)


class JobManager(Struct, frozen=True):
    """A process that leads everything at once, as Flink's do since 1.15: one leader session id, one ZooKeeper session."""

    host: str
    session_id: UUID
    zookeeper_session: int

    def leads(self, component: ComponentId) -> LeaderInformation:
        if component.component is Component.REST_SERVER:
            return LeaderInformation(f"http://{self.host}:8081", self.session_id)
        name = component.component.value.replace("_", "")
        return LeaderInformation(f"pekko.tcp://flink@{self.host}:6123/user/rpc/{name}_0", self.session_id)


def job_manager(host: str, term: int = 0) -> JobManager:
    """The JobManager on `host` in its `term`-th term as the leader. The same host keeps its ZooKeeper session."""
    named = UUID("9f6d2c8e-2f0f-4b7c-9d5b-0c9f5b1d7a10")
    return JobManager(host, uuid5(named, f"{host}/{term}"), uuid5(named, host).int >> 65)


A: Final = job_manager("jm-a")
B: Final = job_manager("jm-b")
