"""A simulated Flink cluster: the ZooKeeper nodes, FlinkDeployment and REST server that a test describes, and the observations of them."""

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID
from zlib import crc32

from msgspec.structs import replace

from sidecar.core.flink import znode_paths
from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.flink.leadership import (
    Component,
    ComponentId,
    LeaderInformation,
    ZNodePosition,
    decode_connection_info,
    encode_connection_info,
)
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConnectionState,
    DeploymentObserved,
    HaChecked,
    NodeObserved,
    PictureTaken,
    PlanObservation,
    SnapshotCompleted,
    StoreObserved,
    ViewObserved,
)
from sidecar.core.pictures import Checkpoint, Checkpoints, Job, Picture, Restored
from sidecar.core.reach import Reach
from sidecar.core.records import record_id
from sidecar.settings.rule_tests import JobAct, OperatorAct, ScenarioEvent, Who

ID_SEED: Final = "rehearsal"
"""Part of job ids and session ids, which titles in existing test files may have."""


def job_id(name: str) -> str:
    """The id of the job with this name."""
    return UUID(record_id(ID_SEED, "job", name)).hex


_RECONCILIATIONS: Final = {
    OperatorAct.UPGRADING: Reconciliation.UPGRADING,
    OperatorAct.DEPLOYED: Reconciliation.DEPLOYED,
    OperatorAct.ROLLING_BACK: Reconciliation.ROLLING_BACK,
    OperatorAct.ROLLED_BACK: Reconciliation.ROLLED_BACK,
}


class SimulatedDeployment:
    """The FlinkDeployment of one cluster. There is none until something happens to it."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._deployment: FlinkDeployment | None = None

    def observed(self, at: Moment) -> Iterator[DeploymentObserved]:
        """The observation of a driver that reads it, if there is one."""
        if self._deployment:
            yield DeploymentObserved(at, self._cluster_id, self._deployment)

    def apply(self, act: OperatorAct, at: Moment) -> Iterator[DeploymentObserved]:
        """Change it; a driver's observations."""
        if self._deployment is None:  # until now it was deployed, and stable
            self._deployment = FlinkDeployment(self._cluster_id, 1, 1, Reconciliation.DEPLOYED)
            yield from self.observed(at)
        deployment = self._deployment
        if state := _RECONCILIATIONS.get(act):
            deployment = replace(
                deployment, reconciliation=state, reconciled_at=at.wall, observed_generation=deployment.generation
            )
        elif act is OperatorAct.DELETED:
            deployment = replace(deployment, deleting=True)
        else:
            suspended = act is OperatorAct.SUSPENDED
            deployment = replace(deployment, generation=deployment.generation + 1, suspended=suspended)
        self._deployment = deployment
        yield from self.observed(at)


_STATES: Final = {JobAct.RESTARTING: "RESTARTING", JobAct.FAILED: "FAILED"}
_A_TERM: Final = 10
"""Checkpoints that a job completes under one leader."""


class SimulatedRest:
    """The REST server of one cluster. It is not asked until a test says something of it, and describes nothing until that is a job."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._acts: dict[str, JobAct] = {}
        self._terms: dict[str, int] = {}
        """The number of leaders that a job has had."""
        self._started: dict[str, int] = {}
        self._speaks = False
        self._reach: Reach | None = None

    def apply(self, event: ScenarioEvent, at: Moment) -> None:
        """Apply an event to the jobs."""
        for job in event.submitted:
            self._acts[job] = JobAct.RUNNING
        for job in (who for who in event.leader if isinstance(who, str)):
            self._terms[job] = self._terms.get(job, 0) + 1
            self._started[job] = at.wall
        for job in event.ended:
            self._acts.pop(job, None)
        for job, act in event.jobs.items():
            if act is JobAct.RUNNING and self._acts.get(job) in _STATES:
                self._started[job] = at.wall
        self._acts |= event.jobs
        self._speaks = self._speaks or bool(event.jobs)
        self._reach = event.rest or self._reach or (Reach.ANSWERS if event.jobs else None)

    def pictured(self, address: str, at: Moment) -> Iterator[PictureTaken]:
        """The picture of now, as the leader at `address` describes it, or that it does not."""
        if self._reach is None:
            return
        if self._reach is not Reach.ANSWERS or not self._speaks:
            yield PictureTaken(at, self._cluster_id, address, None, "no description", self._reach)
        else:
            jobs = tuple(self._job(name, act, at) for name, act in self._acts.items() if act is not JobAct.MISSING)
            yield PictureTaken(at, self._cluster_id, address, Picture(at.wall, address, jobs))

    def _job(self, name: str, act: JobAct, at: Moment) -> Job:
        state, term = _STATES.get(act, "RUNNING"), self._terms.get(name, 1)
        started, tasks = self._started.get(name, at.wall), int(state == "RUNNING")
        last = (term - 1) * _A_TERM
        restored = None if act is JobAct.FROM_NOTHING or term == 1 else last - (act is JobAct.FROM_OLDER)
        completed = tuple(Checkpoint(number, at.wall, at.wall) for number in (last + _A_TERM - 1, last + _A_TERM))
        origin = None if restored is None else Restored(restored)
        checkpoints = Checkpoints(at.wall + 1, completed, origin, last + 1)  # asked for after the jobs
        return Job(job_id(name), name, state, started, started, tasks, 1, checkpoints)


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
        self._checks: dict[str, CheckVerdict] = {}
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
