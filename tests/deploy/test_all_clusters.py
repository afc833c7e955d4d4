"""What an operator applies so that one deployment finds all clusters: it may read ConfigMaps and keep its ledger, and nothing else."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.observations import SnapshotCompleted
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.drivers.kubernetes import Access, KubernetesFinder
from sidecar.drivers.kubernetes.kubernetes_ledger import LABELS, KubernetesLedger, ledger_name
from sidecar.ports import LedgerRefusedError
from sidecar.settings import FinderSettings, load
from tests.deploy.manifests import DEPLOY, apply, document, example, of_kind, pod_of
from tests.kit.driver_recorder import now
from tests.kit.finder_recorder import Recorder
from tests.kit.kubectl import Manifest
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.waiting import PATIENCE_SECONDS

HERE = DEPLOY / "all-clusters"
NAMESPACE = document(DEPLOY / "examples" / "all-clusters" / "kustomization.yaml")["namespace"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """What the example applies."""
    return example(tmp_path_factory.mktemp("built"), "all-clusters")


@pytest.fixture(scope="module")
def kubernetes(
    tmp_path_factory: pytest.TempPathFactory, built: list[Manifest], apiserver: Path
) -> Iterator[Kubernetes]:
    """An API server to which the example has been applied."""
    server = Kubernetes(tmp_path_factory.mktemp("kubernetes"), apiserver)
    server.start()
    server.namespace(NAMESPACE)
    apply(server.kubeconfig(), built)
    yield server
    server.kill()


@pytest.fixture
def account(kubernetes: Kubernetes) -> Path:
    """A kubeconfig with a token of the service account, as the kubelet would mount it."""
    return kubernetes.service_account(NAMESPACE, "flink-ha-sidecar")


def test_it_finds_clusters_in_every_namespace(
    kubernetes: Kubernetes, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the configuration and the roles that are shipped."""
    lease = '{"holderIdentity":"jvm","leaseDuration":"PT15S"}'
    for name in ("team-a", "team-b"):
        labels = {"app": "orders", "type": "flink-native-kubernetes"}
        kubernetes.namespace(name).create("orders-cluster-config-map", {}, lease, labels)
    monkeypatch.setenv("KUBECONFIG", str(account))
    monkeypatch.setenv("SLACK_URL", "json://127.0.0.1/")
    settings = load(HERE / "config.yaml", {})
    assert isinstance(settings.finder, FinderSettings)
    recorder = Recorder(KubernetesFinder(Access(account), settings.finder, now))
    recorder.finder.start(recorder)
    try:
        recorder.wait_listed({"team-a/orders", "team-b/orders"})
        recorder.wait(
            lambda: any(isinstance(observation, SnapshotCompleted) for observation in recorder.of("team-b/orders"))
        )
    finally:
        recorder.finder.stop()


@pytest.mark.covers("deployment:all-clusters")
def test_its_pods_read_that_configuration(built: list[Manifest]) -> None:
    """And not that for one cluster, whose ConfigMap is gone; they are two observers."""
    (config,) = (found["metadata"]["name"] for found in built if "config.yaml" in found.get("data", {}))
    deployment = of_kind(built, "Deployment")
    pod = pod_of(deployment)
    assert deployment["spec"]["replicas"] == 2
    assert {"name": "ha-sidecar-config", "configMap": {"name": config}} in pod["volumes"]
    assert [variable["name"] for variable in pod["containers"][0]["env"]] == ["FLINK_HA_SIDECAR_OBSERVER"]


def test_it_keeps_the_ledger_that_is_shipped_and_no_other(
    kubernetes: Kubernetes, account: Path, built: list[Manifest]
) -> None:
    """Its name and labels are those of the code; another ConfigMap cannot be written, in whichever namespace."""
    (labels,) = (each["metadata"]["labels"] for each in built if each["metadata"]["name"] == ledger_name(ALL_FOUND))
    assert labels == LABELS
    shared = KubernetesLedger(Access(account), NAMESPACE, ALL_FOUND, seconds=PATIENCE_SECONDS)
    assert shared.write(b"{}", shared.read())
    assert shared.read().content == b"{}"
    for namespace, name in ((NAMESPACE, "other"), ("team-a", ALL_FOUND)):
        refused = KubernetesLedger(Access(account), namespace, name, seconds=PATIENCE_SECONDS)
        with pytest.raises(LedgerRefusedError):
            refused.read()


@pytest.mark.parametrize(
    ("verb", "resource", "allowed"),
    [
        ("list", "configmaps", True),
        ("watch", "configmaps", True),
        ("update", "configmaps", False),
        ("list", "secrets", False),
    ],
)
def test_what_it_may_do_elsewhere(kubernetes: Kubernetes, verb: str, resource: str, allowed: bool) -> None:
    """Read ConfigMaps."""
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:flink-ha-sidecar",
            "resourceAttributes": {"namespace": "team-a", "verb": verb, "resource": resource},
        },
    }
    answer = kubernetes.server.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is allowed
