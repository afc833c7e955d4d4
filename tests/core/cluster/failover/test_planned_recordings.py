"""Planned actions and real losses, recorded in real pods, through the driver's decoders and the core: who is paged, and what is known."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from sidecar.core.cluster.failover import plans
from sidecar.core.flink import configmaps
from sidecar.core.flink.deployments import Maker
from sidecar.core.moment import SECOND
from sidecar.core.observations import ConfigMapObserved, ConnectionState, SnapshotCompleted, ViewObserved
from sidecar.core.policy.policy import Need, Policy, Rule, Severity, Store, Trigger
from sidecar.drivers.kubernetes.makers import MakerReports, Makers, maker_status
from sidecar.drivers.kubernetes.plan_objects import read_change
from sidecar.drivers.kubernetes.pod_objects import job_manager_pod
from sidecar.drivers.kubernetes.pod_reports import PodReports, Scope
from tests import ROOT
from tests.kit.config_maps import LEASE
from tests.kit.core_sidecar import KUBERNETES, Sidecar
from tests.kit.fake_flink import Flink
from tests.kit.znodes import ZNodes

FOLDER: Final = ROOT / "tests" / "fixtures" / "kubernetes" / "planned"
CLUSTER: Final = "my-flink"
RULES: Final = (
    *KUBERNETES.rules,
    Rule("FlinkPlannedFailover", Trigger.PLANNED_FAILOVER, Severity.INFO),
    Rule("FlinkStopped", Trigger.STOPPED, Severity.INFO),
)
POLICY: Final = replace(KUBERNETES, stores={CLUSTER: Store.KUBERNETES}, plans=frozenset({CLUSTER}), rules=RULES)
WAITS: Final = 150


class Nodes:
    """What a sidecar without the right to read nodes knows of them; a drain of a 1.20 cluster needs it."""

    def exchange(self, *_: object) -> bool:
        return self.cordoned

    def reopen(self) -> None: ...

    def __init__(self, *, cordoned: bool) -> None:
        self.cordoned = cordoned


class Replayed(NamedTuple):
    sidecar: Sidecar
    critical_at: float | None
    """Seconds after the action."""
    planned: bool | None
    why: str | None


def lines(name: str) -> Iterator[dict[str, Any]]:
    with (FOLDER / f"{name}.jsonl").open() as file:
        next(file)
        yield from map(json.loads, file)


class Replay:
    """The drivers' decoders and reports, which feed a core."""

    def __init__(self, name: str, policy: Policy = POLICY) -> None:
        self.name = name
        self.sidecar = Sidecar(Flink(ZNodes()), policy)
        self.sidecar.observe(ViewObserved(self.sidecar.moment, CLUSTER, ConnectionState.CONNECTED))
        scope = Scope(None, frozenset({CLUSTER}), plans=bool(policy.plans))
        clock, report = (lambda: self.sidecar.moment), self.sidecar.observe
        self.makers = Makers(scope.clusters_in, clock, report) if policy.plans else None
        nodes: Any = Nodes(cordoned=name == "drained")
        self.pods = PodReports(nodes, scope, clock, report, None, self.makers)

    def take(self, number: int, line: dict[str, Any]) -> None:
        kind, change = line["kind"], json.dumps({"type": line["type"], "object": line["object"]}).encode()
        if kind == "ConfigMap":
            metadata = line["object"]["metadata"]
            if not metadata["name"].endswith("cluster-config-map"):
                return
            seen = ConfigMapObserved(self.sidecar.moment, CLUSTER, metadata["name"])
            if line["type"] != "DELETED":
                data = configmaps.relevant(line["object"].get("data") or {})
                lease = metadata.get("annotations", {}).get(LEASE)
                seen = replace(seen, uid=metadata["uid"], resource_version=str(number), data=data, leader=lease)
            self.sidecar.observe(seen)
        elif kind == "Pod":
            item = read_change(change, job_manager_pod, qualified=False).item
            assert item
            self.pods.changed(item.name, item.value, deleted=line["type"] == "DELETED")
        elif self.makers:
            made = read_change(change, maker_status(Maker(kind)), qualified=False).item
            assert made
            MakerReports(Maker(kind), self.makers).changed(made.name, made.value, deleted=line["type"] == "DELETED")

    def plays(self, *, since: float = -1000.0) -> "Replay":
        """The whole recording; what comes before `since` at once: so late does the sidecar start."""
        began, first, number = self.sidecar.now, True, 0
        for number, line in enumerate(lines(self.name)):
            at = began + round((line["at"] + 12) * SECOND)
            if line["at"] > -12 and first and line["at"] >= since:
                self.sidecar.observe(SnapshotCompleted(self.sidecar.moment, CLUSTER))
                first = False
            if line["at"] >= since and at > self.sidecar.now:
                self.sidecar.waits((at - self.sidecar.now) / SECOND)
            self.take(number, line)
        if first:
            self.sidecar.observe(SnapshotCompleted(self.sidecar.moment, CLUSTER))
        self.sidecar.waits(WAITS)
        return self

    @property
    def pages(self) -> list[str]:
        return [sent.alert for sent in self.sidecar.sent if sent.severity is Severity.CRITICAL]

    @property
    def why(self) -> str | None:
        return plans.why_unwanted(self.sidecar.state.clusters[CLUSTER].operated)


STOPPED: Final = {
    "deployment-scaled-to-0": "Deployment flink-jobmanager was scaled to 0 at ",
    "deployment-deleted": "Deployment flink-jobmanager was deleted at ",
    "helm-uninstall": "Deployment flink-jobmanager was deleted at ",
    "namespace-deleted": "Deployment flink-jobmanager was deleted at ",
    "application-job-finishes": "Job flink-jobmanager finished at ",
}
PLANNED: Final = ("deployment-rolled", "deployment-rolled-recreate", "drained")
PAGED: Final = ("configmap-deleted-for-good", "no-image-recreate")
WARNED: Final = ("kill-9", "out-of-memory", "pod-deleted-by-hand")


@pytest.mark.parametrize(("name", "why"), STOPPED.items(), ids=STOPPED)
def test_a_cluster_that_nobody_wants_is_stopped_and_pages_nobody(name: str, why: str) -> None:
    """It is known what was done, and when."""
    replay = Replay(name).plays()
    assert [(sent.alert, sent.reason.value) for sent in replay.sidecar.sent] == [("FlinkStopped", "FIRST")]
    first = "Flink ended and deleted its ConfigMap" if name == "application-job-finishes" else why.removesuffix(" at ")
    assert replay.sidecar.sent[0].body.splitlines()[0] == f"stopped: {first}"
    assert replay.sidecar.sent[0].title.startswith("[STOPPED] ")
    assert (replay.why or "").startswith(why)


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_failover_is_one_info_at_its_end(name: str) -> None:
    """The recording says so, and the episode does."""
    replay = Replay(name).plays()
    assert {sent.severity for sent in replay.sidecar.sent} == {Severity.INFO}
    assert [episode.planned for episode in replay.sidecar.episodes()] == [True]


@pytest.mark.parametrize("name", PAGED)
def test_a_real_loss_is_paged(name: str) -> None:
    """Also in the middle of a rollout whose new pod says why it cannot come: at once, not after the budget."""
    replay = Replay(name).plays()
    assert replay.pages == ["FlinkNoLeader"]
    assert replay.why is None


@pytest.mark.parametrize("name", WARNED)
def test_a_loss_that_heals_is_no_plan(name: str) -> None:
    """Nobody changed what makes the JobManagers."""
    replay = Replay(name).plays()
    assert not any(episode.planned for episode in replay.sidecar.episodes())
    assert "FlinkPlannedFailover" not in {sent.alert for sent in replay.sidecar.sent}


@pytest.mark.parametrize("name", sorted({*STOPPED} - {"namespace-deleted", "application-job-finishes"}))
def test_it_is_the_same_when_the_sidecar_starts_during_it(name: str) -> None:
    """One second after the action."""
    replay = Replay(name).plays(since=2.0)
    assert replay.pages == []
    assert replay.why


def test_without_the_right_to_read_them_a_stop_pages_and_an_end_of_flink_does_not() -> None:
    """An application that ends removes its addresses and deletes its ConfigMap itself: that takes no other right."""
    without = replace(POLICY, plans=frozenset[str](), lacks=frozenset({Need.PLANS}))
    scaled = Replay("deployment-scaled-to-0", without).plays()
    assert scaled.pages == ["FlinkNoLeader"]
    facts = dict(scaled.sidecar.sent[-1].facts)
    assert facts["planned"] == "not known without kubernetes: {plans: true}"
    finished = Replay("application-job-finishes", without).plays()
    assert finished.pages == []
    assert (finished.why or "").startswith("Flink ended and deleted its ConfigMap at ")
