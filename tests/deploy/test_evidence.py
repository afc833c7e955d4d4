"""What an operator applies to have evidence captured: the component in deploy/evidence, on top of that in deploy/base."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.policy.policy import Source
from sidecar.settings import load
from tests.deploy.manifests import DEPLOY, document
from tests.deploy.test_manifests import BASE, EXAMPLE, of_kind

HERE = DEPLOY / "evidence"
README = (DEPLOY / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def pod() -> dict[str, Any]:
    """What it patches into the pod."""
    spec: dict[str, Any] = document(HERE / "sidecar.yaml")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


def test_the_sidecar_is_who_flink_is_and_sees_its_processes(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The user of the example's JobManager, in one process namespace; no capability comes back, and nothing else changes."""
    (job_manager,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    user = job_manager["securityContext"]["runAsUser"]
    assert pod["shareProcessNamespace"] is True
    assert container["name"] == "flink-ha-sidecar"
    assert container["securityContext"] == {"runAsUser": user, "runAsGroup": user}
    assert pod.keys() == {"shareProcessNamespace", "containers", "volumes"}


def test_its_configuration_is_that_of_the_base_with_evidence() -> None:
    """Line for line, so that an edit of one is not forgotten in the other."""
    base, own = ((folder / "config.yaml").read_text() for folder in (BASE, HERE))
    assert own.startswith(base)
    assert document(HERE / "config.yaml").keys() - document(BASE / "config.yaml").keys() == {"evidence"}


def test_each_sidecar_has_a_folder_of_its_own_on_the_volume(
    pod: dict[str, Any], container: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strict loader takes the file; both sources; below the mount, where the sidecar can make a folder that nobody else may read."""
    (tmp_path / "config.yaml").write_text(of_kind("ConfigMap")["data"]["config.yaml"])
    monkeypatch.setenv("POD_NAME", "flink-jobmanager-7d9c5b7c4-abcde")
    monkeypatch.setenv("SLACK_URL", "slack://T0000000/B0000000/not-a-real-token")
    evidence = load(HERE / "config.yaml", {"flink_conf": tmp_path}).evidence
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert evidence.sources == {Source.PROCESSES, Source.FLINK_REST}
    assert evidence.folder == Path(mount["mountPath"]) / "flink-jobmanager-7d9c5b7c4-abcde"
    assert mount == {"name": volume["name"], "mountPath": "/var/lib/flink-ha-evidence"}
    assert volume == {"name": "ha-sidecar-evidence", "emptyDir": {}}


@pytest.mark.covers("deployment:evidence")
def test_it_comes_on_top_of_the_base() -> None:
    """The example names both in this order, and the component replaces the configuration of the other, under its lasting name."""
    components = document(EXAMPLE / "kustomization.yaml")["components"]
    assert [(EXAMPLE / path).resolve() for path in components] == [BASE, HERE]
    (own,) = document(HERE / "kustomization.yaml")["configMapGenerator"]
    (before,) = document(BASE / "kustomization.yaml")["configMapGenerator"]
    assert own == before | {"behavior": "replace"}
    assert document(HERE / "kustomization.yaml")["patches"] == document(BASE / "kustomization.yaml")["patches"]


def test_the_command_that_restarts_the_sidecar_alone_finds_it_alone(tmp_path: Path) -> None:
    """In a shared process namespace it is not process 1: what deploy/README.md says is tried on a process of that name."""
    (command,) = re.findall(r"kubectl exec POD -c flink-ha-sidecar -- sh -c '(for .*)'$", README, re.MULTILINE)
    script = tmp_path / "flink-ha-sidecar"
    script.write_text("import time\nprint(flush=True)\ntime.sleep(60)\n")
    both = ("run", "--config", "/etc/flink-ha-sidecar/config.yaml")
    with (
        subprocess.Popen([sys.executable, str(script), *both], stdout=subprocess.PIPE) as sidecar,
        subprocess.Popen(
            [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)", *both], stdout=subprocess.PIPE
        ) as other,
    ):
        try:
            for process in (sidecar, other):
                assert process.stdout
                assert process.stdout.readline()
            looking = str(command).replace("kill ", "echo ").replace('"/[f]', f'"{tmp_path}/[f]')
            ended = subprocess.run(["/bin/sh", "-c", looking], capture_output=True, text=True, timeout=30, check=False)
            assert ended.stdout.split() == [str(sidecar.pid)]
        finally:
            sidecar.kill()
            other.kill()
