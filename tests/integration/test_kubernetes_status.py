"""`status` on a real API server: a dead leader, whose address stays, is waited for, and nothing is claimed of when it died."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.kit.cluster import CLUSTER, A
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.fake_flink import Flink
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.sidecar_process import command

Lead = Callable[[str], str]


@pytest.fixture
def lead(kubernetes: Kubernetes) -> Lead:
    """A cluster whose leader has written itself once, with a lease of this duration, and does not renew it. Returns its configuration."""
    namespace = kubernetes.namespace(f"test-{uuid4()}")
    namespace.allow("reader", "get", "list", "watch", "create", "patch")

    def start(duration: str) -> str:
        writer = ApiServerWriter(kubernetes.server.url, kubernetes.authority.ca, "admin-of-the-tests", namespace.name)
        Flink(ConfigMaps(writer=writer, duration=duration)).grant(A).submit().publish_all(A)
        place = {"cluster_id": CLUSTER, "namespace": namespace.name, "kubeconfig": str(kubernetes.kubeconfig("reader"))}
        return f"kubernetes: {json.dumps(place)}"

    return start


def status(config: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    file = folder / "sidecar.yaml"
    file.write_text(f"{config}\nstate_dir: {folder}\n")
    return command("status", "--config", str(file), "-o", "json", *more)


def states(ended: subprocess.CompletedProcess[str]) -> set[tuple[str, bool]]:
    """The states of all leaderships, and whether their beginning is known."""
    leaders = json.loads(ended.stdout)["clusters"][0]["leaders"]
    return {(leader["state"], leader["since"] is not None) for leader in leaders}


def test_a_leader_that_died_before_has_no_beginning(lead: Lead, tmp_path: Path) -> None:
    """Its lease expires while the command waits: that is no time of death."""
    ended = status(lead("PT2S"), tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert states(ended) == {("vacant", False)}


def test_a_leader_that_cannot_be_confirmed_in_time_is_said_to_be_one(lead: Lead, tmp_path: Path) -> None:
    """Its lease was neither renewed nor has it expired: it leads as far as is known, and stderr says how far."""
    ended = status(lead("PT600S"), tmp_path, "--timeout", "3s")
    assert ended.returncode == 0
    assert "not every lease was renewed or expired within 3 s: a leader may be dead" in ended.stderr
    assert states(ended) == {("held", True), ("held", False)}  # of the job nobody knows


def test_clusters_to_find_are_waited_for(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """The API server takes longer to list them than the first look takes."""
    namespace = kubernetes.namespace(f"test-{uuid4()}")
    namespace.allow("reader", "get", "list", "watch", "create", "patch")
    writer = ApiServerWriter(kubernetes.server.url, kubernetes.authority.ca, "admin-of-the-tests", namespace.name)
    Flink(ConfigMaps(writer=writer, duration="PT1S")).grant(A).publish_all(A)
    place = {"namespaces": [namespace.name], "kubeconfig": str(kubernetes.kubeconfig("reader"))}
    ended = status(f"kubernetes: {json.dumps(place)}", tmp_path)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert [cluster["cluster_id"] for cluster in json.loads(ended.stdout)["clusters"]] == [CLUSTER]
