"""What happens to the sidecar's container alone is no failover: nobody is notified, and nothing is lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.kit.pods.api import Json
from tests.kit.pods.cluster import POD_SECONDS, FlinkPods, Form, Pod
from tests.kit.pods.hog import out_of_memory
from tests.kit.pods.images import NEXT_SIDECAR, SIDECAR
from tests.kit.pods.manifests import CONTAINER
from tests.kit.pods.outcome import QUIET_SECONDS, await_settled, observe
from tests.kit.waiting import wait_for
from tests.pods.conftest import Report
from tests.pods.test_one_jobmanager import check


@pytest.fixture(scope="module")
def cluster() -> Iterator[FlinkPods]:
    with FlinkPods("sidecar-alone", Form()) as flink:
        yield flink


def restart(cluster: FlinkPods, how: Callable[[Pod], object]) -> tuple[str, int]:
    """Make the sidecar's container start again, and see that nothing else does; what the kubelet says of its end."""
    before, messages = cluster.leader(), cluster.messages
    cluster.peaks.clear()
    writes, records = cluster.truth.now.leaders, cluster.records()
    how(before)

    def started() -> Pod | None:
        now = cluster.again(before)
        return now if now and now.restarts(CONTAINER) > before.restarts(CONTAINER) and now.is_ready() else None

    after = wait_for("the sidecar's next run", started, POD_SECONDS)
    await_settled(cluster)
    time.sleep(QUIET_SECONDS)  # whether nothing comes takes waiting
    assert cluster.messages == messages
    assert cluster.truth.now.leaders == writes
    assert after.restarts("jobmanager") == before.restarts("jobmanager")
    assert ids(records) <= ids(cluster.records())
    assert cluster.gaps() == []
    ended = after.last_end(CONTAINER)
    assert ended is not None
    return ended


def ids(records: list[Json]) -> set[str]:
    return {record["id"] for record in records}


def silent(cluster: FlinkPods) -> str:
    """What the table has of a fault of which nobody was notified."""
    return f"0 | | | | all | {max(cluster.peaks.values()) / 2**20:.0f} MiB"


def test_it_gets_another_image(cluster: FlinkPods, report: Report) -> None:
    """The running pod's container is replaced by that of the next release, and ends as it should."""
    for image in (NEXT_SIDECAR, SIDECAR):
        assert restart(cluster, partial(cluster.change_image, image=image)) == ("Completed", 0)
    report("sidecar alone: another image", silent(cluster))


def test_it_is_killed(cluster: FlinkPods, report: Report) -> None:
    """`kill -9`."""
    killed = restart(cluster, lambda leader: os.kill(cluster.process(leader, CONTAINER), signal.SIGKILL))
    assert killed == ("Error", 137)
    report("sidecar alone: killed", silent(cluster))


def test_it_runs_out_of_memory(cluster: FlinkPods, report: Report) -> None:
    """The kernel kills it at the limit of `deploy/base`."""

    def exhaust(leader: Pod) -> None:
        out_of_memory(leader.cgroup(CONTAINER), cluster.process(leader, CONTAINER))

    assert restart(cluster, exhaust) == ("OOMKilled", 137)
    report("sidecar alone: out of memory", silent(cluster))


def test_it_tells_of_a_failover_afterwards(cluster: FlinkPods, report: Report) -> None:
    """The sidecar that was started again knows the leader of before."""
    outcome = observe(cluster, lambda leader: os.kill(cluster.process(leader), signal.SIGKILL))
    report("one JobManager: process killed, after restarts of the sidecar", outcome)
    check(outcome, "restarted_in_place")
