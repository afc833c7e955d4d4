"""ZooKeeper HA: two JobManagers, and the sidecar in their pods."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.pods.cluster import FlinkPods, Form
from tests.kit.pods.outcome import observe
from tests.kit.serving import serving
from tests.lab.zookeeper import ZooKeeper
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[FlinkPods]:
    with serving(ZooKeeper(tmp_path_factory.mktemp("zookeeper"), flink_2_home, java)) as server:
        form = Form(jobmanagers=2, zookeeper=server.address)
        with FlinkPods("zookeeper", form) as flink:
            yield flink


def test_the_leaders_pod_is_deleted(cluster: FlinkPods, report: Report) -> None:
    """It withdraws from ZooKeeper, and the other one takes over."""
    outcome = observe(cluster, cluster.delete)
    report("ZooKeeper, two JobManagers: leader's pod deleted", outcome)
    check(outcome, "graceful_handover")


def test_the_leaders_pod_is_deleted_by_force(cluster: FlinkPods, report: Report) -> None:
    """Its session ends with its connection, or when it times out."""
    outcome = observe(cluster, lambda leader: cluster.delete(leader, grace_seconds=0))
    report("ZooKeeper, two JobManagers: leader's pod deleted by force", outcome)
    check(outcome, "graceful_handover", "jobmanager_lost")
