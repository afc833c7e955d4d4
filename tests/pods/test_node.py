"""Faults of the node and of its API server: nobody's leader has changed by them."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Form, Pod
from tests.kit.pods.node import is_ready, pid_of
from tests.kit.pods.outcome import QUIET_SECONDS, await_settled, observe
from tests.kit.pods.second_node import second_node
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check

_CONFIRMED_SECONDS = 15.0
"""The sidecar is blind since it saw the store last: so long before, at most."""
pytestmark = pytest.mark.whole_node


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("node", Form(jobmanagers=1)) as flink:
        yield flink


def blind_since(cluster: FlinkPods, moment: float) -> float:
    """Seconds after a moment for which it is on record that a sidecar could not see the store."""
    blind = [record for record in cluster.records() if record["type"] == "coverage" and record["state"] == "blind"]
    times = [
        tuple(datetime.fromisoformat(record[end]).timestamp() for end in ("began_at", "ended_at")) for record in blind
    ]
    return sum(end - begin for begin, end in times if begin > moment - _CONFIRMED_SECONDS)


def test_the_api_server_is_restarted(cluster: FlinkPods, report: Report) -> None:
    """Nobody is notified, no pod ends, and the time in which nobody could see is on record."""
    before, leaders, messages, stopped = cluster.leader(), cluster.truth.now.leaders, cluster.messages, time.time()
    os.kill(pid_of("kube-apiserver"), signal.SIGKILL)
    wait_for("a record of what was not seen", lambda: blind_since(cluster, stopped), POD_SECONDS)
    await_settled(cluster)
    time.sleep(QUIET_SECONDS)  # whether nothing comes takes waiting
    assert cluster.messages == messages
    assert cluster.truth.now.leaders == leaders
    assert [pod.name for pod in cluster.pods()] == [before.name]
    blind, peak = blind_since(cluster, stopped), max(cluster.peaks.values()) / 2**20
    report("API server restarted", f"0 | | | blind for {blind:.1f} s, recorded | all | {peak:.0f} MiB")


def test_the_node_is_not_ready(cluster: FlinkPods, report: Report) -> None:
    """While the kubelet is stopped the pod is given up and goes on; it is a failover when the kubelet is back and ends it."""

    def lose_and_regain(leader: Pod) -> None:
        kubelet = pid_of("kubelet")
        os.kill(kubelet, signal.SIGSTOP)
        try:
            wait_for("the node to be given up", lambda: not is_ready(), POD_SECONDS)
            wait_for(
                "the pod to be given up", lambda: leader.name not in {pod.name for pod in cluster.pods()}, POD_SECONDS
            )
            assert cluster.truth.now.host == leader.address
        finally:
            os.kill(kubelet, signal.SIGCONT)

    with second_node(cluster.api):
        outcome = observe(cluster, lose_and_regain)
    report("one JobManager: node not ready, pod evicted", outcome)
    check(outcome, "graceful_handover")
