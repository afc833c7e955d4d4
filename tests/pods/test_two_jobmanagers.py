"""Two JobManagers, each with the sidecar in its pod: one of the sidecars always lives, and they are one voice."""

from collections.abc import Iterator

import pytest

from tests.kit.pods.cluster import FlinkPods, Form
from tests.kit.pods.outcome import observe
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("two-jobmanagers", Form(jobmanagers=2)) as flink:
        yield flink


def test_the_leaders_pod_is_deleted(cluster: FlinkPods, report: Report) -> None:
    """The standby's sidecar sees all of it."""
    outcome = observe(cluster, cluster.delete)
    report("two JobManagers: leader's pod deleted", outcome)
    check(outcome, "graceful_handover")


def test_the_deployment_is_rolled_out(cluster: FlinkPods, report: Report) -> None:
    """Both pods are replaced, and their sidecars with them."""
    outcome = observe(cluster, lambda _leader: cluster.rollout())
    report("two JobManagers: rollout restart", outcome)
    check(outcome, "graceful_handover")
