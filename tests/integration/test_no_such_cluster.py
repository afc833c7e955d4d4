"""Where nothing of the cluster is, a driver says so, and what is there instead."""

from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from sidecar.core.observations import NothingFound
from sidecar.drivers.kubernetes import Access, KubernetesDriver
from tests.integration.conftest import Watch
from tests.kit.configmap_recorder import drivers
from tests.kit.driver_recorder import Recorder, now
from tests.kit.kubernetes_server import Kubernetes
from tests.lab.zookeeper import ZooKeeper

LEADER = "/leader/dispatcher/connection_info"


def nothing(recorder: Recorder) -> list[NothingFound]:
    return [absence for absence in list(recorder.all) if isinstance(absence, NothingFound)]


def test_zookeeper_without_the_cluster_names_those_there_are(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster id with a typo, beside two clusters; when something is there after all it is watched."""
    for name in ("payments", "orders"):
        flink.ensure_path(f"/{name}/leader")
    recorder = watch(shared_zookeeper.address, f"{namespace}/payements")
    recorder.wait(lambda: bool(nothing(recorder)))
    (absence,) = nothing(recorder)
    assert absence.place == f"{shared_zookeeper.address}{namespace}/payements in ZooKeeper"
    assert absence.beside == ("orders", "payments")
    (line,) = [line for line in caplog.messages if "no such cluster" in line]
    assert line.endswith("clusters found beside it: orders, payments. Until it exists there is nothing to watch")
    flink.create(f"/payements{LEADER}", b"leader", makepath=True)
    recorder.wait_value(LEADER, b"leader")


def test_a_wrong_root_of_zookeeper_has_nothing_beside_it(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str
) -> None:
    """The parent does not exist either: there is no other cluster."""
    recorder = watch(shared_zookeeper.address, f"{namespace}-wrong/default")
    recorder.wait(lambda: bool(nothing(recorder)))
    assert nothing(recorder)[0].beside == ()


def test_a_cluster_without_a_leader_is_there(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """What an earlier leader left behind is a trace: nobody says that there is no such cluster."""
    flink.ensure_path("/leader/dispatcher")
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    recorder.wait(lambda: len(recorder.confirmed) >= 2)  # by then it would have been logged
    assert nothing(recorder) == []


def test_kubernetes_without_the_cluster_names_those_there_are(kubernetes: Kubernetes) -> None:
    """By the labels of their ConfigMaps."""
    flink = kubernetes.namespace(f"test-{uuid4()}")
    flink.create("orders-cluster-config-map", labels={"app": "orders", "type": "flink-native-kubernetes"})
    with drivers() as start:
        recorder = start(KubernetesDriver(Access(kubernetes.kubeconfig()), flink.name, "order", now))
        recorder.wait(lambda: bool(nothing(recorder)))
        (absence,) = nothing(recorder)[:1]
    assert absence.place == f"ConfigMap order-cluster-config-map in namespace {flink.name} of Kubernetes"
    assert absence.beside == ("orders",)
