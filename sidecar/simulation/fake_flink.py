"""A simulated Flink cluster: the ZooKeeper nodes that a test describes, and a driver's observations of them."""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID
from zlib import crc32

from sidecar.core.flink import znode_paths
from sidecar.core.flink.connection_info import decode_connection_info, encode_connection_info
from sidecar.core.flink.leadership import Component, ComponentId, LeaderInformation, ZNodePosition
from sidecar.core.ha.finding import Verdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    HaChecked,
    NodeObserved,
    PictureTaken,
    PlanObservation,
    SnapshotCompleted,
    StoreObserved,
    ViewObserved,
)
from sidecar.core.records import record_id
from sidecar.settings.rule_tests import JobAct, ScenarioEvent, Who
from sidecar.simulation.fake_operator import SimulatedDeployment
from sidecar.simulation.fake_rest import SimulatedRest
from sidecar.simulation.job_ids import ID_SEED, job_id

_JOB_STORE: Final = znode_paths.JOB_STORES[-1]
_EPOCH: Final = 1 << 32


class SimulatedFlink:
    """One cluster. At first it has no nodes, and its store can be observed."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._nodes: dict[str, tuple[bytes, ZNodePosition] | None] = {}
        """The nodes by path. None: deleted."""
        self._jobs: set[str] = set()
        self._contenders: tuple[str, ...] | None = None
        self._contended = 0
        self._zxid = _EPOCH
        self._zxid_observed = False
        self._checks: dict[str, Verdict] = {}
        self._terms: dict[str, int] = {}
        self._blind = False
        self._deployment = SimulatedDeployment(cluster_id)
        self._rest = SimulatedRest(cluster_id)

    def connect(self, at: Moment) -> Iterator[ClusterObservation | PlanObservation]:
        """The observations of drivers that connect and read everything; while blind, of the FlinkDeployment alone."""
        yield from self._deployment.observed(at)
        if self._blind:
            return
        yield ViewObserved(at, self._cluster_id, ConnectionState.CONNECTED)
        for store in znode_paths.JOB_STORES:
            yield self._jobs_listed(at) if store == _JOB_STORE else ChildrenObserved(at, self._cluster_id, store, ())
        if self._contenders is not None:
            yield ChildrenObserved(at, self._cluster_id, znode_paths.LATCH, self._contenders)
        yield from (self._node(at, path, writes=None) for path in self._nodes)
        if self._zxid_observed:
            yield StoreObserved(at, self._cluster_id, self._zxid)
        yield SnapshotCompleted(at, self._cluster_id)

    def apply(self, event: ScenarioEvent, at: Moment) -> Iterator[ClusterObservation | PlanObservation | HaChecked]:
        """Apply an event to this cluster; the drivers' observations of it."""
        if event.operator:
            yield from self._deployment.apply(event.operator, at)
        if event.checks:
            self._checks |= event.checks
            results = (
                CheckResult(check=name, verdict=verdict, text="as tested") for name, verdict in self._checks.items()
            )
            yield HaChecked(at, self._cluster_id, tuple(results))
        was_blind, self._blind = self._blind, self._blind if event.blind is None else event.blind
        observations = [*self._change(event, at)]
        if self._blind:
            if not was_blind:
                yield ViewObserved(at, self._cluster_id, ConnectionState.LOST)
        elif was_blind:
            yield from self.connect(at)
        else:
            yield from observations

    def pictured(self, at: Moment) -> Iterator[PictureTaken]:
        """The answer of the leading REST server, if a test gives one."""
        node = self._nodes.get(_path(ComponentId(Component.REST_SERVER)))
        leader = decode_connection_info(node[0]) if node and not self._blind else None
        if isinstance(leader, LeaderInformation):
            yield from self._rest.pictured(leader.address, at)

    def _change(self, event: ScenarioEvent, at: Moment) -> Iterator[ClusterObservation]:
        if event.submitted:
            self._jobs |= {*event.submitted}
            yield self._jobs_listed(at)
        for who in (*event.gone, *event.ended):
            path = _path(who)
            if self._nodes.get(path):
                self._zxid += 1
                self._nodes[path] = None
                yield self._node(at, path, writes=1)
        vanished = {*event.ended, *(job for job, act in event.jobs.items() if act is JobAct.MISSING)}
        self._rest.apply(event, at)
        if vanished:
            self._jobs -= vanished
            yield self._jobs_listed(at)
        if event.contenders is not None:
            yield self._set_contenders(event.contenders, at)
        yield from self._publish(event.leader, event, at, anew=True)
        yield from self._publish(event.returns, event, at, anew=False)
        if event.zxid_headroom is not None:
            used = _EPOCH - 1 - event.zxid_headroom
            epoch = self._zxid // _EPOCH + (used < self._zxid % _EPOCH)
            self._zxid = epoch * _EPOCH + used
            self._zxid_observed = True
            yield StoreObserved(at, self._cluster_id, self._zxid)

    def _publish(
        self, leaders: Mapping[Who, str], event: ScenarioEvent, at: Moment, *, anew: bool
    ) -> Iterator[ClusterObservation]:
        if anew:
            for manager in {*leaders.values()}:
                self._terms[manager] = self._terms.get(manager, 0) + 1
        for who, manager in leaders.items():
            session = UUID(record_id(ID_SEED, self._cluster_id, manager, self._terms.get(manager, 1)))
            leader = LeaderInformation(_address(who, manager.partition("#")[0]), session)
            self._zxid += 1 + event.unobserved
            path = _path(who)
            position = ZNodePosition(path, self._zxid, self._zxid, 0, crc32(manager.encode()) + 1, at.wall // 1000)
            self._nodes[path] = (encode_connection_info(leader), position)
            yield self._node(at, path, writes=1 + event.unobserved)

    def _set_contenders(self, number: int, at: Moment) -> ChildrenObserved:
        """Change the number of contenders. The oldest leave first."""
        names = [*(self._contenders or ())]
        while len(names) < number:
            names.append(f"latch-{self._contended:010}")
            self._contended += 1
        self._contenders = tuple(names[len(names) - number :])
        return ChildrenObserved(at, self._cluster_id, znode_paths.LATCH, self._contenders)

    def _jobs_listed(self, at: Moment) -> ChildrenObserved:
        return ChildrenObserved(at, self._cluster_id, _JOB_STORE, tuple(sorted(map(job_id, self._jobs))))

    def _node(self, at: Moment, path: str, writes: int | None) -> NodeObserved:
        data, position = self._nodes[path] or (b"", None)
        return NodeObserved(at, self._cluster_id, path, data, position, writes)


def _path(who: Who) -> str:
    """The connection info node, as in Flink 1.19 and later."""
    name = f"job-{job_id(who)}" if isinstance(who, str) else who.component.value
    return f"{znode_paths.LEADER}/{name}/connection_info"


def _address(who: Who, host: str) -> str:
    component = who.component if isinstance(who, ComponentId) else Component.JOB
    if component is Component.REST_SERVER:
        return f"http://{host}:8081"
    endpoint = {Component.JOB: "jobmanager", Component.RESOURCE_MANAGER: "resourcemanager"}.get(component, "dispatcher")
    return f"pekko.tcp://flink@{host}:6123/user/rpc/{endpoint}_0"
