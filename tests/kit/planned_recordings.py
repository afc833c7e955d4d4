"""Planned actions and real losses that were recorded in real pods, through the driver's decoders and the core."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.failover import plans
from sidecar.core.flink import configmaps
from sidecar.core.flink.deployments import Maker
from sidecar.core.moment import SECOND, parsed
from sidecar.core.observations import (
    ClusterFound,
    ClusterRemoved,
    ConfigMapObserved,
    ConnectionState,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.core.policy.policy import Policy, Rule, Severity, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.drivers.kubernetes.makers import GROUPS, MakerReports, Makers, maker_status
from sidecar.drivers.kubernetes.objects import Read, read_change
from sidecar.drivers.kubernetes.pod_objects import job_manager_pod
from sidecar.drivers.kubernetes.pod_reports import PodReports, Scope
from tests import ROOT
from tests.kit.config_maps import LEASE
from tests.kit.core_sidecar import KUBERNETES, Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

FOLDER: Final = ROOT / "tests" / "fixtures" / "kubernetes" / "planned"
CLUSTER: Final = "my-flink"
FOUND: Final = "flink/my-flink"
"""The same where clusters are found in all namespaces."""
RULES: Final = (
    *KUBERNETES.rules,
    Rule("FlinkPlannedFailover", Trigger.PLANNED_FAILOVER, Severity.INFO),
    Rule("FlinkStopped", Trigger.STOPPED, Severity.INFO),
)
POLICY: Final = replace(KUBERNETES, stores={CLUSTER: Store.KUBERNETES}, plans=frozenset({CLUSTER}), rules=RULES)
FINDS: Final = replace(POLICY, stores={}, plans=frozenset(), finds=Store.KUBERNETES)
WAITS: Final = 150
Line = dict[str, Any]


class Nodes:
    """What a sidecar without the right to read nodes knows of them; a drain of a 1.20 cluster needs it."""

    def exchange(self, *_: object) -> bool:
        return self.cordoned

    def reopen(self) -> None: ...

    def __init__(self, *, cordoned: bool) -> None:
        self.cordoned = cordoned


class Ending:
    """Knows of a namespace that it is being deleted."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def ended_with(self, _: str) -> str:
        return self.namespace


def lines(name: str) -> Iterator[Line]:
    with (FOLDER / f"{name}.jsonl").open() as file:
        next(file)
        yield from map(json.loads, file)


def begins_at(name: str) -> int:
    """When a recording begins, by the clock of its cluster (wall): its times are compared with that."""
    for line in lines(name):
        lease = line["object"]["metadata"].get("annotations", {}).get(LEASE)
        if lease and line["at"] > -12:
            renewed = parsed(str(json.loads(lease)["renewTime"]))
            return renewed - round((float(line["at"]) + 12) * SECOND)
    raise ValueError(f"{name}: no lease is renewed")


class Replay:
    """The drivers' decoders and reports, which feed a core. With a policy that finds clusters: that of all namespaces, with deaths."""

    def __init__(self, name: str, policy: Policy = POLICY, ending: str = "", *, reads: bool | None = None) -> None:
        """`ending`: a namespace that is being deleted. `reads`: whether it may list what makes JobManagers."""
        self.name = name
        self.finds = policy.finds is not None
        self.cluster = FOUND if self.finds else CLUSTER
        self.sidecar = Sidecar(Flink(ZNodes()), policy)
        self.sidecar.now = begins_at(name)
        self.ending, self.reads = ending, reads
        self.number = 0
        self.last: ConfigMapObserved | None = None
        self.drives()

    def drives(self) -> None:
        """A process begins."""
        policy, reads = self.sidecar.policy, self.reads
        reads = self.finds or bool(policy.plans) if reads is None else reads
        scope = Scope(
            None, None if self.finds else frozenset({CLUSTER}), plans=reads, deaths=self.finds, qualified=self.finds
        )
        clock, report = (lambda: self.sidecar.moment), self.sidecar.observe
        namespaces: Any = Ending(self.ending)
        self.makers = Makers(scope.clusters_in, clock, report, scope.every, namespaces) if reads else None
        nodes: Any = Nodes(cordoned=self.name == "drained")
        self.pods = PodReports(nodes, scope, clock, report, None, self.makers)
        if not self.finds:
            self.sidecar.observe(ViewObserved(self.sidecar.moment, self.cluster, ConnectionState.CONNECTED))

    def take(self, line: Line) -> None:
        """One change, as a watch delivers it."""
        self.number += 1
        kind, deleted = line["kind"], line["type"] == "DELETED"
        if kind == "ConfigMap":
            self._take_config_map(line, deleted=deleted)
        elif kind == "Pod":
            self.pods.changed(*self._read(line, job_manager_pod), deleted=deleted)
        elif self.makers:
            MakerReports(Maker(kind), self.makers).changed(
                *self._read(line, maker_status(Maker(kind))), deleted=deleted
            )

    def _read(self, line: Line, read: Read[Any]) -> tuple[str, Any]:
        change = json.dumps({"type": line["type"], "object": line["object"]}).encode()
        item = read_change(change, read, qualified=self.finds).item
        assert item
        return item.name, item.value

    def _take_config_map(self, line: Line, *, deleted: bool) -> None:
        metadata = line["object"]["metadata"]
        if metadata["name"] != f"{self.cluster.rpartition('/')[2]}-cluster-config-map":
            return
        at = self.sidecar.moment
        name = f"{metadata['namespace']}/{metadata['name']}" if self.finds else metadata["name"]
        new = self.finds and self.cluster not in self.sidecar.state.clusters and not deleted
        if new:
            self.sidecar.observe(ClusterFound(at, self.cluster))
            self.sidecar.observe(ViewObserved(at, self.cluster, ConnectionState.CONNECTED))
        if self.finds and deleted:
            self.sidecar.observe(ClusterRemoved(at, self.cluster))
        seen = ConfigMapObserved(at, self.cluster, name)
        if not deleted:
            data = configmaps.relevant(line["object"].get("data") or {})
            lease = metadata.get("annotations", {}).get(LEASE)
            seen = replace(seen, uid=metadata["uid"], resource_version=str(self.number), data=data, leader=lease)
        self.last = None if deleted else seen
        self.sidecar.observe(seen)
        if new:
            self.sidecar.observe(SnapshotCompleted(at, self.cluster))

    def plays(self, *, since: float = -1000.0) -> "Replay":
        """The whole recording; what comes before `since` at once: so late does the sidecar start."""
        began, first = self.sidecar.now, not self.finds
        for line in lines(self.name):
            at = began + round((line["at"] + 12) * SECOND)
            if line["at"] > -12 and first and line["at"] >= since:
                self.sidecar.observe(SnapshotCompleted(self.sidecar.moment, self.cluster))
                first = False
            if line["at"] >= since and at > self.sidecar.now:
                self.sidecar.waits((at - self.sidecar.now) / SECOND)
            self.take(line)
        if first:
            self.sidecar.observe(SnapshotCompleted(self.sidecar.moment, self.cluster))
        self.sidecar.waits(WAITS)
        return self

    def begins(self, at: float, *, without: tuple[str, ...] = ()) -> "Replay":
        """The sidecar starts `at` seconds after the action: it lists what there is then. `without`: kinds whose changes never came."""
        there: dict[tuple[str, str], Line] = {}
        for line in lines(self.name):
            key = line["kind"], line["object"]["metadata"]["name"]
            if line["at"] <= -12 or (line["at"] <= at and line["kind"] not in without):
                there[key] = line
        there = {key: line for key, line in there.items() if line["type"] != "DELETED"}
        self.lists(there)
        for (kind, _), line in there.items():
            if kind == "ConfigMap":
                self.take(line)
        if not self.finds:
            self.sidecar.observe(SnapshotCompleted(self.sidecar.moment, self.cluster))
        for _ in range(WAITS // 5):
            self.sidecar.waits(5)
            if self.last:  # a lease that may have expired is looked at
                self.sidecar.observe(replace(self.last, at=self.sidecar.moment))
        return self

    def lists(self, there: Mapping[tuple[str, str], Line]) -> None:
        """The first lists of pods and of what makes them."""

        def of(kind: str, read: Read[Any]) -> dict[str, Any]:
            return dict(self._read(line, read) for (other, _), line in there.items() if other == kind)

        if self.makers:
            self.makers.read(Maker.FLINK_DEPLOYMENT)
            for kind in GROUPS:
                self.makers.listed(kind, of(kind, maker_status(kind)), complete=True)
        self.pods.listed(of("Pod", job_manager_pod), complete=True)

    @property
    def pages(self) -> list[str]:
        return [sent.alert for sent in self.sidecar.sent if sent.severity is Severity.CRITICAL]

    @property
    def why(self) -> str | None:
        operated = self.sidecar.state.clusters[self.cluster].operated
        if operated is None or not plans.is_unwanted(operated):
            return None
        return f"{plans.what_was_done(operated)}, {plans.when_unwanted(operated)}"

    @property
    def status(self) -> str | None:
        """The status and its sentence."""
        stated = self.sidecar.state.clusters[self.cluster].stated
        return f"{stated.status}: {stated.sentence}" if stated else None
