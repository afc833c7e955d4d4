"""A sidecar that gets 3 % of a processor."""

from collections.abc import Iterator

import pytest

from tests.kit.pods.cluster import FlinkPods, Form
from tests.kit.pods.outcome import observe
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check

_STARVED = {"resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "30m", "memory": "256Mi"}}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("little-cpu", Form(container=_STARVED)) as flink:
        yield flink


def test_it_tells_of_a_failover(cluster: FlinkPods, report: Report) -> None:
    """Late, but once, and with what the store shows."""
    outcome = observe(cluster, cluster.delete)
    report("one JobManager: pod deleted, sidecar limited to 30m CPU", outcome)
    check(outcome, "graceful_handover", "jobmanager_lost", "unknown")
