"""Lists of children that anybody may make as long as they like: what is read of them is bounded, and the leaders are seen all the same."""

import pytest
from kazoo.client import KazooClient

from sidecar.core.observations import ChildrenObserved, LeftOut
from sidecar.drivers import shares
from tests.integration.conftest import Watch
from tests.kit.driver_recorder import CONNECTED, Recorder
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

LEADER = "/leader/dispatcher/connection_info"
JOB = "/leader/job-ff595cc2c737b4d30a69e740b7002d50/connection_info"
OTHER_JOB = "/leader/job-ff595cc2c737b4d30a69e740b7002d51/connection_info"
MANY = 60


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than fifty children are many."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.tree.MOST_CHILDREN", 50)


def crowd(flink: KazooClient, parent: str, name: str = "x") -> list[str]:
    """Create many children of `parent`."""
    flink.ensure_path(parent)
    paths = [f"{parent}/{name}-{number:03}" for number in range(MANY)]
    for made in [flink.create_async(path, b"") for path in paths]:
        made.get(timeout=20)
    return paths


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "from now on are watched" in line]


def test_jobs_beyond_the_bound_are_left_out_and_reported(
    watch: Watch, flink: KazooClient, shared_zookeeper: ZooKeeper, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger fills both job stores and the leaders: the cluster's own leaders are observed, and as many jobs as are watched; what is
    left out is reported before the lists are.
    """
    monkeypatch.setattr(shares.WatchedJobs.__init__, "__defaults__", (5, ""))
    flink.create(LEADER, b"leader", makepath=True)
    flink.create(JOB, b"job", makepath=True)
    for store in ("/jobgraphs", "/execution-plans", "/leader"):
        for number in range(20):
            flink.create(f"{store}/{number:032x}", makepath=True)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.standing()[LEADER] == b"leader"
    observations = [each for each in list(recorder.all) if isinstance(each, ChildrenObserved | LeftOut)]
    jobs = {
        name
        for each in observations
        if isinstance(each, ChildrenObserved) and "latch" not in each.path
        for name in each.names
    }
    assert len(jobs) <= 5
    assert isinstance(observations[0], LeftOut)
    assert [each.jobs for each in observations if isinstance(each, LeftOut)][-1] >= 15


def test_a_long_list_that_changes_all_the_time_is_read_now_and_then(
    recorder: Recorder, flink: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second, not at each change. At last all jobs are known."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.tree.MOST_CHILDREN", 1_000)
    monkeypatch.setattr("sidecar.drivers.zookeeper.tree._LONG_LIST", 10)
    jobs = [f"{number:032x}" for number in range(500)]
    for job in jobs:
        flink.create(f"/jobgraphs/{job}", makepath=True)

    def lists() -> list[ChildrenObserved]:
        return [each for each in list(recorder.all) if isinstance(each, ChildrenObserved) and each.path == "/jobgraphs"]

    wait_for("all jobs", lambda: set(lists()[-1].names) == {*jobs})
    assert len(lists()) < len(jobs) / 10


def is_settled(recorder: Recorder) -> bool:
    return recorder.view() == [CONNECTED]


def test_a_crowd_below_the_leaders_hides_no_leader(
    watch: Watch, flink: KazooClient, shared_zookeeper: ZooKeeper, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The cluster's own leaders are seen, and jobs that come; of those that were there before, that they are not watched is logged."""
    flink.create(LEADER, b"leader", makepath=True)
    flink.create(JOB, b"job", makepath=True)
    crowded = crowd(flink, "/leader")
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.standing() == {LEADER: b"leader"}
    (line,) = warned(caplog)
    assert f"/leader in ZooKeeper {shared_zookeeper.address}{namespace} has {MANY + 2} children, more than 50" in line
    flink.create(OTHER_JOB, b"other", makepath=True)
    recorder.wait_value(OTHER_JOB, b"other")
    for path in crowded:
        flink.delete(path)
    recorder.wait_value(JOB, b"job")  # when it is read again
    flink.set(JOB, b"job again")
    recorder.wait_value(JOB, b"job again")
    assert is_settled(recorder)


def test_a_crowd_of_contenders_or_jobs_is_not_listed(
    watch: Watch, flink: KazooClient, shared_zookeeper: ZooKeeper, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who contends is not known then, nor which jobs there are: both are logged, and nothing is concluded."""
    flink.create(LEADER, b"leader", makepath=True)
    for parent in ("/leader/latch", "/execution-plans"):
        crowd(flink, parent)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.names("/leader/latch") == recorder.names("/execution-plans") == []
    assert len(warned(caplog)) == 2
    assert is_settled(recorder)


def test_an_answer_of_too_many_bytes_is_thrown_away_and_the_connection_kept(
    watch: Watch,
    flink: KazooClient,
    shared_zookeeper: ZooKeeper,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Few children with long names are many bytes: no more than is allowed is kept of them, and what follows is read."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.tree.MOST_CHILDREN", 1000)
    monkeypatch.setattr("sidecar.drivers.zookeeper.persistent._MOST_BYTES", 10_000)
    flink.create(LEADER, b"leader", makepath=True)
    crowd(flink, "/leader", "x" * 1000)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.standing() == {LEADER: b"leader"}
    (line,) = warned(caplog)
    assert f"has {MANY + 1} children, more than can be read" in line
    flink.set(LEADER, b"next")
    recorder.wait_value(LEADER, b"next")
    assert is_settled(recorder)
