"""The sidecar in Flink's pod, in every form that people deploy Flink in: made from one container, and taken by who has to take it."""

import json
import subprocess
from pathlib import Path

import pytest
from kubernetes import client

from sidecar.settings import KubernetesSettings, load
from tests.deploy.manifests import DEPLOY, apply, copied, document, example, of_kind, pod_of
from tests.deploy.test_kubernetes_manifests import NAMESPACE
from tests.deploy.test_manifests import BASE
from tests.deploy.test_manifests import of_kind as of_the_example
from tests.kit.forms import forms
from tests.kit.kubectl import Manifest, kubectl, kustomize
from tests.kit.kubernetes_server import Json, Kubernetes
from tests.lab.distribution import flink_home
from tests.lab.java import java_command, java_environment

FLINK_SECONDS = 120.0
"""For Flink's command to make its objects, on a busy machine."""
TEMPLATES = DEPLOY / "pod-template"


def built(folder: Path, kind: str, *components: str) -> Manifest:
    """The JobManagers of the ZooKeeper example, as a Deployment or a StatefulSet, with these components and no other."""
    copy = copied(folder)
    manifest = of_the_example("Deployment") | {"kind": kind}
    if kind == "StatefulSet":
        manifest["spec"]["serviceName"] = "flink-jobmanager"
    here = copy / "examples" / "form"
    here.mkdir()
    (here / "jobmanager.yaml").write_text(json.dumps(manifest))
    kustomization = {"resources": ["jobmanager.yaml"], "components": [f"../../{component}" for component in components]}
    (here / "kustomization.yaml").write_text(json.dumps(kustomization))
    return of_kind(kustomize(here), kind)


def flink_deployment(folder: Path, component: str) -> Manifest:
    copy = copied(folder)
    kustomization = copy / "examples" / "flink-operator" / "kustomization.yaml"
    text = kustomization.read_text()
    assert text.count("[../../flink-operator]") == 1
    kustomization.write_text(text.replace("[../../flink-operator]", f"[../../{component}]"))
    return of_kind(kustomize(kustomization.parent), "FlinkDeployment")


def sidecars(pod: Manifest) -> dict[str, list[Manifest]]:
    """The containers called flink-ha-sidecar, by the list that they stand in."""
    lists = ("initContainers", "containers")
    found = {key: [each for each in pod.get(key, []) if each["name"] == "flink-ha-sidecar"] for key in lists}
    return {key: containers for key, containers in found.items() if containers}


def assert_every_field_is_known(pod: Manifest) -> None:
    """To Kubernetes 1.37, by the models that its Python client has of it: they drop what they do not know."""
    kept: object = client.ApiClient().sanitize_for_serialization(client.V1PodSpec.from_dict(pod))  # type: ignore[no-untyped-call]
    assert kept == pod


def test_they_are_made_from_the_one_in_base() -> None:
    """No copy has drifted: `python -m tests.kit.forms` writes them."""
    assert {path: (DEPLOY / path).read_text() for path in forms()} == forms()


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.covers("deployment:base")
def test_a_workload_gets_it_in_its_classic_form(kubernetes: Kubernetes, tmp_path: Path, kind: str) -> None:
    """Once, beside Flink's container, with evidence where wanted; the API server takes it."""
    for number, components in enumerate((["base"], ["base", "evidence"])):
        manifest = built(tmp_path / str(number), kind, *components)
        found = sidecars(pod_of(manifest))
        assert {key: len(each) for key, each in found.items()} == {"containers": 1}
        apply(kubernetes.kubeconfig(), [manifest], "--namespace", NAMESPACE, "--dry-run=server")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.covers("deployment:native")
def test_a_workload_gets_it_in_its_native_form(tmp_path: Path, kind: str) -> None:
    """Moved, not copied; every field is one that Kubernetes has. (The API server of the tests is too old to know it.)"""
    pod = pod_of(built(tmp_path, kind, "base", "native"))
    found = sidecars(pod)
    assert {key: len(each) for key, each in found.items()} == {"initContainers": 1}
    (native,) = found["initContainers"]
    assert native["restartPolicy"] == "Always"
    assert "lifecycle" not in native
    assert {mount["name"] for mount in native["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
    assert_every_field_is_known(pod)


@pytest.mark.parametrize(
    ("component", "where"),
    [
        pytest.param(component, where, marks=pytest.mark.covers(f"deployment:{component}"))
        for component, where in (("flink-operator", "containers"), ("flink-operator/native", "initContainers"))
    ],
)
def test_a_flink_deployment_gets_it_in_its_jobmanagers_alone(
    kubernetes: Kubernetes, tmp_path: Path, component: str, where: str
) -> None:
    """Its image is replaced as everywhere; with what the operator adds to the pod, every field is one that Kubernetes has."""
    manifest = flink_deployment(tmp_path, component)
    assert "podTemplate" not in manifest["spec"]
    assert "podTemplate" not in manifest["spec"]["taskManager"]
    pod = with_what_flink_adds(pod_of(manifest))
    assert {key: len(each) for key, each in sidecars(pod).items()} == {where: 1}
    assert [sidecar["image"] for sidecar in sidecars(pod)[where]] == [f"registry.example.com/{image_of_base()}"]
    assert_every_field_is_known(pod)
    if where == "containers":
        apply(kubernetes.kubeconfig(), [deployment_of(pod)], "--namespace", NAMESPACE, "--dry-run=server")


def image_of_base() -> str:
    (container,) = document(BASE / "sidecar.yaml")["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def with_what_flink_adds(pod: Manifest) -> Manifest:
    """Flink's image, and the volume with its configuration: its name is fixed in Flink, and the test below gets it from Flink."""
    containers = [
        ({"image": "flink"} | container) if container["name"] == "flink-main-container" else container
        for container in pod["containers"]
    ]
    volume = {"name": "flink-config-volume", "configMap": {"name": "flink-config-my-flink"}}
    return pod | {"containers": containers, "volumes": [*pod["volumes"], volume]}


def deployment_of(pod: Manifest) -> Manifest:
    labels = {"app": "form"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "form"}, "spec": spec}


def test_the_configuration_comes_along(tmp_path: Path) -> None:
    """A FlinkDeployment's sidecar finds the ConfigMap and the Secret that it mounts, by names that never change."""
    manifests = example(tmp_path, "flink-operator")
    named = {(found["kind"], found["metadata"]["name"]) for found in manifests}
    assert named == {
        ("ConfigMap", "flink-ha-sidecar"),
        ("Secret", "flink-ha-sidecar-receivers"),
        ("FlinkDeployment", "my-flink"),
    }


def test_every_field_of_the_pod_templates_is_known() -> None:
    for form in ("classic", "native"):
        assert_every_field_is_known(with_what_flink_adds(document(TEMPLATES / f"{form}.yaml")["spec"]))


@pytest.mark.e2e
@pytest.mark.parametrize("version", ["2.3.0", "1.20.5"])
def test_flink_makes_its_pods_from_the_template(
    java: Path, kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Flink's own command makes a session cluster on the API server; the sidecar is in its JobManagers' pods, and finds it."""
    cluster = f"flink-{version.replace('.', '-')}"
    kubeconfig = kubernetes.kubeconfig()
    session_cluster(version, cluster, kubeconfig, tmp_path, java)

    def get(what: str) -> Json:
        name = f"{cluster}" if what == "deployment" else f"flink-config-{cluster}"
        return dict(
            json.loads(kubectl("--kubeconfig", str(kubeconfig), "-n", NAMESPACE, "get", what, name, "-o", "json"))
        )

    deployment = get("deployment")
    policy = document(DEPLOY / "network-policy" / "network-policy.yaml")["spec"]["podSelector"]["matchLabels"]
    assert policy.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    pod = pod_of(deployment)
    (container,) = sidecars(pod)["containers"]
    (ours,) = sidecars(document(TEMPLATES / "classic.yaml")["spec"])["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [mount["name"] for mount in ours["volumeMounts"]]
    assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}

    conf = tmp_path / "conf"
    conf.mkdir()
    for name, text in get("configmap")["data"].items():
        (conf / name).write_text(text)
    monkeypatch.setenv("POD_NAME", f"{cluster}-0")
    monkeypatch.setenv("SLACK_URL", "slack://T0000000/B0000000/not-a-real-token")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    (found,) = load(BASE / "config.yaml", {"flink_conf": conf}).clusters
    assert isinstance(found, KubernetesSettings)
    assert (found.cluster_id, found.namespace) == (cluster, NAMESPACE)


def session_cluster(version: str, cluster: str, kubeconfig: Path, folder: Path, java: Path) -> None:
    """`kubernetes-session.sh`, as deploy/README.md has it."""
    settings = {
        "kubernetes.cluster-id": cluster,
        "kubernetes.namespace": NAMESPACE,
        "kubernetes.config.file": str(kubeconfig),
        "kubernetes.pod-template-file.jobmanager": str(TEMPLATES / "classic.yaml"),
        "high-availability.type": "kubernetes",
        "high-availability.storageDir": "file:///flink-ha",
        "jobmanager.memory.process.size": "1600m",
        "taskmanager.memory.process.size": "1600m",
        "execution.attached": "false",
    }
    empty = folder / "empty"
    empty.mkdir()
    (empty / ("config.yaml" if version.startswith("2.") else "flink-conf.yaml")).write_text("")
    command = java_command(
        *(java, flink_home(version, print), folder, 256, "org.apache.flink.kubernetes.cli.KubernetesSessionCli"),
        *(f"-D{key}={value}" for key, value in settings.items()),
        log=folder / "flink.log",
    )
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=FLINK_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env=java_environment() | {"FLINK_CONF_DIR": str(empty)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
