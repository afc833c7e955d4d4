"""What an operator applies for Kubernetes HA: a sidecar in a pod of its own, which may read one ConfigMap and keep another."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

import sidecar
from sidecar.core.cluster.kubernetes_events import EventReason, KubernetesEvent, Subject
from sidecar.core.moment import Timestamp
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.events import KubernetesEvents
from sidecar.drivers.kubernetes.ledger import LABELS, KubernetesLedger, ledger_name
from sidecar.drivers.kubernetes.pods import KubernetesPods
from sidecar.ports import Document, LedgerRefusedError
from sidecar.settings import KubernetesSettings, load
from tests.deploy.test_manifests import BASE, DEPLOY, document, documents, mounts
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace, assets
from tests.kit.sidecar_process import command

HERE = DEPLOY / "kubernetes"
NAMESPACE = document(HERE / "kustomization.yaml")["namespace"]
CLUSTER_ID = "my-flink"
CONFIG_MAP = f"{CLUSTER_ID}-cluster-config-map"
LEDGER = ledger_name(CLUSTER_ID)
DISPATCHER = "pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1"
LEADERS = {"org.apache.flink.k8s.leader.dispatcher": f"00000000-0000-0000-0000-000000000001,{DISPATCHER}"}
PATIENCE_SECONDS = 60.0
"""For an answer of the API server, on a busy machine."""
PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}


def lease() -> str:
    """Renewed just now."""
    return json.dumps(
        {
            "holderIdentity": "00000000-0000-0000-0000-00000000000a",
            "leaseDuration": "PT15S",
            "acquireTime": "2026-11-20T08:00:00.000000Z",
            "renewTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "leaderTransitions": 0,
        }
    )


@contextmanager
def renewed(namespace: Namespace, name: str, data: Json, labels: Json | None = None) -> Iterator[None]:
    """Whoever leads by this ConfigMap renews the lease, as long as the block lasts."""
    stopping = threading.Event()

    def renew() -> None:
        while not stopping.wait(0.2):
            namespace.replace(name, data, lease(), labels)

    with ThreadPoolExecutor(1) as renewer:
        renewing = renewer.submit(renew)
        try:
            yield
        finally:
            stopping.set()
    renewing.result()


@pytest.fixture
def deployment() -> dict[str, Any]:
    return document(HERE / "deployment.yaml")


@pytest.fixture
def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only)


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """An API server to which the manifests have been applied, with two Flink clusters."""
    server = Kubernetes(tmp_path_factory.mktemp("kubernetes"), assets())
    server.start()
    namespace = server.namespace(NAMESPACE)
    namespace.create(CONFIG_MAP, LEADERS, lease())
    namespace.create("other-cluster-config-map", LEADERS, lease())
    for manifest in (
        *documents(HERE / "rbac.yaml"),
        *(document(HERE / f"{name}.yaml") for name in ("ledger", "deployment")),
    ):
        apply(server, manifest)
    yield server
    server.kill()


def apply(kubernetes: Kubernetes, manifest: Json, method: str = "POST") -> None:
    """With the namespace of the kustomization, as Kustomize fills it in."""
    for subject in manifest.get("subjects", []):
        subject["namespace"] = NAMESPACE
    path = PATHS[manifest["kind"]].format(NAMESPACE) + (f"/{manifest['metadata']['name']}" if method == "PUT" else "")
    kubernetes.server.ask(method, f"{path}?fieldValidation=Strict", manifest)


@pytest.fixture
def account(kubernetes: Kubernetes) -> Path:
    """A kubeconfig with a token of the sidecar's service account, as the kubelet would mount it."""
    path = f"{PATHS['ServiceAccount'].format(NAMESPACE)}/flink-ha-sidecar/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = kubernetes.server.ask("POST", path, request)["status"]["token"]
    return kubernetes.kubeconfig("flink-ha-sidecar", token=token)


def allowed(kubernetes: Kubernetes, verb: str, resource: str, name: str = "") -> bool:
    """What the API server's authorizer says of the sidecar's account."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:flink-ha-sidecar",
            "resourceAttributes": {"namespace": NAMESPACE, "verb": verb, "resource": resource, "name": name},
        },
    }
    answer = kubernetes.server.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def who(kubeconfig: Path, cluster_id: str, seconds: float = PATIENCE_SECONDS) -> tuple[int, str, str]:
    """Exit status and both outputs of the command, which gives up after so many `seconds`."""
    given = ("--kubernetes", "--cluster-id", cluster_id, "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig))
    ended = command("who", "--timeout", str(seconds), "--output", "json", *given)
    return ended.returncode, ended.stdout, ended.stderr


def test_the_sidecar_may_read_its_cluster_and_nothing_else(kubernetes: Kubernetes) -> None:
    """Of all verbs on all that is there, exactly three on Flink's ConfigMap and two on its own."""
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    names = {
        "configmaps": ("", CONFIG_MAP, LEDGER, "other-cluster-config-map", ledger_name("other")),
        **dict.fromkeys(("secrets", "pods", "leases"), ("",)),
    }
    given = {
        (verb, resource, name)
        for verb in verbs
        for resource, all_names in names.items()
        for name in all_names
        if allowed(kubernetes, verb, resource, name)
    }
    leaders = {(verb, "configmaps", CONFIG_MAP) for verb in ("get", "list", "watch")}
    assert given == leaders | {(verb, "configmaps", LEDGER) for verb in ("get", "patch")}


def test_that_is_enough_to_see_the_leaders(kubernetes: Kubernetes, account: Path) -> None:
    """The real command with the real token of that account; of the neighbour it is told in one line what is missing."""
    with renewed(kubernetes.namespace(NAMESPACE), CONFIG_MAP, LEADERS):
        status, told, said = who(account, CLUSTER_ID)
    assert status == 1, said  # two components are without a leader
    assert [json.loads(line)["leader_address"] for line in told.splitlines()] == [DISPATCHER, None, None]
    status, told, said = who(account, "other", seconds=10)
    assert (status, told) == (1, "")
    assert "no permission (403)" in said
    assert "Traceback" not in said


def test_that_is_enough_to_keep_the_ledger(kubernetes: Kubernetes, account: Path) -> None:
    """It is read and written over; the manifest, which may be applied again, has no data to undo that; the neighbour's is out of bounds."""
    store = KubernetesLedger(Access(account), NAMESPACE, CLUSTER_ID, seconds=PATIENCE_SECONDS)
    written = store.write(b"claims", store.read())
    assert written is not None
    path = f"{PATHS['ConfigMap'].format(NAMESPACE)}/{LEDGER}"
    manifest = document(HERE / "ledger.yaml")
    assert (manifest["metadata"]["name"], manifest["metadata"]["labels"], "data" in manifest) == (LEDGER, LABELS, False)
    assert kubernetes.server.ask("GET", path)["data"] == {"ledger": "claims"}
    store.stop()
    neighbours = KubernetesLedger(Access(account), NAMESPACE, "other", seconds=PATIENCE_SECONDS)
    with pytest.raises(LedgerRefusedError, match="allows the verb get "):
        neighbours.read()
    with pytest.raises(LedgerRefusedError, match="allows the verb create "):
        neighbours.write(b"claims", Document())


def test_flink_before_1_15_is_seen_with_its_component(kubernetes: Kubernetes, account: Path) -> None:
    """With the component, the Role reads the ConfigMaps that have no names beforehand, and still writes its own alone."""
    role = document(HERE / "flink-1.14" / "role.yaml")
    (before,) = (manifest for manifest in documents(HERE / "rbac.yaml") if manifest["kind"] == "Role")
    assert role["metadata"] == before["metadata"]
    labels = {"app": "old", "type": "flink-native-kubernetes"}
    address, session = "akka.tcp://flink@jm-1:6123/user/rpc/dispatcher_1", "00000000-0000-0000-0000-000000000002"
    name, data = "old-dispatcher-leader", {"address": address, "sessionId": session}
    namespace = kubernetes.namespace(NAMESPACE)
    namespace.create(name, data, lease(), labels)
    apply(kubernetes, role, "PUT")
    try:
        with renewed(namespace, name, data, labels):
            status, told, said = who(account, "old")
        assert status == 1, said  # two components are without a leader
        assert json.loads(told.splitlines()[0])["leader_address"] == address
        assert [allowed(kubernetes, verb, "configmaps") for verb in ("list", "create", "update", "delete")] == [
            True,
            *(False, False, False),
        ]
        assert [allowed(kubernetes, verb, "configmaps", LEDGER) for verb in ("get", "patch", "delete")] == [
            *(True, True, False),
        ]
    finally:
        apply(kubernetes, before, "PUT")


@pytest.mark.parametrize(
    ("component", "resource", "permitted"),
    [("events", "events", {"create", "get", "patch"}), ("pod-names", "pods", {"list"})],
)
def test_a_component_allows_what_it_is_for(
    kubernetes: Kubernetes, account: Path, component: str, resource: str, permitted: set[str]
) -> None:
    """With a Role of its own, beside that of the sidecar: applied to the account, it is enough, and nothing else is in it."""
    assert document(HERE / component / "kustomization.yaml")["resources"] == ["role.yaml"]
    role, binding = documents(HERE / component / "role.yaml")
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    assert [verb for verb in verbs if allowed(kubernetes, verb, resource)] == []
    try:
        apply(kubernetes, role)
        apply(kubernetes, binding)
        deadline = time.monotonic() + PATIENCE_SECONDS  # the authorizer's own view of a new Role is a moment late
        while {verb for verb in verbs if allowed(kubernetes, verb, resource)} != permitted:
            assert time.monotonic() < deadline
        assert [rule["resources"] for rule in role["rules"]] == [[resource]]
        namespace = kubernetes.namespace(NAMESPACE)
        config_map = namespace.create(f"of-{component}")
        if component == "events":
            about = Subject("ConfigMap", f"of-{component}", config_map["metadata"]["uid"])
            event = KubernetesEvent(
                CLUSTER_ID, about, EventReason.LEADER_LOST, "lost", Timestamp("2026-11-20T08:00:00.000000Z"), "1"
            )
            KubernetesEvents(Access(account), NAMESPACE).write(event)
            assert len(namespace.events("ConfigMap", config_map)) == 1
        else:
            assert KubernetesPods(Access(account), NAMESPACE).find("10.9.9.9", 0) is None
    finally:
        for manifest in (binding, role):
            path = PATHS[manifest["kind"]].format(NAMESPACE)
            kubernetes.server.ask("DELETE", f"{path}/{manifest['metadata']['name']}")


def test_a_mistake_in_a_manifest_would_be_refused(kubernetes: Kubernetes, deployment: dict[str, Any]) -> None:
    """The server that took the manifests looks at them."""
    deployment["metadata"]["name"] = "wrong"
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = "no such port!"
    with pytest.raises(HTTPError) as error:
        apply(kubernetes, deployment)
    with error.value:
        assert error.value.code == 422


def test_the_cluster_is_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration watches the cluster that the Role allows, in the namespace of the pod, and the strict loader takes it."""
    for name, text in {"token": "t", "namespace": NAMESPACE}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("sidecar.settings.cluster.kubernetes.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SLACK_URL", "slack://T0000000/B0000000/not-a-real-token")
    settings = load(HERE / "config.yaml", {})
    assert settings.clusters[0] == KubernetesSettings(CLUSTER_ID, NAMESPACE)
    (role,) = (manifest for manifest in documents(HERE / "rbac.yaml") if manifest["kind"] == "Role")
    assert [rule["resourceNames"] for rule in role["rules"]] == [[CONFIG_MAP], [LEDGER]]


def test_the_pod_is_as_careful_as_the_sidecar_in_flinks_pod(
    deployment: dict[str, Any], container: dict[str, Any]
) -> None:
    """This version, no privileges, a read-only root, its own service account, one replica."""
    (other,) = document(BASE / "sidecar.yaml")["spec"]["template"]["spec"]["containers"]
    for key in ("image", "args", "envFrom", "ports", "securityContext", "livenessProbe", "resources"):
        assert container[key] == other[key], key
    assert container["image"] == f"flink-ha-sidecar:{sidecar.__version__}"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ha-sidecar"}
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("flink-ha-sidecar", True)


def test_what_is_written_to_is_a_volume(deployment: dict[str, Any], container: dict[str, Any]) -> None:
    """State, spool and /tmp; every mount has its volume, and the configuration is the generated one."""
    config = document(HERE / "config.yaml")
    written = {config["state_dir"], config["spool"]["url"].removeprefix("file://"), "/tmp"}  # noqa: S108 - a path in the pod
    assert {path for path, mount in mounts(container).items() if not mount.get("readOnly", False)} == written
    volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    (generator,) = document(HERE / "kustomization.yaml")["configMapGenerator"]
    assert volumes["ha-sidecar-config"]["configMap"] == {"name": generator["name"]}
    assert generator["files"] == ["config.yaml"]
