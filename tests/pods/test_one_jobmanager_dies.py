"""One JobManager with the sidecar in its pod, and ends that nobody announced."""

import os
import signal
from collections.abc import Iterator

import pytest

from tests.kit.pods.cluster import FlinkPods, Form, Pod
from tests.kit.pods.hog import out_of_memory
from tests.kit.pods.outcome import observe
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("one-jobmanager-dies", Form()) as flink:
        yield flink


def test_its_pod_is_deleted_by_force(cluster: FlinkPods, report: Report) -> None:
    """`kubectl delete pod --force --grace-period=0`: the sidecar is killed as well, and the next one has the store to go by."""
    outcome = observe(cluster, lambda leader: cluster.delete(leader, grace_seconds=0))
    report("one JobManager: pod deleted by force", outcome)
    check(outcome, "unknown", "jobmanager_lost", "graceful_handover")


def test_its_process_is_killed(cluster: FlinkPods, report: Report) -> None:
    """`kill -9`: the kubelet starts the container again in the same pod, beside the same sidecar."""
    outcome = observe(cluster, lambda leader: os.kill(cluster.process(leader), signal.SIGKILL))
    report("one JobManager: process killed", outcome)
    check(outcome, "restarted_in_place")


def test_it_runs_out_of_memory(cluster: FlinkPods, report: Report) -> None:
    """The kernel kills it at the limit of its container; the kubelet says so."""
    leaders: list[Pod] = []

    def exhaust(leader: Pod) -> None:
        leaders.append(leader)
        out_of_memory(leader.cgroup("jobmanager"), cluster.process(leader))

    outcome = observe(cluster, exhaust)
    (leader,) = leaders
    ended = wait_for("the kubelet's word", lambda: (now := cluster.again(leader)) and now.last_end("jobmanager"))
    assert ended == ("OOMKilled", 137)
    report("one JobManager: out of memory", outcome)
    check(outcome, "restarted_in_place")
