"""The fake Flink writes to a real store what it has in memory."""

import json

import pytest
from kazoo.client import KazooClient

from sidecar.core.flink.configmaps import ConfigMapLayout
from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.drivers.kubernetes import Access, KubernetesDriver
from tests.kit.cluster import CLUSTER, DISPATCHER, THE_JOB, A, B, job_manager
from tests.kit.config_maps import ApiServerWriter, ConfigMaps
from tests.kit.configmap_recorder import drivers
from tests.kit.driver_recorder import Recorder, now
from tests.kit.fake_flink import Flink
from tests.kit.features import covering
from tests.kit.kubernetes_server import Kubernetes
from tests.kit.znodes import ZNodes, ZooKeeperWriter

PATIENCE = 120.0
"""Seconds: a busy machine is slow, not wrong."""


@pytest.mark.parametrize("era", covering("layout", ZNodeLayout))
def test_znodes_are_written_to_a_real_zookeeper(recorder: Recorder, flink: KazooClient, era: ZNodeLayout) -> None:
    """Leaders come, go and write again, a job comes and goes: what a driver sees is what is in memory."""
    fake = Flink(ZNodes(era, ZooKeeperWriter(flink, "")))

    def agree() -> bool:
        leaders = {path: node.data for path, node in fake.znodes.tree.leaders().items()}
        return recorder.standing() == leaders and recorder.names(fake.znodes.job_store)[-1:] == [
            fake.znodes.tree.children(fake.znodes.job_store)
        ]

    fake.submit().elect(A)
    recorder.wait(agree, PATIENCE)
    fake.elect(job_manager("jm-a", term=1), DISPATCHER)
    recorder.wait(agree, PATIENCE)
    node = recorder.nodes(fake.znodes.path(DISPATCHER))[-1]
    assert node.position
    assert node.position.version == 1, "a leader's own node is set"
    fake.vacate()
    fake.forget()
    recorder.wait(agree, PATIENCE)
    fake.elect(B, DISPATCHER)
    recorder.wait(agree, PATIENCE)


@pytest.mark.parametrize("era", covering("layout", ConfigMapLayout))
def test_config_maps_are_written_to_a_real_api_server(kubernetes: Kubernetes, era: ConfigMapLayout) -> None:
    """The lease with its renewals, leaders and a job: what a driver sees is what is in memory."""
    namespace = kubernetes.namespace(f"fake-flink-{era.name.lower()}")
    namespace.allow("somebody", "create", "update", "delete")
    server = kubernetes.server
    writer = ApiServerWriter(server.url, kubernetes.authority.ca, server.users["somebody"], namespace.name)
    fake = Flink(ConfigMaps(era, writer)).grant(A).submit().publish_all(A)
    with drivers() as start:
        recorder = start(KubernetesDriver(Access(kubernetes.kubeconfig()), namespace.name, CLUSTER, now))

        def agree() -> bool:
            last = {config_map.name: config_map for config_map in recorder.config_maps()}
            contents = {
                name: (each.data, json.loads(each.leader)) for name, each in last.items() if each.uid and each.leader
            }
            return contents == {name: (kept.data, kept.lease) for name, kept in fake.config_maps.maps.items()}

        recorder.wait(agree, PATIENCE)
        fake.config_maps.renew()
        recorder.wait(agree, PATIENCE)
        fake.grant(B)
        fake.vacate(THE_JOB)
        fake.publish_all(B, DISPATCHER)
        recorder.wait(agree, PATIENCE)
        for name in [*fake.config_maps.maps]:
            fake.config_maps.delete(name)
        recorder.wait(agree, PATIENCE)
