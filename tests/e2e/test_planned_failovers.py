"""Planned and unplanned failovers at the same time, on a real API server with FlinkDeployments: who is paged for what.

The JobManagers are the fake Flink's; the operator is ours, and writes in the order of the real one.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cluster import job_manager
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.flink_deployments import GROUP, Deployment, install
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.serving import serving
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

BUDGET = 15
RULES = f"""\
rules:
  - {{alert: FlinkLeaderChanged, on: leader_changed, planned_budget: {BUDGET}s}}
  - {{alert: FlinkNoLeader, on: vacant, for: 3s, severity: critical, planned_budget: {BUDGET}s}}
  - {{alert: FlinkPlannedFailover, on: planned_failover, severity: info}}
"""
OLD, NEW = job_manager("10.1.2.3"), job_manager("10.1.2.4")
NAMES = ("quick", "late", "crashed", "suspended", "drained")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, apiserver: Path) -> Iterator[Kubernetes]:
    users = {"flink": "token-of-flink", "reader": "token-of-reader"}
    with serving(Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver, **users)) as running:
        install(running.server)
        yield running


class Cluster:
    """One Flink cluster and its FlinkDeployment."""

    def __init__(self, server: Kubernetes, namespace: str, name: str) -> None:
        self.name = name
        writer = ApiServerWriter(server.server.url, server.authority.ca, server.server.users["flink"], namespace)
        self.flink = Flink(ConfigMaps(writer=writer, cluster_id=name, duration="PT1H"))
        self.flink.grant(OLD).submit().publish_all(OLD)
        self.deployment = Deployment(server.server, namespace, name)

    def ends(self) -> None:
        self.flink.vacate()

    def leads(self) -> None:
        self.flink.grant(NEW).publish_all(NEW)

    def is_upgraded(self, *, gone_for: float) -> None:
        """The JobManagers end four seconds before the operator says UPGRADING: later than the rule's `for`."""
        self.deployment.change()
        time.sleep(0.5)
        self.ends()
        time.sleep(4)
        self.deployment.says("UPGRADING", jobManagerDeploymentStatus="MISSING")
        self.deployment.says("DEPLOYED", jobManagerDeploymentStatus="DEPLOYING")
        time.sleep(gone_for - 4)
        self.leads()

    def crashes(self, *, gone_for: float) -> None:
        self.ends()
        time.sleep(gone_for)
        self.leads()

    def is_suspended(self, *, gone_for: float) -> None:
        self.deployment.change(state="suspended")
        self.ends()
        self.deployment.says("DEPLOYED", lifecycleState="SUSPENDED")
        time.sleep(gone_for)
        self.deployment.change(state="running")
        self.leads()


@pytest.fixture
def sidecar_of(server: Kubernetes, tmp_path: Path, people: HttpReceiver) -> Iterator[Callable[..., Sidecar]]:
    """Starts one sidecar for clusters of a namespace, and stops it when the test is over."""
    running: list[Sidecar] = []

    def start(namespace: str, *names: str, **settings: bool) -> Sidecar:
        place = {"namespace": namespace, "kubeconfig": str(server.kubeconfig("reader")), **settings}
        clusters = [{"kubernetes": {"cluster_id": name, **place}} for name in names]
        config = f"clusters: {json.dumps(clusters)}\nledger: {{mode: local}}\n{RULES}"
        running.append(Sidecar(tmp_path / namespace, config, [people.url], group_wait="1s", group_interval="1s"))
        running[-1].start().wait_ready()
        return running[-1]

    yield start
    for sidecar in running:
        sidecar.stop()


def prepared(server: Kubernetes, namespace: str) -> None:
    place = server.namespace(namespace)
    place.allow("flink", "create", "update", "delete", "get")
    place.allow("reader", "get", "list", "watch", "create", "patch")


def titles(people: HttpReceiver, name: str) -> list[str]:
    return [message.title for message in people.received if f"] {name}:" in message.title]


def pages(people: HttpReceiver, name: str) -> list[str]:
    return [
        message.title
        for message in people.received
        if f"] {name}:" in message.title and not message.body.startswith(("planned failover", "leader back"))
    ]


def episode(sidecar: Sidecar, name: str) -> dict[str, Any]:
    def episodes() -> list[dict[str, Any]]:
        records = [record for record in sidecar.records() if record["type"] == "episode"]
        return [record for record in records if record["cluster_id"] == name]

    return wait_for(f"the episode of {name}", episodes)[0]


def test_of_five_failovers_at_once_the_unplanned_and_the_late_one_page(
    server: Kubernetes, people: HttpReceiver, sidecar_of: Callable[..., Sidecar]
) -> None:
    """0 pages for an upgrade within its budget, 1 for one beyond it, 1 for a crash; 0 for a suspended cluster and for a drained node."""
    prepared(server, "proof")
    place = server.namespace("proof")
    place.allow("reader", "list", "watch", resource="flinkdeployments", group=GROUP)
    place.allow("reader", "list", "watch", resource="pods")
    clusters = {name: Cluster(server, "proof", name) for name in NAMES}
    place.run_pod("drained-jm-1", "10.1.2.3", labels={"app": "drained", "component": "jobmanager"})
    sidecar = sidecar_of("proof", *NAMES, plans=True)
    for kind in ("FlinkDeployments", "Pods with"):
        wait_for(kind, lambda kind=kind: f"watching {kind}" in sidecar.log.read_text())  # type: ignore[misc]
    place.disrupt_pod("drained-jm-1", "EvictionByEvictionAPI")
    acts = [
        threading.Thread(target=clusters["quick"].is_upgraded, kwargs={"gone_for": 8}),
        threading.Thread(target=clusters["late"].is_upgraded, kwargs={"gone_for": BUDGET + 5}),
        threading.Thread(target=clusters["crashed"].crashes, kwargs={"gone_for": 2}),
        threading.Thread(target=clusters["suspended"].is_suspended, kwargs={"gone_for": BUDGET + 5}),
        threading.Thread(target=clusters["drained"].crashes, kwargs={"gone_for": 2}),
    ]
    for act in acts:
        act.start()
    for act in acts:
        act.join()
    episodes = {name: episode(sidecar, name) for name in NAMES}
    assert {name: (each["cause"], each["planned"]) for name, each in episodes.items()} == {
        "quick": ("planned_upgrade", True),
        "late": ("planned_upgrade", True),
        "crashed": ("graceful_handover", False),
        "suspended": ("graceful_handover", True),
        "drained": ("node_drain", True),
    }
    quiet = ("quick", "suspended", "drained")
    wait_for("the infos", lambda: all(titles(people, name) for name in NAMES))
    time.sleep(3)
    assert {name: [title.partition(":")[0] for title in titles(people, name)] for name in quiet} == {
        name: [f"[UNCHECKED] {name}"] for name in quiet
    }
    bodies = {name: [message.body for message in people.received if name in message.title] for name in quiet}
    assert all(body.startswith("planned failover") for each in bodies.values() for body in each)
    assert all("10.1.2.3:6123 → 10.1.2.4:6123" in body for each in bodies.values() for body in each)
    assert [title.partition(":")[0] for title in pages(people, "late")] == ["[DOWN] late"]
    assert {title.partition(":")[0] for title in titles(people, "late")[1:]} == {"[UNCHECKED] late"}
    assert [title.partition(":")[0] for title in pages(people, "crashed")] == ["[UNCHECKED] crashed"]
    page = next(message for message in people.received if "DOWN" in message.title and "late" in message.title)
    lost = next(
        change for change in sidecar.transitions() if change["cluster_id"] == "late" and change["kind"] == "REVOKED"
    )
    assert page.at - _seconds(lost["observed_at"]) >= BUDGET
    assert "The operator was upgrading the FlinkDeployment" in page.body


def test_without_the_permission_every_failover_pages_and_one_line_says_what_is_missing(
    server: Kubernetes, people: HttpReceiver, sidecar_of: Callable[..., Sidecar]
) -> None:
    """It is not known whether it was planned: as without the setting."""
    prepared(server, "refused")
    cluster = Cluster(server, "refused", "orders")
    sidecar = sidecar_of("refused", "orders", plans=True)
    cluster.is_upgraded(gone_for=6)
    handover = episode(sidecar, "orders")
    assert (handover["cause"], handover["planned"]) == ("graceful_handover", None)
    wait_for("the page", lambda: pages(people, "orders"))
    [line] = [
        line for line in sidecar.log.read_text().splitlines() if "sidecar.plans" in line and "flinkdeployments" in line
    ]
    assert "whether failovers are planned is not known" in line
    assert "{apiGroups: [flink.apache.org], resources: [flinkdeployments], verbs: [list, watch]}" in line


def _seconds(at: str) -> float:

    return datetime.fromisoformat(at).timestamp()
