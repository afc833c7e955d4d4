"""What an operator applies so that one deployment finds all clusters of a ZooKeeper: it asks nothing of the API server."""

import pytest

from sidecar.settings import ZooKeeperFinderSettings, load
from tests.deploy.manifests import DEPLOY, example, of_kind, pod_of
from tests.kit.kubectl import Manifest

EXAMPLE = DEPLOY / "examples" / "zookeeper-clusters"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """What the example applies."""
    return example(tmp_path_factory.mktemp("built"), EXAMPLE.name)


def test_its_configuration_finds_clusters_in_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """All below one root, on every server that it names."""
    monkeypatch.setenv("SLACK_URL", "json://127.0.0.1/")
    settings = load(EXAMPLE / "config.yaml", {})
    assert isinstance(settings.finder, ZooKeeperFinderSettings)


def test_it_has_neither_account_nor_role_nor_ledger_in_kubernetes(built: list[Manifest]) -> None:
    """What the component for one cluster brings of these is gone; the rest of it stays."""
    kinds = sorted(manifest["kind"] for manifest in built)
    assert kinds == ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Secret"]
    pod = pod_of(of_kind(built, "Deployment"))
    assert "serviceAccountName" not in pod
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.covers("deployment:zookeeper-clusters")
def test_its_pods_read_that_configuration(built: list[Manifest]) -> None:
    """They are two observers, whose environment names no cluster."""
    deployment, config = of_kind(built, "Deployment"), of_kind(built, "ConfigMap")
    pod = pod_of(deployment)
    assert deployment["spec"]["replicas"] == 2
    assert config["data"] == {"config.yaml": (EXAMPLE / "config.yaml").read_text()}
    assert {"name": "ha-sidecar-config", "configMap": {"name": config["metadata"]["name"]}} in pod["volumes"]
    assert [variable["name"] for variable in pod["containers"][0]["env"]] == ["FLINK_HA_SIDECAR_OBSERVER"]
