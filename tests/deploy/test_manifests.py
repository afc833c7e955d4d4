"""What an operator applies: the component in deploy/base, and the example that uses it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.settings import ZooKeeperSettings, load
from tests.deploy.manifests import DEPLOY, document, documents
from tests.kit.receivers import apprise_urls

BASE = DEPLOY / "base"
EXAMPLE = DEPLOY / "examples" / "zookeeper"


def of_kind(kind: str) -> dict[str, Any]:
    (only,) = (manifest for manifest in documents(EXAMPLE / "jobmanager.yaml") if manifest["kind"] == kind)
    return only


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = document(BASE / "sidecar.yaml")["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    assert only["name"] == "flink-ha-sidecar"
    return dict(only)


@pytest.fixture
def config() -> dict[str, Any]:
    return document(BASE / "config.yaml")


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


def test_the_image_is_this_version(container: dict[str, Any]) -> None:
    """A release that forgets the manifest would deploy the one before."""
    assert container["image"] == f"flink-ha-sidecar:{sidecar.__version__}"


def test_the_container_may_do_nothing_it_does_not_need(container: dict[str, Any]) -> None:
    """It passes the restricted Pod Security Standard, and its root is read-only."""
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_sidecar_never_decides_whether_the_jobmanager_is_ready(container: dict[str, Any]) -> None:
    """Only liveness is probed: a readiness probe would take the JobManager out of its Service whenever ZooKeeper is away."""
    assert {key for key in container if key.endswith("Probe")} == {"livenessProbe"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "ha-sidecar"}


def test_the_probed_port_is_the_one_that_is_served(container: dict[str, Any], config: dict[str, Any]) -> None:
    """The configuration, the container port and the contract's 9250 are one, on an address that the kubelet reaches."""
    assert container["ports"] == [{"name": "ha-sidecar", "containerPort": 9250}]
    assert config["http"] == {"host": "0.0.0.0", "port": 9250}  # noqa: S104 - the address inside the pod, as the contract has it


def test_the_shipped_configuration_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strict loader takes config.yaml as it stands, with the variables of the pod and the Flink configuration of the example."""
    (tmp_path / "config.yaml").write_text(of_kind("ConfigMap")["data"]["config.yaml"])
    monkeypatch.setenv("POD_NAME", "flink-jobmanager-7d9c5b7c4-abcde")
    monkeypatch.setenv("SLACK_URL", "slack://T0000000/B0000000/not-a-real-token")
    settings = load(BASE / "config.yaml", {"flink_conf": tmp_path})
    assert settings.observer == "flink-jobmanager-7d9c5b7c4-abcde"
    assert isinstance(settings.clusters[0], ZooKeeperSettings)
    assert settings.clusters[0].namespace == "/flink/default"
    assert (
        settings.clusters[0].quorum
        == "zookeeper-0.zookeeper:2181,zookeeper-1.zookeeper:2181,zookeeper-2.zookeeper:2181"
    )
    assert apprise_urls(settings) == {"ops#0": "slack://T0000000/B0000000/not-a-real-token"}


def test_every_mount_has_its_volume(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """What is mounted is brought by the component, or is the configuration volume of the JobManager it is added to."""
    flinks_own = {volume["name"] for volume in of_kind("Deployment")["spec"]["template"]["spec"]["volumes"]}
    brought = {volume["name"] for volume in pod["volumes"]}
    used = {mount["name"] for mount in container["volumeMounts"]}
    assert used - brought == {"flink-config-volume"}
    assert used - brought < flinks_own
    assert brought < used


def test_what_the_configuration_writes_to_is_writable_and_the_rest_is_not(
    container: dict[str, Any], config: dict[str, Any]
) -> None:
    """With a read-only root the state, the spool and /tmp are volumes; Flink's configuration can only be read."""
    written = {config["state_dir"], config["spool"]["url"].removeprefix("file://"), "/tmp"}  # noqa: S108 - a path in the pod
    writable = {path for path, mount in mounts(container).items() if not mount.get("readOnly", False)}
    assert writable == written
    assert mounts(container)[config["flink_conf_dir"]]["readOnly"] is True


def test_nothing_on_the_pods_disk_can_evict_the_jobmanager(pod: dict[str, Any]) -> None:
    """No emptyDir is limited in size: the kubelet evicts the whole pod when one is over."""
    kinds = [{key: value for key, value in volume.items() if key != "name"} for volume in pod["volumes"]]
    assert kinds == [{"configMap": {"name": "flink-ha-sidecar"}}, {"emptyDir": {}}, {"emptyDir": {}}, {"emptyDir": {}}]


def test_the_started_command_reads_the_mounted_configuration(container: dict[str, Any]) -> None:
    """The file given to --config is the one the generated ConfigMap holds, under the path it is mounted at."""
    (generator,) = document(BASE / "kustomization.yaml")["configMapGenerator"]
    (file,) = generator["files"]
    mount = mounts(container)["/etc/flink-ha-sidecar"]
    assert container["args"] == ["run", "--config", f"/etc/flink-ha-sidecar/{file}"]
    assert mount == {"name": "ha-sidecar-config", "mountPath": "/etc/flink-ha-sidecar", "readOnly": True}
    assert (BASE / file).is_file()


def test_an_edited_alert_rule_does_not_roll_the_jobmanagers() -> None:
    """The ConfigMap keeps its name when its content changes."""
    (generator,) = document(BASE / "kustomization.yaml")["configMapGenerator"]
    assert generator["name"] == "flink-ha-sidecar"
    assert generator["options"] == {"disableNameSuffixHash": True}


def test_no_secret_stands_in_any_file(container: dict[str, Any], config: dict[str, Any]) -> None:
    """Receivers are named by variables, which come from a Secret that the operator brings."""
    assert container["envFrom"] == [{"secretRef": {"name": "flink-ha-sidecar-receivers"}}]
    assert [variable["name"] for variable in container["env"] if "valueFrom" in variable] == [
        *("POD_NAME", "POD_IP", "POD_UID")
    ]
    assert [variable for variable in container["env"] if "value" in variable] == []
    assert [re.fullmatch(r"\$\{[A-Z_]+\}", url) is not None for one in config["receivers"] for url in one["urls"]] == [
        True
    ]
    manifests = (path for path in DEPLOY.rglob("*.yaml") if path.parent.name != "templates")  # Helm's are no YAML yet
    kinds = {manifest.get("kind") for path in manifests for manifest in documents(path)}
    assert "Secret" not in kinds


def test_the_component_finds_the_jobmanager_of_the_example() -> None:
    """The patch's target is the example's Deployment, and no other name that merely contains the word."""
    (patch,) = document(BASE / "kustomization.yaml")["patches"]
    target = patch["target"]
    assert (target["kind"], patch["path"]) == ("Deployment|StatefulSet", "sidecar.yaml")
    names = [of_kind("Deployment")["metadata"]["name"], "jobmanager", "jobmanager-exporter", "flink-taskmanager"]
    assert [re.fullmatch(target["name"], name) is not None for name in names] == [True, True, False, False]


def test_the_example_is_what_it_says() -> None:
    """It uses the components, gives the image a registry, and its pod has no API token and no root."""
    kustomization = document(EXAMPLE / "kustomization.yaml")
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert [(EXAMPLE / path).resolve() for path in kustomization["components"]] == [BASE, DEPLOY / "evidence"]
    assert [image["name"] for image in kustomization["images"]] == ["flink-ha-sidecar"]
    assert pod["automountServiceAccountToken"] is False
    assert [one["securityContext"]["runAsNonRoot"] for one in pod["containers"]] == [True]
