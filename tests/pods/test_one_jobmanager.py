"""One JobManager with the sidecar in its pod: when the pod goes, the sidecar goes with it, and another one has to report it."""

from collections.abc import Iterator

import pytest

from tests.kit.pods.cluster import FlinkPods, Form, Pod
from tests.kit.pods.outcome import Outcome, observe
from tests.pods.conftest import Report

_NOTIFIED_SECONDS = 30.0
"""After the new leader has published itself: `group_wait`, and all else on a machine that does much else."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("one-jobmanager", Form()) as flink:
        yield flink


def check(outcome: Outcome, *causes: str) -> None:
    """One message in time, one of these causes, bounds that hold, and a record of every new leader."""
    assert len(outcome.messages) == 1, outcome.messages
    assert outcome.after_leader < _NOTIFIED_SECONDS
    assert outcome.episode["cause"] in causes
    assert outcome.is_within_bounds, outcome
    assert outcome.unrecorded == []


def test_its_pod_is_deleted(cluster: FlinkPods, report: Report) -> None:
    """`kubectl delete pod`: the leader withdraws, and the sidecar sees it before it ends."""
    outcome = observe(cluster, cluster.delete)
    report("one JobManager: pod deleted", outcome)
    check(outcome, "graceful_handover")


def test_its_deployment_is_rolled_out(cluster: FlinkPods, report: Report) -> None:
    """`kubectl rollout restart`: the next pod is there before the old one goes."""
    outcome = observe(cluster, lambda _leader: cluster.rollout())
    report("one JobManager: rollout restart", outcome)
    check(outcome, "graceful_handover")


def test_its_node_is_drained(cluster: FlinkPods, report: Report) -> None:
    """A disruption budget refuses the eviction, and nothing happens; when it allows it, it is a failover like any other."""

    def drain(leader: Pod) -> None:
        cluster.budget(0)
        assert not cluster.evict(leader)
        cluster.budget(1)
        assert cluster.evict(leader)

    outcome = observe(cluster, drain)
    report("one JobManager: evicted (drain)", outcome)
    check(outcome, "graceful_handover")
