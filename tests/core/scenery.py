"""A Flink cluster that writes znodes, and a sidecar's core that watches them: scenarios read as sentences."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core import layout
from sidecar.core.deliveries import Delivery
from sidecar.core.evidence import Capture
from sidecar.core.layout import Layout
from sidecar.core.leadership import CLUSTER_COMPONENTS, Component, ComponentId, LeaderInformation, ZNodePosition
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ConnectionState,
    DeliverySettled,
    NodeObserved,
    NodeRefused,
    Observation,
    Outcome,
    SnapshotCompleted,
    Started,
    Stopped,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy import Destination, Policy, Rule, Severity, Store, Trigger
from sidecar.core.records import AnyRecord, Coverage, Episode, Notification, Transition
from sidecar.core.routing import Route
from sidecar.core.rows import assemble, changes
from sidecar.core.state import ComponentState, State
from sidecar.core.step import Append, Gather, Send, Step, step
from tests.core.java import connection_info
from tests.core.recordings import Tree, ZNode

CLUSTER: Final = "default"
START: Final = 1_795_161_600 * SECOND
"""2026-11-20T08:00:00Z."""

JOB: Final = "ff595cc2c737b4d30a69e740b7002d50"
RESOURCE_MANAGER, DISPATCHER, REST_SERVER = CLUSTER_COMPONENTS
THE_JOB: Final = ComponentId(Component.JOB, JOB)
ALL_FOUR: Final = (*CLUSTER_COMPONENTS, THE_JOB)

LEADER_CHANGED: Final = Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED)
NO_LEADER: Final = Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND)
OPS: Final = Destination("ops", 0)
POLICY: Final = Policy(
    "sidecar-0",
    {CLUSTER: Store.ZOOKEEPER},
    rules=(LEADER_CHANGED, NO_LEADER),
    route=Route("ops"),
    receivers={"ops": (OPS,)},
)


BY_ALERT: Final = replace(POLICY, route=Route("ops", group_by=("cluster_id", "alert")))
"""Each rule has a group of its own."""


def telling(*destinations: Destination, policy: Policy = POLICY) -> Policy:
    """`policy` with these to be told."""
    return replace(policy, receivers={"ops": destinations})


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


class Flink:
    """What a Flink cluster writes below its namespace. Every method that writes is one ZooKeeper transaction."""

    def __init__(self, era: Layout = Layout.Z4) -> None:
        self.era = era
        self.tree = Tree()
        self.zxid = 100
        self.changed: list[str] = []
        """Paths that changed and that the sidecar has not been shown."""

    @property
    def job_store(self) -> str:
        return "/execution-plans" if self.era is Layout.Z4 else "/jobgraphs"

    def path(self, component: ComponentId) -> str:
        """Where the leader of `component` stands."""
        if component.job_id is None:
            name = component.component.value
            return f"/leader/{name}_lock" if self.era is Layout.Z1 else f"/leader/{name}/connection_info"
        return {
            Layout.Z1: f"/leader/{component.job_id}/job_manager_lock",
            Layout.Z2: f"/jobs/{component.job_id}/leader/connection_info",
            Layout.Z3: f"/leader/{component.job_id}/connection_info",
            Layout.Z4: f"/leader/job-{component.job_id}/connection_info",
        }[self.era]

    def submit(self, job_id: str = JOB) -> "Flink":
        self.write(f"{self.job_store}/{job_id}", None, 0)
        return self

    def forget(self, job_id: str = JOB) -> None:
        """Drop the job's graph: there is nothing to recover any more."""
        self.delete(f"{self.job_store}/{job_id}")

    def elect(self, leader: JobManager, *components: ComponentId) -> "Flink":
        """`leader` publishes itself, for all four components unless told otherwise."""
        if self.era in {Layout.Z3, Layout.Z4}:
            self._parents("/leader/latch/x")
        for component in components or ALL_FOUR:
            self.publish(component, leader.leads(component), leader.zookeeper_session)
        return self

    def publish(self, component: ComponentId, leader: LeaderInformation, owner: int = 7) -> None:
        self.write(self.path(component), connection_info(leader.address, leader.session_id), owner)

    def vacate(self, *components: ComponentId) -> None:
        """The leader's session ended: what it had published is gone."""
        for component in components or ALL_FOUR:
            self.delete(self.path(component))

    def write(self, path: str, data: bytes | None, owner: int) -> None:
        """As Flink does: set the data of a node of one's own, else delete what is there and create it anew."""
        self.zxid += 1
        old = self.tree.nodes.get(path)
        mtime = START // 1000 + self.zxid
        if old and old.position.ephemeral_owner == owner:
            position = replace(old.position, mzxid=self.zxid, version=old.position.version + 1, mtime=mtime)
        else:
            position = ZNodePosition(path, self.zxid, self.zxid, 0, owner, mtime)
        self._parents(path)
        self.tree.nodes[path] = ZNode(data, position)
        self.changed.append(path)

    def delete(self, path: str) -> None:
        self.zxid += 1
        if self.tree.nodes.pop(path, None):
            self.changed.append(path)

    def _parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.tree.nodes:
            self.tree.nodes[parent] = ZNode(b"", ZNodePosition(parent, self.zxid, self.zxid, 0, 0, 0))
            self._parents(parent)


class Sidecar:
    """A sidecar's core and its surroundings: a driver that looks where `layout.wanted` says, a disk that keeps rows, a sender."""

    def __init__(self, flink: Flink, policy: Policy = POLICY) -> None:
        self.flink = flink
        self.policy = policy
        self.state = State()
        self.records: list[AnyRecord] = []
        self.sent: list[Delivery] = []
        self.asked: list[Capture] = []
        self.answers: dict[str, Outcome | None] = {}
        """How each destination answers, by name: DELIVERED unless told otherwise, None for never."""
        self.now = START
        self._seen_paths: set[str] = set()
        self.take(Started)

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now)

    def known(self, component: ComponentId) -> ComponentState:
        return self.state.clusters[CLUSTER].components[component]

    def transitions(self, *components: ComponentId) -> list[Transition]:
        """What was recorded of `components`, or of all."""
        wanted = {(c.component.value, c.job_id) for c in components}
        return [
            r for r in self.records if isinstance(r, Transition) and (not wanted or (r.component, r.job_id) in wanted)
        ]

    def kinds(self, component: ComponentId) -> list[str]:
        return [transition.kind for transition in self.transitions(component)]

    def coverage(self) -> list[Coverage]:
        return [record for record in self.records if isinstance(record, Coverage)]

    def episodes(self) -> list[Episode]:
        return [record for record in self.records if isinstance(record, Episode)]

    def notifications(self) -> list[Notification]:
        return [record for record in self.records if isinstance(record, Notification)]

    def told(self) -> list[tuple[str, str]]:
        """What was sent: alert and reason."""
        return [(delivery.alert, delivery.reason.value) for delivery in self.sent]

    # -- time ----------------------------------------------------------------------------------------------------------

    def waits(self, seconds: float, tick: float = 0.25) -> "Sidecar":
        """Time passes, tick by tick."""
        until = self.now + round(seconds * SECOND)
        while self.now < until:
            self.now = min(self.now + round(tick * SECOND), until)
            self.take(Ticked)
        return self

    # -- the driver ----------------------------------------------------------------------------------------------------

    def connects(self) -> "Sidecar":
        """The connection is there, and everything is read."""
        self.reconnects()
        self.reads_everything()
        self.observe(SnapshotCompleted(self.moment, CLUSTER))
        return self

    def reconnects(self) -> None:
        self.observe(ViewObserved(self.moment, CLUSTER, ConnectionState.CONNECTED))

    def is_cut_off(self, connection: ConnectionState = ConnectionState.SUSPENDED) -> "Sidecar":
        self.observe(ViewObserved(self.moment, CLUSTER, connection))
        return self

    def reads_everything(self) -> None:
        children = dict.fromkeys(layout.wanted({}).lists, tuple[str, ...]())
        while True:
            wanted = layout.wanted(children)
            found = {path: self.flink.tree.children(path) for path in wanted.lists}
            if found == children:
                break
            children = found
        self.reads_lists(sorted(children))
        self.reads(*sorted(wanted.nodes | self._seen_paths))
        self.flink.changed.clear()

    def sees_changes(self) -> "Sidecar":
        """What changed is read, path by path; several changes of one path in a row are one sight."""
        changed = list(dict.fromkeys(self.flink.changed))
        self.flink.changed.clear()
        self.reads_lists(sorted({path.rpartition("/")[0] for path in changed} & set(layout.JOB_STORES)))
        self.reads(*changed)
        return self

    def reads(self, *paths: str) -> None:
        for path in paths:
            node = self.flink.tree.nodes.get(path)
            if node:
                self._seen_paths.add(path)
            self.observe(
                NodeObserved(
                    self.moment, CLUSTER, path, node.data or b"" if node else b"", node.position if node else None
                )
            )

    def reads_lists(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.observe(ChildrenObserved(self.moment, CLUSTER, path, self.flink.tree.children(path)))

    def is_refused(self, path: str, reason: str = "no permission") -> None:
        self.observe(NodeRefused(self.moment, CLUSTER, path, reason))

    # -- the process ---------------------------------------------------------------------------------------------------

    def is_killed(self, down_for: float = 0) -> "Sidecar":
        """kill -9, and a new process on the same disk."""
        self.state, problems = assemble(changes(State(), self.state))
        assert problems == []
        self.now += round(down_for * SECOND)
        self.take(Started)
        return self

    def stops(self) -> None:
        self.take(Stopped)

    def take(self, kind: type[Started | Ticked | Stopped]) -> None:
        self._step(kind(self.moment))

    def observe(self, observation: Observation) -> None:
        """One observation, a millisecond after the last one."""
        self._step(observation)
        self.now += 1000

    def _after(self, observation: Observation) -> Step:
        return step(self.policy, self.state, observation)

    def _step(self, observation: Observation) -> None:
        self.state, effects = self._after(observation)
        for effect in effects:
            match effect:
                case Append(record):
                    self.records.append(record)
                case Send(delivery):
                    self._send(delivery)
                case Gather(capture):
                    self.asked.append(capture)

    def _send(self, delivery: Delivery) -> None:
        self.sent.append(delivery)
        answer = self.answers.get(delivery.destination, Outcome.DELIVERED)
        if answer is not None:
            self._step(DeliverySettled(self.moment, delivery.id, answer))


def watching(leader: JobManager = A, era: Layout = Layout.Z4, policy: Policy = POLICY) -> tuple[Flink, Sidecar]:
    """A running cluster with one job, led by `leader`, and a sidecar that has been seeing it for a minute."""
    flink = Flink(era).submit().elect(leader)
    sidecar = Sidecar(flink, policy).connects().waits(60)
    sidecar.records.clear()
    return flink, sidecar


def fail_over(flink: Flink, sidecar: Sidecar, after: float = 2.0) -> None:
    """A is gone, and B leads everything `after` so many seconds."""
    flink.vacate()
    sidecar.sees_changes().waits(after)
    flink.elect(B)
    sidecar.sees_changes()
