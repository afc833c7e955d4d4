"""What an operator applies for Kubernetes HA: a sidecar in a pod of its own, which may read one ConfigMap and keep another."""

import copy
import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sidecar.core.failover.failover_events import EventReason, EventSubject, KubernetesEvent
from sidecar.core.ha.finding import UnknownFact
from sidecar.core.moment import Timestamp
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.deployment_probe import DeploymentProbe
from sidecar.drivers.kubernetes.events import KubernetesEvents
from sidecar.drivers.kubernetes.kubernetes_ledger import ANNOTATIONS, LABELS, KubernetesLedger, ledger_name
from sidecar.drivers.kubernetes.pod_objects import KubernetesPods
from sidecar.ports import LedgerRefusedError, StoredDocument
from sidecar.settings import KubernetesSettings, load
from tests.deploy.manifests import DEPLOY, apply, copied, document, example, of_kind, pod_of
from tests.deploy.test_manifests import BASE, mounts
from tests.kit.kubectl import Manifest, kustomize
from tests.kit.kubernetes_server import Json, Kubernetes, Namespace
from tests.kit.sidecar_process import command

HERE = DEPLOY / "kubernetes"
EXAMPLE = DEPLOY / "examples" / "kubernetes"
NAMESPACE = document(EXAMPLE / "kustomization.yaml")["namespace"]
CLUSTER_ID = "my-flink"
CONFIG_MAP = f"{CLUSTER_ID}-cluster-config-map"
LEDGER = ledger_name(CLUSTER_ID)
DISPATCHER = "pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1"
LEADERS = {"org.apache.flink.k8s.leader.dispatcher": f"00000000-0000-0000-0000-000000000001,{DISPATCHER}"}
HOLDER = "00000000-0000-0000-0000-00000000000a"
PATIENCE_SECONDS = 60.0
"""For an answer of the API server, on a busy machine."""
PLANS = [["pods"], ["deployments", "statefulsets"], ["jobs"], ["flinkdeployments"], ["namespaces"]]
HA_CHECK = [
    *(["pods"], ["configmaps"], ["poddisruptionbudgets"], ["deployments", "statefulsets"], ["flinkdeployments"]),
    ["localsubjectaccessreviews"],
]
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def lease(holder: str = HOLDER) -> str:
    """Renewed just now."""
    return json.dumps(
        {
            "holderIdentity": holder,
            "leaseDuration": "PT15S",
            "acquireTime": "2026-11-20T08:00:00.000000Z",
            "renewTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "leaderTransitions": 0,
        }
    )


@contextmanager
def renewed(
    namespace: Namespace, name: str, data: Json, labels: Json | None = None, holder: str = HOLDER
) -> Iterator[None]:
    """Whoever leads by this ConfigMap renews the lease, as long as the block lasts."""
    stopping = threading.Event()

    def renew() -> None:
        while not stopping.wait(0.2):
            namespace.replace(name, data, lease(holder), labels)

    with ThreadPoolExecutor(1) as renewer:
        renewing = renewer.submit(renew)
        try:
            yield
        finally:
            stopping.set()
    renewing.result()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """What the example applies, without the rights of `plans`."""
    return without_plans(example(tmp_path_factory.mktemp("built"), "kubernetes"))


def without_plans(manifests: list[Manifest]) -> list[Manifest]:
    """Without that component, which has a Role of its own, and a test below."""
    return [manifest for manifest in manifests if manifest["metadata"]["name"] != "flink-ha-sidecar-plans"]


@pytest.fixture
def pod(built: list[Manifest]) -> Manifest:
    return pod_of(of_kind(built, "Deployment"))


@pytest.fixture
def container(pod: Manifest) -> Manifest:
    (only,) = pod["containers"]
    return dict(only)


@pytest.fixture(scope="module")
def kubernetes(
    tmp_path_factory: pytest.TempPathFactory, built: list[Manifest], apiserver: Path
) -> Iterator[Kubernetes]:
    """An API server to which the example has been applied, with two Flink clusters."""
    server = Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver)
    server.start()
    namespace = server.namespace(NAMESPACE)
    namespace.create(CONFIG_MAP, LEADERS, lease())
    namespace.create("other-cluster-config-map", LEADERS, lease())
    apply(server.kubeconfig(), built)
    yield server
    server.kill()


@pytest.fixture
def account(kubernetes: Kubernetes) -> Path:
    """A kubeconfig with a token of the sidecar's service account, as the kubelet would mount it."""
    return kubernetes.service_account(NAMESPACE, "flink-ha-sidecar")


def allowed(kubernetes: Kubernetes, verb: str, resource: str, name: str = "", namespace: str = NAMESPACE) -> bool:
    """What the API server's authorizer says of the sidecar's account. `resource` may have its group: `a.flink.apache.org`."""
    resource, _, group = resource.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:flink-ha-sidecar",
            "resourceAttributes": {
                "namespace": namespace,
                "verb": verb,
                "resource": resource,
                "name": name,
                "group": group,
            },
        },
    }
    answer = kubernetes.server.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def who(kubeconfig: Path, cluster_id: str, seconds: float = PATIENCE_SECONDS) -> tuple[int, str, str]:
    """Exit status and both outputs of the command, which gives up after so many `seconds`."""
    given = ("--kubernetes", "--cluster-id", cluster_id, "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig))
    ended = command("who", "--timeout", f"{seconds:.0f}s", "--output", "json", *given)
    return ended.returncode, ended.stdout, ended.stderr


def test_the_sidecar_may_read_its_cluster_and_nothing_else(kubernetes: Kubernetes) -> None:
    """Of all verbs on all that is there, exactly two on Flink's ConfigMap and two on its own."""
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    names = {
        "configmaps": ("", CONFIG_MAP, LEDGER, "other-cluster-config-map", ledger_name("other")),
        **dict.fromkeys(("secrets", "pods", "leases"), ("",)),
    }
    rights = {
        (verb, resource, name)
        for verb in verbs
        for resource, all_names in names.items()
        for name in all_names
        if allowed(kubernetes, verb, resource, name)
    }
    leaders = {(verb, "configmaps", CONFIG_MAP) for verb in ("list", "watch")}
    assert rights == leaders | {(verb, "configmaps", LEDGER) for verb in ("get", "patch")}


def test_that_is_enough_to_see_the_leaders(kubernetes: Kubernetes, account: Path) -> None:
    """The real command with the real token of that account; for the neighbour it says in one line what is missing."""
    with renewed(kubernetes.namespace(NAMESPACE), CONFIG_MAP, LEADERS):
        status, stdout, stderr = who(account, CLUSTER_ID)
    assert status == 1, stderr  # two components are without a leader
    assert [json.loads(line)["leader_address"] for line in stdout.splitlines()] == [DISPATCHER, None, None]
    status, stdout, stderr = who(account, "other", seconds=10)
    assert (status, stdout) == (3, "")
    assert "no permission (403)" in stderr
    assert "Traceback" not in stderr


def test_that_is_enough_to_keep_the_ledger(kubernetes: Kubernetes, account: Path, built: list[Manifest]) -> None:
    """It is read and written over; the manifest, which may be applied again, has no data to undo that; the neighbour's is out of bounds."""
    store = KubernetesLedger(Access(account), NAMESPACE, CLUSTER_ID, seconds=PATIENCE_SECONDS)
    written = store.write(b"claims", store.read())
    assert written is not None
    path = f"{CONFIG_MAPS}/{LEDGER}"
    (manifest,) = (found for found in built if found["metadata"]["name"] == LEDGER)
    described = {"name": LEDGER, "namespace": NAMESPACE, "labels": LABELS, "annotations": ANNOTATIONS}
    assert (manifest["metadata"], "data" in manifest) == (described, False)
    assert kubernetes.server.ask("GET", path)["data"] == {"ledger": "claims"}
    store.stop()
    neighbours = KubernetesLedger(Access(account), NAMESPACE, "other", seconds=PATIENCE_SECONDS)
    with pytest.raises(LedgerRefusedError, match="allows the verb get "):
        neighbours.read()
    with pytest.raises(LedgerRefusedError, match="allows the verb create "):
        neighbours.write(b"claims", StoredDocument())


@pytest.mark.covers("deployment:kubernetes/flink-1.14")
def test_flink_before_1_15_is_seen_with_its_component(kubernetes: Kubernetes, account: Path, tmp_path: Path) -> None:
    """With the component, the Role reads the ConfigMaps that have no names beforehand, and still writes its own alone."""
    labels = {"app": "old", "type": "flink-native-kubernetes"}
    address, session = "akka.tcp://flink@jm-1:6123/user/rpc/dispatcher_1", "00000000-0000-0000-0000-000000000002"
    name, data = "old-dispatcher-leader", {"address": address, "sessionId": session}
    namespace = kubernetes.namespace(NAMESPACE)
    namespace.create(name, data, lease(), labels)
    kubeconfig = kubernetes.kubeconfig()
    apply(kubeconfig, without_plans(example(tmp_path / "old", "kubernetes", "kubernetes/flink-1.14")))
    try:
        with renewed(namespace, name, data, labels):
            status, stdout, stderr = who(account, "old")
        assert status == 1, stderr  # two components are without a leader
        assert json.loads(stdout.splitlines()[0])["leader_address"] == address
        assert [allowed(kubernetes, verb, "configmaps") for verb in ("list", "create", "update", "delete")] == [
            True,
            *(False, False, False),
        ]
        assert [allowed(kubernetes, verb, "configmaps", LEDGER) for verb in ("get", "patch", "delete")] == [
            *(True, True, False)
        ]
    finally:
        apply(kubeconfig, without_plans(example(tmp_path / "new", "kubernetes")))


@pytest.mark.parametrize(
    ("component", "resource", "permitted"),
    [
        pytest.param(component, *rights, marks=pytest.mark.covers(f"deployment:kubernetes/{component}"))
        for component, *rights in (
            ("events", "events", {"create", "get", "patch"}),
            ("pod-names", "pods", {"list"}),
            ("plans", "deployments.apps", {"list", "watch"}),
            ("deaths", "pods", {"list", "watch"}),
            ("ha-check", "poddisruptionbudgets.policy", {"list"}),
        )
    ],
)
def test_a_component_allows_what_it_is_for(
    kubernetes: Kubernetes, account: Path, tmp_path: Path, component: str, resource: str, permitted: set[str]
) -> None:
    """With a Role of its own, beside that of the sidecar: applied to the account, it is enough, and nothing else is in it."""
    manifests = example(tmp_path, "kubernetes", f"kubernetes/{component}")
    role, binding = (found for found in manifests if found["metadata"]["name"] == f"flink-ha-sidecar-{component}")
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    assert [verb for verb in verbs if allowed(kubernetes, verb, resource)] == []
    try:
        apply(kubernetes.kubeconfig(), [role, binding])
        deadline = time.monotonic() + PATIENCE_SECONDS  # the authorizer's own view of a new Role is a moment late
        while {verb for verb in verbs if allowed(kubernetes, verb, resource)} != permitted:
            assert time.monotonic() < deadline
        alone = [[resource.partition(".")[0]]]
        several = {"deaths": [["pods", "events"], ["pods/log"]], "ha-check": HA_CHECK, "plans": PLANS}
        assert [rule["resources"] for rule in role["rules"]] == several.get(component, alone)
        namespace = kubernetes.namespace(NAMESPACE)
        config_map = namespace.create(f"of-{component}")
        if component == "events":
            about = EventSubject("ConfigMap", f"of-{component}", config_map["metadata"]["uid"])
            event = KubernetesEvent(
                CLUSTER_ID, about, EventReason.LEADER_LOST, "lost", Timestamp("2026-11-20T08:00:00.000000Z"), "1"
            )
            KubernetesEvents(Access(account), NAMESPACE).write(event)
            assert len(namespace.events("ConfigMap", config_map)) == 1
        elif component == "ha-check":
            cluster = KubernetesSettings(CLUSTER_ID, NAMESPACE)
            facts = DeploymentProbe(Access(account), cluster, lambda: 0).read()
            unread = {
                field: value
                for field in facts.__struct_fields__
                if isinstance(value := getattr(facts, field), UnknownFact)
            }
            # There is no Flink: no pod that would name its service account, no configuration.
            assert unread.keys() == {"flink_rights", "memory", "election"}, unread
            assert "not permitted" not in repr(unread)
        elif component == "pod-names":
            assert KubernetesPods(Access(account), NAMESPACE).find("10.9.9.9", 0) is None
    finally:
        for manifest in (binding, role):
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{manifest['kind'].lower()}s"
            kubernetes.server.ask("DELETE", f"{path}/{manifest['metadata']['name']}")


def test_a_mistake_in_a_manifest_would_be_refused(kubernetes: Kubernetes, built: list[Manifest]) -> None:
    """The server that took the manifests looks at their values, and kubectl at their fields."""
    wrong = copy.deepcopy(of_kind(built, "Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"] = "no such port!"
    with pytest.raises(AssertionError, match="must contain only alpha-numeric"):
        apply(kubernetes.kubeconfig(), [wrong])
    unknown = copy.deepcopy(of_kind(built, "Deployment"))
    unknown["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(AssertionError, match='unknown field "hostNetwrok"'):
        apply(kubernetes.kubeconfig(), [unknown])


def test_the_clusters_id_and_the_namespace_stand_in_one_place_each(tmp_path: Path) -> None:
    """Another id, with dashes, and another namespace are in every object after two edits, and the old ones in none."""
    folder = copied(tmp_path) / "examples" / "kubernetes"
    for file, old, new in (
        ("cluster.yaml", f"cluster_id: {CLUSTER_ID}", "cluster_id: orders-eu-1"),
        ("kustomization.yaml", f"namespace: {NAMESPACE}", "namespace: streaming"),
    ):
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))
    manifests = kustomize(folder)
    assert {manifest["metadata"]["namespace"] for manifest in manifests} == {"streaming"}
    assert of_kind(manifests, "RoleBinding")["subjects"][0]["namespace"] == "streaming"
    assert [rule["resourceNames"] for rule in of_kind(manifests, "Role")["rules"]] == [
        ["orders-eu-1-cluster-config-map"],
        ["orders-eu-1-flink-ha-sidecar"],
    ]
    assert "orders-eu-1-flink-ha-sidecar" in {manifest["metadata"]["name"] for manifest in manifests}
    assert variables(pod_of(of_kind(manifests, "Deployment")))["FLINK_HA_SIDECAR_CLUSTER_ID"] == "orders-eu-1"
    assert [word for word in ("CLUSTER-", CLUSTER_ID) if word in json.dumps(manifests)] == []


def variables(pod: Manifest) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in pod["containers"][0]["env"] if "value" in variable}


def test_the_cluster_is_the_same_everywhere(
    built: list[Manifest], pod: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pod's environment names the cluster that the Role allows, in the namespace of the pod, and the strict loader takes it."""
    for name, text in {"token": "t", "namespace": NAMESPACE}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("sidecar.settings.cluster.kubernetes.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SLACK_URL", "slack://T0000000/B0000000/not-a-real-token")
    for name, text in variables(pod).items():
        monkeypatch.setenv(name, text)
    settings = load(EXAMPLE / "config.yaml", {})
    assert settings.clusters[0] == KubernetesSettings(CLUSTER_ID, NAMESPACE, plans=True)
    assert [rule["resourceNames"] for rule in of_kind(built, "Role")["rules"]] == [[CONFIG_MAP], [LEDGER]]


@pytest.mark.covers("deployment:kubernetes")
def test_the_pod_is_as_careful_as_the_sidecar_in_flinks_pod(built: list[Manifest], container: Manifest) -> None:
    """No privileges, a read-only root, its own service account, one replica."""
    (other,) = document(BASE / "sidecar.yaml")["spec"]["template"]["spec"]["containers"]
    for key in ("args", "ports", "securityContext", "livenessProbe", "resources"):
        assert container[key] == other[key], key
    assert document(HERE / "deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["image"] == other["image"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "ha-sidecar"}
    deployment = of_kind(built, "Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    pod = pod_of(deployment)
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("flink-ha-sidecar", True)


def test_what_is_written_to_is_a_volume(built: list[Manifest], pod: Manifest, container: Manifest) -> None:
    """State, spool and /tmp; every mount has its volume, and configuration and receivers are the generated ones."""
    config = document(EXAMPLE / "config.yaml")
    written = {config["state_dir"], config["spool"]["url"].removeprefix("file://"), "/tmp"}  # noqa: S108 - a path in the pod
    assert {path for path, mount in mounts(container).items() if not mount.get("readOnly", False)} == written
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    (generated,) = (found for found in built if "config.yaml" in found.get("data", {}))
    assert volumes["ha-sidecar-config"]["configMap"] == {"name": generated["metadata"]["name"]}
    assert container["envFrom"] == [{"secretRef": {"name": of_kind(built, "Secret")["metadata"]["name"]}}]


@pytest.mark.covers("deployment:kubernetes/two-replicas")
def test_two_replicas_are_two_observers_on_two_nodes(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Each has its pod's name, one at a time is replaced or evicted, and the API server takes it."""
    manifests = example(tmp_path, "kubernetes", "kubernetes/two-replicas")
    deployment = of_kind(manifests, "Deployment")
    pod = pod_of(deployment)
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
    }
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["spec"]["selector"]
    assert of_kind(manifests, "PodDisruptionBudget")["spec"] == {
        "maxUnavailable": 1,
        "selector": spread["labelSelector"],
    }
    observer = {"name": "FLINK_HA_SIDECAR_OBSERVER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert observer in pod["containers"][0]["env"]
    assert "configured" in apply(kubernetes.kubeconfig(), manifests, "--dry-run=server")


@pytest.mark.parametrize("name", ["kubernetes", "zookeeper"])
@pytest.mark.covers("deployment:receivers-as-files")
def test_receivers_can_be_read_only_files(kubernetes: Kubernetes, tmp_path: Path, name: str) -> None:
    """Then no variable holds one, and the Secret is mounted, read-only, where its component says."""
    manifests = example(tmp_path, name, "receivers-as-files")
    containers = pod_of(of_kind(manifests, "Deployment"))["containers"]
    (container,) = (each for each in containers if each["name"] == "flink-ha-sidecar")
    assert "envFrom" not in container
    assert mounts(container)["/etc/flink-ha-sidecar-receivers"]["readOnly"] is True
    (volume,) = (found for found in pod_of(of_kind(manifests, "Deployment"))["volumes"] if "secret" in found)
    assert volume["secret"] == {"secretName": of_kind(manifests, "Secret")["metadata"]["name"]}
    assert "server dry run" in apply(kubernetes.kubeconfig(), manifests, "--dry-run=server")


@pytest.mark.covers("deployment:audit/on-kubernetes")
def test_the_audit_with_executors_has_no_claim(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Each variable in an argument of its steps is defined, and the API server takes all of it, and an executor's pod."""
    manifests = example(tmp_path, "kubernetes", "audit", "audit/on-kubernetes")
    for kind in ("Deployment", "CronJob"):
        assert [
            found for found in pod_of(of_kind(manifests, kind))["volumes"] if "persistentVolumeClaim" in found
        ] == []
    config = next(found for found in manifests if found["metadata"]["name"] == "flink-ha-audit")
    pod = pod_of(of_kind(manifests, "CronJob"))
    for step in (*pod["initContainers"], *pod["containers"]):
        named = set(re.findall(r"\$\((\w+)\)", json.dumps(step["args"])))
        by_kubernetes = {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
        assert named - by_kubernetes - {*config["data"]} == {found["name"] for found in step["env"]} - {
            "SPARK_CONF_DIR"
        }
    executor = document(DEPLOY / "audit" / "on-kubernetes" / "executor.yaml")
    executor["metadata"] |= {"name": "executor", "namespace": NAMESPACE}
    executor["spec"]["containers"][0]["image"] = "flink-ha-sidecar-audit"
    assert "PersistentVolumeClaim" not in {found["kind"] for found in manifests}
    assert "server dry run" in apply(kubernetes.kubeconfig(), [*manifests, executor], "--dry-run=server")
