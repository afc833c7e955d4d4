"""The ZooKeeper driver sees what stands in a real ZooKeeper, and writes nothing there."""

import threading

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import MAX_BYTES, ZNodePosition
from sidecar.core.observations import NodeObserved, NothingFound, SnapshotCompleted, ViewObserved
from tests.integration.conftest import Watch
from tests.kit import zookeeper_recordings as recordings
from tests.kit.driver_recorder import CONNECTED, Recorder, now
from tests.kit.four_letter_words import zxid
from tests.kit.relay import Wire
from tests.lab.zookeeper import ZooKeeper

DISPATCHER = "/leader/dispatcher/connection_info"
JOB = "ff595cc2c737b4d30a69e740b7002d50"
DIGEST = "flink:secret"
PRIVATE = [make_digest_acl("flink", "secret", all=True)]

JOB_PATHS = {
    "Z1": f"/leader/{JOB}/job_manager_lock",
    "Z2": f"/jobs/{JOB}/leader/connection_info",
    "Z3": f"/leader/{JOB}/connection_info",
    "Z4": f"/leader/job-{JOB}/connection_info",
}


def plant(flink: KazooClient, tree: recordings.Tree) -> None:
    """Build a recorded tree. Data that the recording left out is one byte."""
    for path, node in sorted(tree.nodes.items()):
        data = b"?" if node.data is None else node.data
        flink.create(path, data, ephemeral=bool(node.position.ephemeral_owner))


def position(path: str, stat: ZnodeStat) -> ZNodePosition:
    return ZNodePosition(path, stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.mtime)


# -- first sight -------------------------------------------------------------------------------------------------------


def test_an_empty_namespace_is_seen_as_empty(recorder: Recorder) -> None:
    """Where no Flink has ever been, every place is seen to hold nothing, once, between CONNECTED and the end of the snapshot."""
    # That there is no such cluster is observed a moment later: which others are beside it is read first.
    first, *between, last = (observation for observation in recorder.all if not isinstance(observation, NothingFound))
    assert isinstance(first, ViewObserved)
    assert (first.connection, first.cluster_id) == (CONNECTED, "default")
    assert isinstance(last, SnapshotCompleted)
    paths = [observation.path for observation in between if hasattr(observation, "path")]
    assert sorted(paths) == sorted({*znode_paths.wanted({}).nodes, *znode_paths.JOB_STORES})
    assert recorder.standing() == {}
    assert [recorder.names(store) for store in znode_paths.JOB_STORES] == [[()], [()]]


@pytest.mark.parametrize("moment", recordings.MOMENTS)
@pytest.mark.parametrize("version", recordings.VERSIONS)
def test_a_recorded_tree_is_seen_whole(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient, version: str, moment: str
) -> None:
    """Of every Flink version's tree: each leader's bytes and position, each latch's contenders, each job in the stores; all once."""
    tree = recordings.tree(version, moment)
    plant(flink, tree)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()

    assert recorder.standing() == {path: node.data for path, node in tree.leaders().items()}
    for path in tree.leaders():
        data, stat = flink.get(path)
        (node,) = recorder.nodes(path)
        assert (node.data, node.position) == (data, position(path, stat))
    lists = [path for path in tree.nodes if znode_paths.is_latch(path) or path in znode_paths.JOB_STORES]
    assert {path: recorder.names(path) for path in lists} == {path: [tree.children(path)] for path in lists}
    assert isinstance(recorder.all[-1], SnapshotCompleted)


def test_a_quorum_with_chroot_and_spaces(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """`host:port, host:port/chroot` is read as ZooKeeper's own clients read it; paths stay relative to the namespace."""
    flink.create(f"/flink/default{DISPATCHER}", b"leader", makepath=True)
    recorder = watch(f"{shared_zookeeper.address}, {shared_zookeeper.address}{namespace}/", "/flink/default")
    recorder.wait_complete()
    assert recorder.standing() == {DISPATCHER: b"leader"}
    flink.set(f"/flink/default{DISPATCHER}", b"another")
    recorder.wait_value(DISPATCHER, b"another")


@pytest.mark.parametrize("quorum", ["", "host:port", "a:1,,b:2", "a:1/.."])
def test_a_quorum_that_cannot_be_read_is_an_error_at_once(watch: Watch, quorum: str) -> None:
    """The mistake is named where it is made, not in a thread later."""
    with pytest.raises(ValueError, match="is not like host:port,host:port/chroot"):
        watch(quorum, "/flink/default")


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_leader_that_comes_changes_goes_and_comes_again(recorder: Recorder, flink: KazooClient) -> None:
    """Creation (with all parents), change, deletion and creation anew are each seen, with the position of each."""
    flink.create(DISPATCHER, b"A", makepath=True, ephemeral=True)
    recorder.wait_value(DISPATCHER, b"A")
    created = flink.exists(DISPATCHER)
    flink.set(DISPATCHER, b"B")
    recorder.wait_value(DISPATCHER, b"B")
    changed = flink.exists(DISPATCHER)
    before = now()
    flink.delete(DISPATCHER)
    recorder.wait_value(DISPATCHER, None)
    assert before.steady < recorder.nodes(DISPATCHER)[-1].at.steady < now().steady
    flink.create(DISPATCHER, b"C", ephemeral=True)
    recorder.wait_value(DISPATCHER, b"C")
    again = flink.exists(DISPATCHER)
    assert recorder.values(DISPATCHER) == [None, b"A", b"B", None, b"C"]
    positions = [node.position for node in recorder.nodes(DISPATCHER) if node.position]
    assert positions == [position(DISPATCHER, stat) for stat in (created, changed, again)]
    assert positions[0].ephemeral_owner == flink.client_id[0]
    assert positions[1].version == 1


@pytest.mark.parametrize("in_one_transaction", [False, True])
def test_a_vacancy_is_seen_however_short_it_is(
    recorder: Recorder, flink: KazooClient, in_one_transaction: bool
) -> None:
    """The next leader stands there before anybody can read that the last one went; that it went is reported all the same."""
    flink.create(DISPATCHER, b"0", makepath=True, ephemeral=True)
    for term in range(1, 51):
        recorder.wait_value(DISPATCHER, b"%d" % (term - 1))
        replacement = flink.transaction() if in_one_transaction else None
        (replacement.delete if replacement else flink.delete_async)(DISPATCHER)
        (replacement.create if replacement else flink.create_async)(DISPATCHER, b"%d" % term, ephemeral=True)
        if replacement:
            replacement.commit()
    recorder.wait_value(DISPATCHER, b"50")
    assert recorder.values(DISPATCHER) == [
        None,
        b"0",
        *(value for term in range(1, 51) for value in (None, b"%d" % term)),
    ]


def test_parents_may_go_and_come_too(recorder: Recorder, flink: KazooClient) -> None:
    """A leader that takes its parents with it, as Flink does on SIGTERM, is seen when it comes back, however often."""
    expected: list[bytes | None] = [None]
    for round_ in range(3):
        data = b"%d" % round_
        flink.create(DISPATCHER, data, makepath=True)
        recorder.wait_value(DISPATCHER, data)
        flink.delete("/leader", recursive=True)
        recorder.wait_value(DISPATCHER, None)
        expected += [data, None]
    assert recorder.values(DISPATCHER) == expected


@pytest.mark.parametrize("era", JOB_PATHS)
def test_a_job_that_comes_and_goes(recorder: Recorder, flink: KazooClient, era: str) -> None:
    """In every layout a job is found when it appears, and its end is reported before it is forgotten."""
    path = JOB_PATHS[era]
    watched = recorder.tree._watched  # white box: nothing else shows that a path is not watched for ever
    before = set(watched)
    for _ in range(2):
        flink.create(path, b"leader", makepath=True, ephemeral=True)
        recorder.wait_value(path, b"leader")
        flink.delete("/" + path.split("/")[1], recursive=True)
        recorder.wait_value(path, None)
        recorder.wait(lambda: set(watched) == before)


def test_an_upgrade_of_flink_is_seen_in_both_places(recorder: Recorder, flink: KazooClient) -> None:
    """When Flink 2 takes over from Flink 1.14, the old job leader's end and the new one are seen."""
    flink.create(JOB_PATHS["Z2"], b"old", makepath=True)
    flink.create("/leader/dispatcher/latch/_c_old", b"", makepath=True)
    recorder.wait_value(JOB_PATHS["Z2"], b"old")
    recorder.wait_names("/leader/dispatcher/latch", "_c_old")
    flink.create("/leader/latch/_c_new", b"", makepath=True)
    flink.create(JOB_PATHS["Z4"], b"new", makepath=True)
    recorder.wait_value(JOB_PATHS["Z4"], b"new")
    recorder.wait_names("/leader/latch", "_c_new")
    flink.delete(f"/jobs/{JOB}/leader", recursive=True)
    recorder.wait_value(JOB_PATHS["Z2"], None)
    flink.delete("/leader/dispatcher/latch", recursive=True)
    recorder.wait_names("/leader/dispatcher/latch")


def test_contenders_and_stored_jobs_are_reported_by_name(recorder: Recorder, flink: KazooClient) -> None:
    """The children of latches and job stores are reported when they change, sorted; the lists that only lead to them are not."""
    flink.create("/leader/latch/_c_2", b"", makepath=True)
    recorder.wait_names("/leader/latch", "_c_2")
    flink.create("/leader/latch/_c_1", b"")
    recorder.wait_names("/leader/latch", "_c_1", "_c_2")
    flink.create(f"/jobgraphs/{JOB}", b"graph", makepath=True)
    recorder.wait_names("/jobgraphs", JOB)
    flink.delete("/jobgraphs", recursive=True)
    recorder.wait_names("/jobgraphs")
    assert recorder.names("/leader") == []
    assert recorder.names("/jobs") == []


@pytest.mark.parametrize("data", [b"", b"\xac\xed garbage", b"\0" * MAX_BYTES], ids=["empty", "garbage", "the most"])
def test_bytes_are_handed_over_as_they_are(recorder: Recorder, flink: KazooClient, data: bytes) -> None:
    """The driver decodes nothing: empty, foreign and large values arrive unchanged, each as a value."""
    flink.create(DISPATCHER, data, makepath=True)
    recorder.wait_value(DISPATCHER, data)
    flink.set(DISPATCHER, b"next")
    recorder.wait_value(DISPATCHER, b"next")


def test_bytes_that_are_too_many_for_a_leader_are_cut(recorder: Recorder, flink: KazooClient) -> None:
    """One more than a leader's may have is enough to know it: 100 kB of everybody's paths would fill the memory."""
    flink.create(DISPATCHER, b"\0" * 100_000, makepath=True)
    recorder.wait_value(DISPATCHER, b"\0" * (MAX_BYTES + 1))


# -- permissions -------------------------------------------------------------------------------------------------------


def test_a_node_that_may_not_be_read_is_reported_and_tried_again(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """A refusal is an observation with a reason, reported once; when the permission is given, the value is seen within half a minute."""
    flink.add_auth("digest", DIGEST)
    flink.ensure_path("/leader/dispatcher")
    flink.create(DISPATCHER, b"leader", acl=PRIVATE)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.refused(DISPATCHER) == ["no permission to read it"]
    assert recorder.values(DISPATCHER) == []

    driver = recorder.driver
    assert max(driver._due[driver._read_refused] - min(driver._due.values()), 0) < 30  # white box: when it tries again
    driver._inbox.put(driver._read_refused)  # white box: that time has come, in vain
    flink.set_acls(DISPATCHER, OPEN_ACL_UNSAFE)
    driver._inbox.put(driver._read_refused)
    recorder.wait_value(DISPATCHER, b"leader")
    flink.set(DISPATCHER, b"watched again")
    recorder.wait_value(DISPATCHER, b"watched again")
    assert len(recorder.refused(DISPATCHER)) == 1


def test_without_the_list_of_leaders_the_view_is_never_complete(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Where jobs cannot be listed, nobody may conclude that there are none; what can be read is still reported."""
    flink.add_auth("digest", DIGEST)
    flink.create(DISPATCHER, b"leader", makepath=True)
    flink.create(JOB_PATHS["Z4"], b"job", makepath=True)
    flink.set_acls("/leader", PRIVATE)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_value(DISPATCHER, b"leader")
    driver = recorder.driver
    driver._inbox.put(driver._read_refused)  # white box: the time to try again has come, in vain
    recorder.wait(lambda: driver._reads_in_flight == 0 and driver._inbox.empty())
    assert (recorder.snapshots(), recorder.standing()) == (0, {DISPATCHER: b"leader"})
    assert [line for line in caplog.messages if "cannot list" in line] == [
        f"cannot list /leader in ZooKeeper {shared_zookeeper.address}{namespace}: no permission to read it; retrying"
    ]
    flink.set_acls("/leader", OPEN_ACL_UNSAFE)
    driver._inbox.put(driver._read_refused)
    recorder.wait_complete()
    assert recorder.standing() == {DISPATCHER: b"leader", JOB_PATHS["Z4"]: b"job"}


# -- many and fast -----------------------------------------------------------------------------------------------------


def test_a_thousand_jobs_on_two_threads(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """A thousand jobs are seen on attaching, and again after each of three cut connections, by the same two threads."""
    jobs = {f"/leader/job-{number:032x}/connection_info": b"%d" % number for number in range(1000)}
    for made in [flink.create_async(path, data, makepath=True) for path, data in jobs.items()]:
        made.get(timeout=20)
    wire = Wire(shared_zookeeper.address)
    threads = set(threading.enumerate())
    recorder = watch(wire.address, namespace)
    recorder.wait_complete()
    assert recorder.standing() == jobs
    ours = {thread for thread in threading.enumerate() if thread.name.startswith("zookeeper-")} - threads
    assert len(ours) == 2
    for snapshots in (2, 3, 4):
        wire.cut()
        recorder.wait_complete(snapshots)
        assert {thread for thread in threading.enumerate() if thread.name.startswith("zookeeper-")} - threads == ours
    assert recorder.standing() == jobs
    assert [len(recorder.nodes(path)) for path in jobs] == [4] * 1000
    recorder.driver.stop()
    wire.close()


def test_all_of_a_thousand_jobs_end_at_once(recorder: Recorder, flink: KazooClient) -> None:
    """Appearing and vanishing under us faster than can be read, they are all seen to be gone, and none is watched any more."""
    watched = recorder.tree._watched  # white box: nothing else shows that a path is not watched for ever
    before = set(watched)
    jobs = [f"/leader/job-{number:032x}" for number in range(1000)]
    for made in [flink.create_async(f"{job}/connection_info", b"x", makepath=True) for job in jobs]:
        made.get(timeout=20)
    recorder.wait(lambda: len(watched) > 1000)
    for job in jobs:
        flink.delete_async(f"{job}/connection_info")
        gone = flink.delete_async(job)
    gone.get(timeout=20)
    recorder.wait(lambda: set(watched) == before)
    assert recorder.standing() == {}


def test_the_last_of_500_quick_lives_is_what_is_seen(recorder: Recorder, flink: KazooClient) -> None:
    """Created and deleted without a pause, where Flink's own listener goes deaf, the node's last value is seen, and later ones too."""
    flink.ensure_path("/leader/dispatcher")
    for life in range(500):
        flink.create_async(DISPATCHER, b"%d" % life)
        flink.delete_async(DISPATCHER)
    flink.create(DISPATCHER, b"last")
    recorder.wait_value(DISPATCHER, b"last")
    flink.set(DISPATCHER, b"and on")
    recorder.wait_value(DISPATCHER, b"and on")
    written = [None] + [value for life in range(500) for value in (b"%d" % life, None)] + [b"last", b"and on"]
    assert is_subsequence(recorder.values(DISPATCHER), written)


def is_subsequence(part: list[bytes | None], whole: list[bytes | None]) -> bool:
    """Whether `part` is `whole` with some items left out."""
    rest = iter(whole)
    return all(item in rest for item in part)


# -- nothing is written ------------------------------------------------------------------------------------------------


def test_it_writes_nothing_but_its_own_session(watch: Watch, zookeeper: ZooKeeper) -> None:
    """Attaching, two reconnects, everything it reads, and its end: two transactions, the session's creation and its close."""
    flink = KazooClient(zookeeper.address)
    flink.start(10)
    flink.add_auth("digest", DIGEST)
    flink.create(f"/flink/default{JOB_PATHS['Z4']}", b"job", makepath=True)
    flink.ensure_path("/flink/default/leader/dispatcher")
    flink.create(f"/flink/default{DISPATCHER}", b"leader", acl=PRIVATE)
    flink.stop()
    flink.close()

    before = zxid(zookeeper)
    wire = Wire(zookeeper.address)
    recorder = watch(wire.address, "/flink/default")
    for snapshots in (1, 2, 3):
        recorder.wait_complete(snapshots)
        wire.cut()
    recorder.wait_complete(4)
    recorder.driver.stop()
    wire.close()
    assert isinstance(recorder.all[-1], SnapshotCompleted)
    assert any(isinstance(node, NodeObserved) and node.data == b"job" for node in recorder.all)
    assert zxid(zookeeper) - before == 2
