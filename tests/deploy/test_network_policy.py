"""Who may reach the sidecar: Prometheus and the kubelet; and in a JobManager's pod nothing of Flink's is shut out."""

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.deploy.manifests import DEPLOY, apply, document
from tests.deploy.test_kubernetes_manifests import HERE, NAMESPACE
from tests.deploy.test_manifests import BASE, of_kind
from tests.kit.kubernetes_server import Kubernetes

COMPONENT = DEPLOY / "network-policy"
POLICIES = (HERE / "network-policy.yaml", COMPONENT / "network-policy.yaml")


def ports(rules: list[dict[str, Any]]) -> set[int]:
    """All that these rules allow."""
    return {
        number
        for rule in rules
        for port in rule["ports"]
        for number in range(port["port"], port.get("endPort", port["port"]) + 1)
    }


def test_the_api_server_takes_them(kubernetes: Kubernetes) -> None:
    """Without a field that it does not know; it is older than endPort, which the models of Kubernetes 1.37 know."""
    for path in POLICIES:
        manifest = document(path)
        known: object = client.V1NetworkPolicy.from_dict(manifest)
        assert client.ApiClient().sanitize_for_serialization(known) == manifest  # type: ignore[no-untyped-call]
        for port in (port for rule in manifest["spec"]["ingress"] for port in rule["ports"]):
            port.pop("endPort", None)
        apply(kubernetes.kubeconfig(), [manifest], "--namespace", NAMESPACE, "--dry-run=server")


def test_the_sidecars_own_pod_is_open_to_prometheus_alone() -> None:
    """The policy selects that pod, is part of the kustomization, and names the container's port."""
    policy, pod = document(POLICIES[0])["spec"], document(HERE / "deployment.yaml")["spec"]["template"]
    assert POLICIES[0].name in document(HERE / "kustomization.yaml")["resources"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    [rule] = policy["ingress"]
    [port] = rule["ports"]
    assert [port["port"]] == [known["name"] for known in pod["spec"]["containers"][0]["ports"]]
    assert len(rule["from"]) == 1


@pytest.mark.covers("deployment:network-policy")
def test_in_a_jobmanagers_pod_nothing_else_is_shut_out() -> None:
    """Every port but the sidecar's stays open to everybody; that one to Prometheus, and to the other sidecars."""
    [sidecar] = document(BASE / "sidecar.yaml")["spec"]["template"]["spec"]["containers"]
    port = sidecar["ports"][0]["containerPort"]
    policy = document(POLICIES[1])["spec"]
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    everybody = [rule for rule in policy["ingress"] if "from" not in rule]
    prometheus = [rule for rule in policy["ingress"] if "from" in rule]
    assert ports(everybody) == {*range(1, 65536)} - {port}
    assert ports(prometheus) == {port}
    assert {"podSelector": policy["podSelector"]} in prometheus[0]["from"]
    assert (COMPONENT / Path(document(COMPONENT / "kustomization.yaml")["resources"][0])) == POLICIES[1]
