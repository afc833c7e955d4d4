"""Pods by their address, on a real API server: what a Role must allow, and which pods count."""

from uuid import uuid4

import pytest

from sidecar.core.pods import Pod
from sidecar.drivers.kubernetes import Access
from sidecar.drivers.kubernetes.pod_objects import KubernetesPods
from sidecar.ports import KubernetesError, KubernetesRefusedError
from tests.kit.kubernetes_server import Kubernetes, Namespace
from tests.kit.waiting import wait_for


@pytest.fixture
def flink(kubernetes: Kubernetes) -> Namespace:
    """A namespace of this test's own."""
    return kubernetes.namespace(f"test-{uuid4()}")


def test_the_pod_of_an_address(kubernetes: Kubernetes, flink: Namespace) -> None:
    """The one that runs; of several with the address of their node none."""
    pods = KubernetesPods(Access(kubernetes.kubeconfig()), flink.name)
    assert pods.find("10.1.2.3", 7) is None
    flink.run_pod("ended", "10.1.2.3", "Failed")
    running = flink.run_pod("jm-0", "10.1.2.3")
    flink.run_pod("jm-1", "10.1.2.4")
    assert pods.find("10.1.2.3", 7) == Pod("jm-0", running["metadata"]["uid"], 7)
    flink.run_pod("another-of-the-node", "10.1.2.3")
    assert pods.find("10.1.2.3", 7) is None
    flink.run_pod("jm-2", "2001:db8::1")
    found = pods.find("2001:db8::1", 7)
    assert found
    assert found.name == "jm-2"


def test_who_may_list_pods_is_enough(kubernetes: Kubernetes, flink: Namespace) -> None:
    """And without that, the line that the Role needs is named."""
    flink.run_pod("jm-0", "10.1.2.3")
    pods = KubernetesPods(Access(kubernetes.kubeconfig("somebody")), flink.name)
    with pytest.raises(KubernetesRefusedError) as raised:
        pods.find("10.1.2.3", 7)
    line = str(raised.value)
    assert f"a Role in namespace {flink.name} that allows the verb list on the resource pods (" in line
    assert line.endswith('; the Role needs {apiGroups: [""], resources: [pods], verbs: [list]}')
    flink.allow("somebody", "list", resource="pods")

    def permitted() -> bool:
        try:
            return pods.find("10.1.2.3", 7) is not None
        except KubernetesRefusedError:  # the API server's own view of a new Role is a moment late
            return False

    wait_for("the Role", permitted, 10)


def test_an_api_server_out_of_reach_is_no_refusal(kubernetes: Kubernetes) -> None:
    """It is asked again."""
    nowhere = Access(kubernetes.kubeconfig(server="https://127.0.0.1:1"))
    with pytest.raises(KubernetesError, match="Connection refused") as raised:
        KubernetesPods(nowhere, "flink").find("10.1.2.3", 0)
    assert not isinstance(raised.value, KubernetesRefusedError)
