"""Recursive persistent watches, what they cannot miss, and what is done where they fail."""

import random
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from kazoo.client import KazooClient

from sidecar.core.observations import NodeObserved, PlaceRemoved
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.records import TransitionRecord
from sidecar.drivers.zookeeper import persistent
from sidecar.drivers.zookeeper.zookeeper_driver import Connection
from sidecar.drivers.zookeeper.zookeeper_session import Handler
from tests.integration.conftest import Watch, writer
from tests.kit.cluster import DISPATCHER, A, B, JobManager, job_manager
from tests.kit.driver_recorder import CLUSTER, CONNECTED, SUSPENDED, Recorder, now, recorded
from tests.kit.java_serialization import connection_info
from tests.kit.relay import Wire
from tests.lab.zookeeper import ZooKeeper

LEADER = "/leader/dispatcher/connection_info"
JOB = "/leader/job-ff595cc2c737b4d30a69e740b7002d50/connection_info"


def published(leader: JobManager) -> bytes:
    """What `leader` writes when it leads the dispatcher."""
    information = leader.leads(DISPATCHER)
    return connection_info(information.address, information.session_id)


def transitions(recorder: Recorder) -> list[TransitionRecord]:
    """What a sidecar would have recorded of the dispatcher."""
    records = recorded(recorder.all, now(), Policy("sidecar-0", {CLUSTER: Store.ZOOKEEPER}))
    return [record for record in records if isinstance(record, TransitionRecord) and record.component == "dispatcher"]


def writes(recorder: Recorder, path: str) -> int:
    """How many writes of `path` were reported since everything had been read."""
    counts = [node.writes for node in recorder.nodes(path) if node.writes is not None]
    return sum(counts)


# -- everything is seen or accounted for -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [LEADER, JOB])
def test_as_fast_as_they_can_every_write_is_counted(recorder: Recorder, flink: KazooClient, path: str) -> None:
    """Three thousand creations, sets and deletions without a pause, the parent's too: the last value is right, and no write is missing."""
    chance = random.Random(20261120)
    parent = path.rpartition("/")[0]
    flink.ensure_path(parent)
    made, stands = 0, False
    for number in range(3000):
        if not stands:
            flink.create_async(path, b"%d" % number)
            made += 1
        elif chance.random() < 0.3:
            flink.delete_async(path)
            made += 1
            if chance.random() < 0.1:
                flink.delete_async(parent)
                flink.create_async(parent)
            stands = False
            continue
        else:
            flink.set_async(path, b"%d" % number)
            made += 1
        stands = True
    if stands:
        flink.delete(path)
        made += 1
    flink.create(path, b"last")
    recorder.wait_value(path, b"last")
    assert writes(recorder, path) == made + 1


def test_a_leader_that_clears_its_place_is_distinguished_from_one_that_is_lost(
    recorder: Recorder, flink: KazooClient, shared_zookeeper: ZooKeeper, namespace: str
) -> None:
    """When its session ends its node is gone; a leader that ends in order removes the node's parent too."""
    with writer(shared_zookeeper, namespace) as jobmanager:
        jobmanager.create(LEADER, published(A), ephemeral=True, makepath=True)
        recorder.wait_value(LEADER, published(A))
    recorder.wait_value(LEADER, None)
    flink.create(LEADER, published(B))
    recorder.wait_value(LEADER, published(B))
    assert [removal for removal in recorder.all if isinstance(removal, PlaceRemoved)] == []
    flink.delete(LEADER)
    flink.delete(LEADER.rpartition("/")[0])
    recorder.wait(lambda: isinstance(recorder.all[-1], PlaceRemoved))
    last, removed = recorder.all[-2:]
    assert (type(last), type(removed)) == (NodeObserved, PlaceRemoved)
    assert recorder.values(LEADER)[-1] is None


def test_the_elections_before_we_came_are_counted(
    watch: Watch, flink: KazooClient, namespace: str, shared_zookeeper: ZooKeeper
) -> None:
    """Seven leaders of the dispatcher, one after the other, and then we attach: the seventh election; the next one is the eighth."""
    flink.ensure_path("/leader/latch")
    for term in range(7):
        if term:
            flink.delete(LEADER)
        flink.create(LEADER, published(job_manager("jm-a", term)), makepath=True)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    flink.delete(LEADER)
    flink.create(LEADER, published(B))
    recorder.wait_value(LEADER, published(B))
    assert [t.elections for t in transitions(recorder)] == [7, 7, 8]


def test_what_changed_while_we_were_cut_off_is_exact_or_a_least(
    watch: Watch, flink: KazooClient, namespace: str, wire: Wire
) -> None:
    """Rewritten three times out of sight: two unobserved. Replaced three times: not knowable, at least five, and the fourth election."""
    flink.ensure_path("/leader/latch")
    flink.create(LEADER, published(A), makepath=True)
    recorder = watch(wire.address, namespace)
    recorder.wait_complete()

    wire.cut()
    for term in range(3):
        flink.set(LEADER, published(job_manager("jm-b", term)))
    recorder.wait_complete(2)

    wire.cut()
    for term in range(3):
        flink.delete(LEADER)
        flink.create(LEADER, published(job_manager("jm-c", term)))
    recorder.wait_complete(3)

    led = [t for t in transitions(recorder) if t.after_session_id]
    assert [(t.unobserved, t.unobserved_at_least, t.elections) for t in led] == [(None, 0, 1), (2, 2, 1), (None, 5, 4)]


# -- contested ---------------------------------------------------------------------------------------------------------


def test_a_contested_leader_is_sampled_and_still_counted(recorder: Recorder, flink: KazooClient) -> None:
    """Two that overwrite each other as fast as they can, 1500 times: far fewer tellings than writes, every write in their sum."""
    flink.ensure_path("/leader/dispatcher")
    made = 1500  # however long they take
    for number in range(made):
        flink.create(LEADER, (b"one", b"other")[number % 2])
        flink.delete(LEADER)
    flink.create(LEADER, b"winner")
    recorder.wait_value(LEADER, b"winner")
    assert writes(recorder, LEADER) == 2 * made + 1
    assert len(recorder.nodes(LEADER)) < made / 3  # the first hundred lives, and a few in each second that it takes


def test_a_leader_replaced_while_its_path_rests_was_deleted_in_between(recorder: Recorder, flink: KazooClient) -> None:
    """A stands, is deleted, and B is created, all of it between two readings of a contested path: the vacancy that nobody saw counts."""
    flink.ensure_path("/leader/dispatcher")
    flink.create(LEADER, published(A))
    recorder.wait_value(LEADER, published(A))
    tree = recorder.tree  # white box: a path rests after a hundred deletions, and when exactly cannot be observed
    tree.throttled.add(tree._watched[LEADER])
    flink.delete(LEADER)
    flink.create(LEADER, published(B))
    recorder.wait_value(LEADER, published(B))
    last = transitions(recorder)[-1]
    assert (last.kind, last.unobserved) == ("CHANGED", 1)


# -- silence is not health ---------------------------------------------------------------------------------------------


def test_a_watch_that_went_missing_is_found_by_reading(recorder: Recorder, flink: KazooClient) -> None:
    """The server forgets the watch, for whatever reason: the change is reported within a few seconds, and everything is read anew."""
    flink.create(LEADER, b"before", makepath=True)
    recorder.wait_value(LEADER, b"before")
    client = recorder.driver._session._client  # white box: no server forgets a watch on demand
    forgotten = threading.Event()
    persistent.ask(client, persistent.RemoveWatches, "/leader", lambda _result, _error: forgotten.set())
    assert forgotten.wait(5)
    flink.set(LEADER, b"unheard")
    recorder.wait_value(LEADER, b"unheard")
    recorder.wait_complete(2)
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]
    flink.set(LEADER, b"heard")
    recorder.wait_value(LEADER, b"heard")


def test_more_than_can_be_taken_in_is_read_anew(
    recorder: Recorder, flink: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where changes come faster than they are taken, the queue does not grow for ever: they are dropped, and what stands is read."""
    monkeypatch.setattr("sidecar.drivers.zookeeper.zookeeper_driver._MOST_WAITING", 50)
    taken, report = threading.Event(), recorder.driver._reporter.observer
    assert report

    def slow(observation: object) -> None:
        taken.wait(20)
        report(observation)  # type: ignore[arg-type]  # whatever it was

    recorder.driver._reporter.observer = slow  # white box: the owner's thread is busy
    flink.ensure_path("/leader/dispatcher")
    for life in range(300):
        flink.create(LEADER, b"%d" % life)
        flink.delete(LEADER)
    flink.create(LEADER, b"last")
    taken.set()
    recorder.wait_complete(2)
    recorder.wait_value(LEADER, b"last")


# -- old servers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def old_flink(old_zookeeper: ZooKeeper, namespace: str) -> Iterator[KazooClient]:
    with writer(old_zookeeper, namespace) as client:
        yield client


def test_an_old_server_is_watched_path_by_path(
    watch: Watch, old_zookeeper: ZooKeeper, old_flink: KazooClient, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses persistent watches and breaks the connection: on the next one there are others, and everything is seen."""
    with caplog.at_level("INFO"):
        recorder = watch(old_zookeeper.address, namespace)
        recorder.wait_view(CONNECTED, SUSPENDED, CONNECTED)
        recorder.wait_complete()
        assert "is older than 3.6 and has no persistent watches" in caplog.text
    for path in (LEADER, JOB):
        for life in range(3):
            old_flink.create(path, b"%d" % life, makepath=True)
            recorder.wait_value(path, b"%d" % life)
            old_flink.set(path, b"again")
            recorder.wait_value(path, b"again")
            old_flink.delete(path)
            recorder.wait_value(path, None)
    old_flink.create("/leader/latch/_c_1", b"", makepath=True)
    recorder.wait_names("/leader/latch", "_c_1")
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]


def test_what_an_old_server_answers_before_it_hangs_up_is_read_even_if_that_is_noticed_by_writing(
    watch: Watch, old_zookeeper: ZooKeeper, old_flink: KazooClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may send its next request to a server that has meanwhile refused the watch: one connection is enough to know."""
    select = Handler.select

    def late(handler: Handler, *arguments: Any) -> Any:
        readable, writable, nothing = select(handler, *arguments)
        if handler.serving and (requests := [each for each in readable if not isinstance(each, socket.socket)]):
            time.sleep(0.02)  # the answers come now, and are not yet known of
            readable = requests
        return readable, writable, nothing

    monkeypatch.setattr(Handler, "select", late)
    recorder = watch(old_zookeeper.address, namespace)
    recorder.wait_complete()
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]


def test_a_refused_watch_ends_only_the_connection_that_refused_it(
    watch: Watch, old_zookeeper: ZooKeeper, old_flink: KazooClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the driver's thread is, the next connection, which has other watches, is left alone."""
    answered = Connection._watch_answered

    def late(connection: Connection, *arguments: Any) -> None:
        time.sleep(1)  # meanwhile kazoo has reconnected
        answered(connection, *arguments)

    monkeypatch.setattr(Connection, "_watch_answered", late)
    recorder = watch(old_zookeeper.address, namespace)
    recorder.wait_complete()
    old_flink.create(LEADER, b"seen", makepath=True)
    recorder.wait_value(LEADER, b"seen")
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]


def test_one_shot_watches_lose_values_and_claim_no_numbers(
    watch: Watch, old_zookeeper: ZooKeeper, old_flink: KazooClient, namespace: str
) -> None:
    """500 quick lives on an old server: the last one is seen, and no number of writes is claimed that is not right."""
    recorder = watch(old_zookeeper.address, namespace)
    recorder.wait_complete()
    old_flink.ensure_path("/leader/dispatcher")
    for life in range(500):
        old_flink.create_async(LEADER, b"%d" % life)
        old_flink.delete_async(LEADER)
    old_flink.create(LEADER, b"last")
    recorder.wait_value(LEADER, b"last")
    lives = [-1, *(int(node.data) for node in recorder.nodes(LEADER) if node.position and node.data != b"last"), 500]
    missed = sum(later - earlier - 1 for earlier, later in pairwise(lives))
    counted = [node.writes for node in recorder.nodes(LEADER)]
    assert missed > 0
    assert None in counted
    assert {count for count in counted if count is not None} <= {
        1
    }  # a deletion: the first that a watch reports is the next change
