"""Every pod of ours may run where the Pod Security Standard `restricted` is enforced; nothing added to Flink's breaks it."""

from pathlib import Path

import pytest

from tests.deploy.manifests import DEPLOY, POD_SPECS, document, example, pod_of
from tests.deploy.test_chart import EVERYTHING, rendered
from tests.deploy.test_forms import TEMPLATES, built, flink_deployment
from tests.kit.kubectl import Manifest

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod: Manifest, containers: set[str] | None = None) -> list[str]:
    """What the profile of Kubernetes 1.32 forbids, without what only Windows or AppArmor has; of these containers alone where named."""
    problems = [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    problems += [volume["name"] for volume in pod["volumes"] if not {*volume} - {"name"} <= VOLUMES]
    problems += [key for key in ("sysctls", "windowsOptions") if key in pod.get("securityContext", {})]
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        if containers is None or container["name"] in containers:
            problems += [f"{container['name']}: {what}" for what in _of(container, pod.get("securityContext", {}))]
    return problems


def _of(container: Manifest, of_the_pod: Manifest) -> list[str]:
    security = container.get("securityContext", {})
    effective = of_the_pod | security
    rules = {
        "privileged": not security.get("privileged", False),
        "allowPrivilegeEscalation": security.get("allowPrivilegeEscalation") is False,
        "capabilities": security.get("capabilities") == {"drop": ["ALL"]},
        "runAsNonRoot": effective.get("runAsNonRoot") is True,
        "runAsUser": effective.get("runAsUser") != 0,
        "seccompProfile": effective.get("seccompProfile", {}).get("type") in {"RuntimeDefault", "Localhost"},
        "procMount": "procMount" not in security,
        "hostPort": all("hostPort" not in port for port in container.get("ports", [])),
        "probe host": all(
            "host" not in probe.get("httpGet", {}) for key, probe in container.items() if key.endswith("Probe")
        ),
    }
    return [what for what, kept in rules.items() if not kept]


@pytest.mark.parametrize(
    ("name", "components"),
    [
        ("kubernetes", ["kubernetes/two-replicas", "receivers-as-files", "audit"]),
        ("kubernetes", ["audit", "audit/on-kubernetes"]),
        ("kubernetes", ["kubernetes/flink-1.14"]),
        ("all-clusters", []),
        ("zookeeper-clusters", []),
        ("zookeeper", ["network-policy"]),
    ],
)
def test_what_kustomize_applies_is_restricted(tmp_path: Path, name: str, components: list[str]) -> None:
    pods = [pod_of(found) for found in example(tmp_path, name, *components) if found["kind"] in POD_SPECS]
    assert pods
    assert [violations(pod) for pod in pods] == [[] for _ in pods]


def test_an_executor_is_restricted() -> None:
    """Spark adds to its pod what it needs, and no rights."""
    pod = pod_of(document(DEPLOY / "audit" / "on-kubernetes" / "executor.yaml"))
    assert violations({"volumes": []} | pod) == []


def test_what_helm_installs_is_restricted() -> None:
    pods = [pod_of(found) for found in rendered(EVERYTHING) if found["kind"] in POD_SPECS]
    assert [violations(pod) for pod in pods] == [[], []]


def test_what_is_added_to_flinks_pods_is_restricted(tmp_path: Path) -> None:
    """In a pod of which Flink makes the rest: the sidecar and its volumes."""
    pods = [
        *(document(TEMPLATES / f"{form}.yaml")["spec"] for form in ("classic", "native")),
        *(pod_of(flink_deployment(tmp_path / f"operator{form}", f"flink-operator{form}")) for form in ("", "/native")),
        pod_of(built(tmp_path / "moved", "StatefulSet", "base", "native")),
    ]
    assert [violations(pod, {"flink-ha-sidecar"}) for pod in pods] == [[] for _ in pods]


def test_what_the_profile_forbids_would_be_found() -> None:
    """The rules are those of the profile: a pod that breaks each of them is reported."""
    security = {"privileged": True, "runAsUser": 0, "procMount": "Unmasked"}
    probe = {"httpGet": {"host": "example.com", "port": 1}}
    container = {"name": "c", "securityContext": security, "ports": [{"hostPort": 1}], "livenessProbe": probe}
    volume = {"name": "root", "hostPath": {"path": "/"}}
    pod = {"hostPID": True, "containers": [container], "volumes": [volume], "securityContext": {"sysctls": []}}
    assert violations(pod) == [
        *("hostPID", "root", "sysctls"),
        *(
            f"c: {what}"
            for what in (
                *("privileged", "allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "runAsUser"),
                *("seccompProfile", "procMount", "hostPort", "probe host"),
            )
        ),
    ]
