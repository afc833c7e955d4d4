"""A sidecar's core, with a driver, a disk and a sender: scenarios read as sentences."""

from collections.abc import Iterable
from typing import Final, Self

from msgspec import json
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.alerting import silence_document
from sidecar.core.alerting.alerting_step import ReadSilences, Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.alerting.silence_document import StoredSilence
from sidecar.core.captures import Capture
from sidecar.core.cluster.cluster_state import ComponentState
from sidecar.core.failover.failover_events import KubernetesEvent
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ConfigMapObserved,
    ConnectionState,
    DeliveryOutcome,
    DeliverySettled,
    HandoverRead,
    NodeObserved,
    NodeRefused,
    Observation,
    PictureTaken,
    SilencesRead,
    SnapshotCompleted,
    Started,
    Stopped,
    Ticked,
    ViewObserved,
)
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity, Store
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import AnyRecord, Coverage, EpisodeRecord, Notification, TransitionRecord
from sidecar.core.state import Append, Gather, NamePod, Publish, State, TakePicture
from sidecar.core.step import Step, step
from tests.kit.cluster import CLUSTER, START, A, B, JobManager
from tests.kit.config_maps import ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

LEADER_CHANGED: Final = Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED)
NO_LEADER: Final = Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, hold_for=30 * SECOND)
OPS: Final = Destination("ops", 0)
POLICY: Final = Policy(
    "sidecar-0",
    {CLUSTER: Store.ZOOKEEPER},
    rules=(LEADER_CHANGED, NO_LEADER),
    route=Route("ops"),
    receivers={"ops": (OPS,)},
    plans=frozenset({CLUSTER}),
)
BY_ALERT: Final = replace(POLICY, route=Route("ops", group_by=("cluster_id", "alert")))
"""Each rule has a group of its own."""


def with_destinations(*destinations: Destination, policy: Policy = POLICY) -> Policy:
    """`policy` with these to be notified."""
    return replace(policy, receivers={"ops": destinations})


KUBERNETES: Final = replace(POLICY, stores={CLUSTER: Store.KUBERNETES})
RENEWAL: Final = 5.0
"""Seconds between two renewals of a leader that lives."""


class Sidecar:
    """A sidecar's core and its surroundings: a driver that looks where `layout.wanted` says, a disk that keeps rows, a sender."""

    def __init__(self, flink: Flink, policy: Policy = POLICY) -> None:
        self.flink = flink
        self.policy = policy
        self.state = State()
        self.records: list[AnyRecord] = []
        self.sent: list[Delivery] = []
        self.asked: list[Capture] = []
        self.events: list[KubernetesEvent] = []
        self.wanted: list[str] = []
        """Addresses whose pods are asked for."""
        self.answers: dict[str, DeliveryOutcome | None] = {}
        """How each destination answers, by name: DELIVERED unless given otherwise, None for never."""
        self.silences: dict[str, bytes | None] = {}
        """The documents of silences in the store; None: it cannot be reached."""
        self.store_hangs = False
        """Whether nothing that is asked for silences is answered."""
        self.rest_answers = True
        """Or nothing comes back: no picture, and no problem."""
        self.now = START
        self._seen_paths: set[str] = set()
        self.take(Started)

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.now)

    def component_state(self, component: ComponentId) -> ComponentState:
        return self.state.clusters[CLUSTER].components[component]

    def transitions(self, *components: ComponentId) -> list[TransitionRecord]:
        """What was recorded of `components`, or of all."""
        wanted = {(c.component.value, c.job_id) for c in components}
        return [
            r
            for r in self.records
            if isinstance(r, TransitionRecord) and (not wanted or (r.component, r.job_id) in wanted)
        ]

    def kinds(self, component: ComponentId) -> list[str]:
        return [transition.kind for transition in self.transitions(component)]

    def coverage(self) -> list[Coverage]:
        return [record for record in self.records if isinstance(record, Coverage)]

    def episodes(self) -> list[EpisodeRecord]:
        return [record for record in self.records if isinstance(record, EpisodeRecord)]

    def notifications(self) -> list[Notification]:
        return [record for record in self.records if isinstance(record, Notification)]

    def sent_reasons(self) -> list[tuple[str, str]]:
        """What was sent: alert and reason."""
        return [(delivery.alert, delivery.reason.value) for delivery in self.sent]

    def silenced_by(self, *silences: StoredSilence) -> None:
        """Have these silences, and no others, in the cluster's document."""
        self.silences[CLUSTER] = silence_document.written({silence.id: silence for silence in silences})

    # -- time ----------------------------------------------------------------------------------------------------------

    def waits(self, seconds: float, tick: float = 0.25) -> Self:
        """Time passes, tick by tick."""
        until = self.now + round(seconds * SECOND)
        while self.now < until:
            self.now = min(self.now + round(tick * SECOND), until)
            self.take(Ticked)
        return self

    # -- the driver ----------------------------------------------------------------------------------------------------

    def connects(self) -> Self:
        """The connection is there, and everything is read."""
        self.reconnects()
        self.reads_everything()
        self.observe(SnapshotCompleted(self.moment, CLUSTER))
        return self

    def reconnects(self) -> None:
        self.observe(ViewObserved(self.moment, CLUSTER, ConnectionState.CONNECTED))

    def is_cut_off(self, connection: ConnectionState = ConnectionState.SUSPENDED) -> Self:
        self.observe(ViewObserved(self.moment, CLUSTER, connection))
        return self

    def reads_everything(self) -> None:
        children = dict.fromkeys(znode_paths.wanted({}).lists, tuple[str, ...]())
        while True:
            wanted = znode_paths.wanted(children)
            names = {path: self.flink.znodes.tree.children(path) for path in wanted.lists}
            if names == children:
                break
            children = names
        self.reads_lists(sorted(children))
        self.reads(*sorted(wanted.nodes | self._seen_paths))
        self.flink.znodes.changed.clear()

    def sees(self, _written: Flink | ConfigMaps) -> Self:
        """What has just been written is read: `sidecar.sees(flink.vacate())`."""
        self.sees_changes()
        return self

    def sees_changes(self) -> Self:
        """What changed is read, path by path; several changes of one path in a row are one sight."""
        changed = list(dict.fromkeys(self.flink.znodes.changed))
        self.flink.znodes.changed.clear()
        self.reads_lists(sorted({path.rpartition("/")[0] for path in changed} & set(znode_paths.JOB_STORES)))
        self.reads(*changed)
        return self

    def reads(self, *paths: str) -> None:
        for path in paths:
            node = self.flink.znodes.tree.nodes.get(path)
            if node:
                self._seen_paths.add(path)
            self.observe(
                NodeObserved(
                    self.moment, CLUSTER, path, node.data or b"" if node else b"", node.position if node else None
                )
            )

    def reads_lists(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.observe(ChildrenObserved(self.moment, CLUSTER, path, self.flink.znodes.tree.children(path)))

    def is_refused(self, path: str, reason: str = "no permission") -> None:
        self.observe(NodeRefused(self.moment, CLUSTER, path, reason))

    # -- the process ---------------------------------------------------------------------------------------------------

    def is_killed(self, down_for: float = 0) -> Self:
        """kill -9, and a new process on the same disk."""
        self.state, problems = assemble(changes(State(), self.state))
        assert problems == []
        self.now += round(down_for * SECOND)
        self.take(Started)
        return self

    def is_replaced(self, down_for: float = 0) -> Self:
        """Its pod is deleted, and its disk with it: the next one has what was handed over."""
        left = handover.written(
            CLUSTER, handover.cluster_handover(self.policy, self.state, CLUSTER, self.moment, ended=True)
        )
        self.state = State()
        self.now += round(down_for * SECOND)
        self.take(Started)
        self.observe(HandoverRead(self.moment, CLUSTER, left))
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
                case Publish(event):
                    self.events.append(event)
                case NamePod(_, host):
                    self.wanted.append(host)
                case ReadSilences(document):
                    self._read_silences(document)
                case TakePicture(request) if self.rest_answers:  # a test shows pictures when it wants to
                    problem = PictureTaken(self.moment, request.cluster_id, request.address, None, "not shown")
                    self._step(problem)

    def _read_silences(self, document: str) -> None:
        if self.store_hangs:
            return
        content = self.silences.get(document, b"")
        problem = "out of reach" if content is None else None
        self._step(SilencesRead(self.moment, document, content, problem))

    def _send(self, delivery: Delivery) -> None:
        self.sent.append(delivery)
        answer = self.answers.get(delivery.destination, DeliveryOutcome.DELIVERED)
        if answer is not None:
            self._step(DeliverySettled(self.moment, delivery.id, answer))


def watching(
    leader: JobManager = A, era: ZNodeLayout = ZNodeLayout.Z4, policy: Policy = POLICY
) -> tuple[Flink, Sidecar]:
    """A running cluster with one job, led by `leader`, and a sidecar that has been seeing it for a minute."""
    flink = Flink(ZNodes(era)).submit().elect(leader)
    sidecar = Sidecar(flink, policy).connects().waits(60)
    sidecar.records.clear()
    return flink, sidecar


def fail_over(
    flink: Flink, sidecar: Sidecar, after: float = 2.0, to: JobManager = B, *components: ComponentId
) -> Sidecar:
    """The leader is gone, and the next one leads `after` so many seconds: everything, or these components."""
    sidecar.sees(flink.vacate(*components)).waits(after)
    flink.elect(to, *components)
    return sidecar.sees_changes()


def the_episode(sidecar: Sidecar) -> EpisodeRecord:
    """The only one that is over."""
    (episode,) = sidecar.episodes()
    return episode


def failed_over() -> EpisodeRecord:
    """The failover of a cluster from A to B, which took 2 s."""
    return the_episode(fail_over(*watching()).waits(10))


class LeaseSidecar(Sidecar):
    """A sidecar's core, with a driver that watches ConfigMaps."""

    def __init__(self, flink: Flink, policy: Policy = KUBERNETES) -> None:
        super().__init__(flink, policy)
        self._names: set[str] = set()

    def reads_everything(self) -> None:
        self.flink.config_maps.changed.clear()
        self.reports(*sorted(self._names | {*self.flink.config_maps.maps}))

    def sees_changes(self) -> Self:
        changed = list(dict.fromkeys(self.flink.config_maps.changed))
        self.flink.config_maps.changed.clear()
        self.reports(*changed)
        return self

    def looks(self) -> Self:
        """Nothing was heard: the driver asks, and reports what stands, changed or not."""
        self.reads_everything()
        return self

    def reports(self, *names: str) -> None:
        self._names.update(names)
        for name in names:
            self.observe(self.shown(name))

    def shown(self, name: str) -> ConfigMapObserved:
        config_map = self.flink.config_maps.maps.get(name)
        if config_map is None:
            return ConfigMapObserved(self.moment, CLUSTER, name)
        lease = json.encode(config_map.lease).decode() if config_map.lease is not None else None
        return ConfigMapObserved(
            self.moment, CLUSTER, name, config_map.uid, str(config_map.version), dict(config_map.data), lease
        )

    def completes(self) -> None:
        self.observe(SnapshotCompleted(self.moment, CLUSTER))

    def watches(self, seconds: float, *components: ComponentId) -> Self:
        """Time passes and leases are renewed: all of them, or those of these components."""
        for _ in range(round(seconds / RENEWAL)):
            self.waits(RENEWAL)
            self.flink.config_maps.renew(*components)
            self.sees_changes()
        return self

    def hears_nothing(self, seconds: float) -> Self:
        """Time passes, nothing is written, and the driver looks every second and a half."""
        for _ in range(round(seconds / 1.5)):
            self.waits(1.5)
            self.looks()
        return self


def leased(
    leader: JobManager = A, era: configmaps.ConfigMapLayout = configmaps.ConfigMapLayout.K3, policy: Policy = KUBERNETES
) -> tuple[Flink, LeaseSidecar]:
    """A running cluster with one job, led by `leader`, and a sidecar that has been seeing it for a minute."""
    flink = Flink(ConfigMaps(era)).grant(leader).submit().publish_all(leader)
    sidecar = LeaseSidecar(flink, policy)
    sidecar.connects()
    sidecar.watches(60)
    sidecar.records.clear()
    return flink, sidecar
