"""The finder sees the clusters that come and go below a root of a real ZooKeeper, each like one that is configured."""

import logging
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from random import Random

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from sidecar.core.flink.znode_paths import ZNodeLayout
from sidecar.core.observations import (
    ClusterFound,
    ClusterRemoved,
    ConnectionState,
    NodeObserved,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.drivers.zookeeper import clusters_below_root
from sidecar.drivers.zookeeper.clusters_below_root import ZooKeeperFinder
from sidecar.drivers.zookeeper.discovery import Discovery
from sidecar.drivers.zookeeper.zookeeper_session import Absent, Children, Question
from sidecar.settings import ZooKeeperFinderSettings
from tests.integration.conftest import writer
from tests.kit import zookeeper_recordings as recordings
from tests.kit.cluster import DISPATCHER, A, B
from tests.kit.driver_recorder import CONNECTED, SUSPENDED, now
from tests.kit.fake_flink import Flink
from tests.kit.finder_recorder import Recorder
from tests.kit.relay import Wire
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.lab.zookeeper import ZooKeeper

Find = Callable[..., Recorder]
Run = Callable[..., Flink]
PATH = "/leader/dispatcher/connection_info"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters_below_root, "REMOVED_SECONDS", 2.0)


@pytest.fixture
def find(shared_zookeeper: ZooKeeper, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Find]:
    """Starts finders below the test's namespace, and stops them when the test is over."""
    started: list[Recorder] = []

    def start(
        address: str = shared_zookeeper.address, root: str = namespace, known: Collection[str] = (), **bounds: int
    ) -> Recorder:
        for name, most in bounds.items():
            monkeypatch.setattr(clusters_below_root, name, most)
        settings = ZooKeeperFinderSettings(address, root, session_timeout=6.0, connection_timeout=3.0)
        recorder = Recorder(ZooKeeperFinder(settings, now, known))
        started.append(recorder)
        recorder.finder.start(recorder)
        return recorder

    yield start
    for recorder in started:
        recorder.finder.stop()


@pytest.fixture
def run(flink: KazooClient) -> Run:
    """Starts Flinks: a cluster with this id, led by A."""

    def start(cluster_id: str, era: ZNodeLayout = ZNodeLayout.Z4) -> Flink:
        return Flink(ZNodes(era, ZooKeeperWriter(flink, f"/{cluster_id}"))).grant(A).submit().publish_all(A)

    return start


def remove(flink: KazooClient, cluster_id: str) -> None:
    """As Flink does when it cleans up: everything, then what is empty above it."""
    flink.delete(f"/{cluster_id}", recursive=True)


def dispatchers(recorder: Recorder, cluster_id: str) -> list[bool]:
    """Whether the dispatcher had a leader, each time that was reported."""
    seen = (observation for observation in recorder.of(cluster_id) if isinstance(observation, NodeObserved))
    return [each.position is not None for each in seen if each.path == PATH]


def whole(recorder: Recorder, cluster_id: str) -> bool:
    """Whether all of it was reported: found, connected, everything that is there, and that this is everything."""
    kinds = [type(observation) for observation in recorder.of(cluster_id)]
    return (
        kinds[:2] == [ClusterFound, ViewObserved]
        and SnapshotCompleted in kinds
        and any(dispatchers(recorder, cluster_id))
    )


def removals(recorder: Recorder, cluster_id: str) -> int:
    return sum(isinstance(observation, ClusterRemoved) for observation in recorder.of(cluster_id))


def test_clusters_come_and_go(find: Find, run: Run, flink: KazooClient) -> None:
    """Each is whole before anything else is reported of it, one that comes later too, whatever slashes its id has; one that goes is seen as
    removed, and can come back.
    """
    run("orders")
    recorder = find()
    recorder.wait_listed({"orders"})
    assert whole(recorder, "orders")
    for name in ("team-a/billing", "team-a/x/y"):
        run(name)
        recorder.wait(partial(whole, recorder, name))
    remove(flink, "team-a/billing")
    recorder.wait(lambda: removals(recorder, "team-a/billing"))
    assert dispatchers(recorder, "team-a/billing")[-1] is False
    run("team-a/billing")
    recorder.wait(lambda: dispatchers(recorder, "team-a/billing")[-1])
    assert [removals(recorder, name) for name in ("orders", "team-a/billing", "team-a/x/y")] == [0, 1, 0]


def test_leaders_change_as_in_a_configured_cluster(find: Find, run: Run) -> None:
    """Each of two: positions and paths are those of its namespace."""
    flinks = {name: run(name) for name in ("one", "two")}
    recorder = find()
    recorder.wait_listed({"one", "two"})
    flinks["one"].vacate(DISPATCHER)
    recorder.wait(lambda: dispatchers(recorder, "one")[-1] is False)
    flinks["one"].elect(B, DISPATCHER)
    recorder.wait(lambda: dispatchers(recorder, "one")[-1])
    last = [node for node in recorder.of("one") if isinstance(node, NodeObserved) and node.path == PATH][-1]
    assert last.position
    assert (last.position.path, last.writes) == (PATH, 1)
    assert dispatchers(recorder, "two") == [True]


@pytest.mark.parametrize("moment", recordings.MOMENTS)
@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_clusters_of_each_version_are_found(find: Find, flink: KazooClient, version: str, moment: str) -> None:
    """By what each of them has in ZooKeeper, and nothing else that is there."""
    for path, node in sorted(recordings.tree(version, moment).nodes.items()):
        flink.create(f"/team/{version}{path}", b"" if node.data is None else node.data, makepath=True)
    flink.ensure_path("/jobs/of/somebody")
    flink.ensure_path("/leader/of/a/party")
    flink.ensure_path("/other/leader/somebody")
    find().wait_listed({f"team/{version}"})


def test_a_folder_that_is_called_leader_is_no_cluster(find: Find, run: Run) -> None:
    """But those in it are."""
    run("leader/orders")
    run("team/leader")
    find().wait_listed({"leader/orders", "team/leader"})


def test_what_is_deleted_and_comes_back_was_not_removed(find: Find, run: Run, flink: KazooClient) -> None:
    """Somebody deletes the znodes of a cluster that runs: its JobManager writes them again, and that is a failover."""
    run("orders")
    recorder = find()
    recorder.wait_listed({"orders"})
    remove(flink, "orders")
    recorder.wait(lambda: dispatchers(recorder, "orders")[-1] is False)
    run("orders")
    recorder.wait(lambda: dispatchers(recorder, "orders")[-1])
    confirmed = len(recorder.confirmed)
    recorder.wait(lambda: len(recorder.confirmed) > confirmed + 1)
    assert removals(recorder, "orders") == 0


def test_a_root_that_does_not_exist_is_said_once_and_nothing_is_concluded(
    find: Find, run: Run, flink: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is there: no list of clusters, so the finder counts as blind."""
    with caplog.at_level(logging.WARNING):
        recorder = find(root=f"{flink.chroot}/later")
        recorder.wait(lambda: any("it does not exist" in line for line in caplog.messages))
        assert [each.cluster_ids for each in recorder.listed()] == [None]
        run("later/orders")
        recorder.wait(lambda: whole(recorder, "orders"))
    assert recorder.listed()[-1].cluster_ids is not None
    (line,) = (line for line in caplog.messages if "does not exist" in line)
    assert line.endswith("/later in ZooKeeper: it does not exist: check zookeeper.root; retrying")


def test_an_absent_root_is_asked_for_twice_and_then_waited_for() -> None:
    """For its children, and for its creation: that question sets the watch. Here without a server, on which it costs nothing that shows."""
    discovery = Discovery(10)
    for happens in (discovery.read_all, discovery.read_all, partial(discovery.happened, "/")):
        happens()
        for question in (Question.CHILDREN, Question.EXISTS):
            assert discovery.next() == (question, "/")
            discovery.answered("/", Absent())
        assert (discovery.next(), discovery.is_complete) == (None, False)
    discovery.happened("/")
    assert discovery.next() == (Question.CHILDREN, "/")
    discovery.answered("/", Children(()))
    assert discovery.is_complete


def test_a_path_that_came_back_before_its_absence_was_known_is_listed_again() -> None:
    """Its watch is gone, and the list above it has not changed. Here without a server: no other answers in that order on demand."""
    discovery = Discovery(10)
    discovery.read_all()
    discovery.answered("/", Children(("orders",)))
    discovery.answered("/orders", Children(("leader", "jobgraphs")))
    assert discovery.clusters == {"orders"}
    discovery.happened("/orders")
    discovery.happened("/")
    discovery.answered("/orders", Absent())
    while discovery.next():
        pass
    discovery.answered("/", Children(("orders",)))
    assert (discovery.clusters, discovery.next()) == (set(), (Question.CHILDREN, "/orders"))
    discovery.answered("/orders", Children(("leader", "jobgraphs")))
    assert discovery.clusters == {"orders"}


def test_a_root_that_may_not_be_listed_is_said_and_nothing_is_concluded(
    find: Find, run: Run, flink: KazooClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when that begins later: the clusters are still there, and nobody knows of others."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.zookeeper_driver._REFUSED_INTERVAL", 1.0)
    run("orders")
    recorder = find()
    recorder.wait_listed({"orders"})
    somebody = [make_digest_acl("somebody", "else", all=True)]
    with caplog.at_level(logging.WARNING):
        flink.set_acls("/", [*somebody, make_acl("world", "anyone", create=True, delete=True, admin=True)])
        run("billing")
        recorder.wait(lambda: recorder.listed()[-1].cluster_ids is None)
    assert any(line.endswith("in ZooKeeper: no permission to read it; retrying") for line in caplog.messages)
    assert recorder.views("orders") == [CONNECTED]
    assert removals(recorder, "orders") == 0
    flink.set_acls("/", OPEN_ACL_UNSAFE)
    recorder.wait_listed({"orders", "billing"})


def test_a_lost_connection_is_reported_of_each_and_what_happened_meanwhile_too(
    find: Find, run: Run, flink: KazooClient, wire: Wire
) -> None:
    """A cluster that was removed, one that came, and one whose leader is another."""
    for name in ("kept", "removed"):
        run(name)
    recorder = find(wire.address)
    recorder.wait_listed({"kept", "removed"})
    wire.fall_silent()
    wire.cut()
    recorder.wait(lambda: recorder.views("kept")[-1] is SUSPENDED)
    assert recorder.listed()[-1].cluster_ids is None
    remove(flink, "removed")
    run("new")
    wire.speak_again()
    recorder.wait(lambda: whole(recorder, "new"))
    recorder.wait(lambda: removals(recorder, "removed"))
    assert recorder.views("kept")[-1] is ConnectionState.CONNECTED
    assert removals(recorder, "kept") == 0


def test_too_many_clusters_are_left_out_and_counted(find: Find, run: Run, flink: KazooClient) -> None:
    """Those directly below the root get half of all. When one goes, another one is watched."""
    for name in ("a", "b", "c"):
        run(name)
    recorder = find(MOST=4)
    recorder.wait_listed({"a", "b"})
    assert recorder.listed()[-1].left_out == 1
    remove(flink, "a")
    recorder.wait(lambda: whole(recorder, "c"))
    recorder.wait(lambda: recorder.listed()[-1].left_out == 0)


def crowd(flink: KazooClient, folder: str, number: int) -> None:
    """Create so many empty znodes in a folder."""
    flink.ensure_path(folder)
    for made in [flink.create_async(f"{folder}/{index:04}") for index in range(number)]:
        made.get(timeout=20)


def test_a_crowded_folder_hides_no_cluster_of_another_one(find: Find, run: Run, flink: KazooClient) -> None:
    """A tenant fills one: clusters of other folders are found, before and afterwards, and what is left out is counted there."""
    run("team/orders")
    crowd(flink, "/tenant", 60)
    recorder = find(MOST_PATHS=40)
    recorder.wait_listed({"team/orders"})
    run("other/billing")
    recorder.wait(partial(whole, recorder, "other/billing"))
    listed = recorder.listed()[-1]
    assert (listed.beyond, listed.left_out, listed.unlisted > 30) == (("tenant",), 0, True)
    flink.delete("/tenant", recursive=True)
    recorder.wait(lambda: recorder.listed()[-1].beyond == ())


def test_a_list_beside_the_clusters_that_is_too_long_makes_nobody_blind(
    find: Find, run: Run, flink: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are watched stay so and are confirmed, a new process watches them too, and it is reported that others are not found."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.persistent._MOST_BYTES", 1 << 10)
    monkeypatch.setattr(clusters_below_root, "CONFIRM_SECONDS", 0.1)
    orders = run("orders")
    recorder = find()
    recorder.wait_listed({"orders"})
    crowd(flink, "/", 300)
    recorder.wait(lambda: recorder.listed()[-1].beyond == ("/",))
    confirmed = len(recorder.confirmed)
    recorder.wait(lambda: len(recorder.confirmed) > confirmed + 1)
    assert recorder.views("orders") == [CONNECTED]
    fresh = find(known=["orders"])
    fresh.wait_listed({"orders"})
    assert fresh.listed()[-1].unlisted >= 300
    for each in (recorder, fresh):
        orders.vacate(DISPATCHER)
        each.wait(lambda each=each: dispatchers(each, "orders")[-1] is False)  # type: ignore[misc]
        orders.elect(A, DISPATCHER)


def test_clusters_on_an_old_server_come_and_go(find: Find, old_zookeeper: ZooKeeper, namespace: str) -> None:
    """It has no persistent watches: each path has its own, and everything is seen."""
    with writer(old_zookeeper, namespace) as flink:
        orders = Flink(ZNodes(ZNodeLayout.Z2, ZooKeeperWriter(flink, "/orders"))).submit().publish_all(A)
        recorder = find(old_zookeeper.address)
        recorder.wait_listed({"orders"})
        orders.vacate(DISPATCHER)
        recorder.wait(lambda: dispatchers(recorder, "orders")[-1] is False)
        orders.elect(B, DISPATCHER)
        recorder.wait(lambda: dispatchers(recorder, "orders")[-1])
        remove(flink, "orders")
        recorder.wait(lambda: removals(recorder, "orders"))
        orders.submit().elect(A)
        recorder.wait(lambda: dispatchers(recorder, "orders")[-1])


def test_a_name_that_cannot_be_shown_is_no_cluster(find: Find, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever may write below the root names clusters: names are bounded, and one that would change other text is left out, and logged."""
    for name in ("\N{RIGHT-TO-LEFT OVERRIDE}sredro", "x" * 300, "orders"):
        run(name)
    with caplog.at_level(logging.WARNING):
        find().wait_listed({"orders"})
    assert [line for line in caplog.messages if line.endswith("cannot be shown")]
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in caplog.text


def test_whatever_comes_and_goes_what_is_left_is_known(find: Find, run: Run, flink: KazooClient) -> None:
    """At random, several at a time, some below others: each cluster that is there is watched with its leader, and no other."""
    chance = Random(20261123)
    names = ("a", "b", "a/b", "a/b/c", "leader/x", "jobs/y", "one/two/three/four/five/six")
    recorder = find()
    recorder.wait_listed(set())
    there: set[str] = set()
    for _ in range(60):
        name = chance.choice(names)
        if name in there:
            remove(flink, name)
            there = {each for each in there if each != name and not each.startswith(f"{name}/")}
        else:
            run(name)
            there.add(name)
        time.sleep(chance.choice((0.0, 0.0, 0.1, 0.5)))

    def complete() -> set[str]:
        return {name for name in names if whole(recorder, name) and dispatchers(recorder, name)[-1]}

    recorder.wait(lambda: complete() == there)
    confirmed = len(recorder.confirmed)
    recorder.wait(lambda: len(recorder.confirmed) > confirmed + 2 * len(names))
    gone = {name for name in names if recorder.of(name) and isinstance(_last_of_life(recorder, name), ClusterRemoved)}
    assert complete() == there
    assert gone == {name for name in names if recorder.of(name)} - there


def _last_of_life(recorder: Recorder, cluster_id: str) -> ClusterFound | ClusterRemoved:
    return [life for life in recorder.of(cluster_id) if isinstance(life, ClusterFound | ClusterRemoved)][-1]
