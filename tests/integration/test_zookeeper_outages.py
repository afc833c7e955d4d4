"""The ZooKeeper driver through everything that happens to a connection: it always knows whether it can see, and it always comes back."""

import logging
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sidecar.core.flink.leadership import ZNodePosition
from sidecar.core.observations import ClusterObservation, SnapshotCompleted, ViewObserved
from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.drivers.zookeeper.place import Inquiry
from sidecar.drivers.zookeeper.watch_set import Ask
from sidecar.drivers.zookeeper.zookeeper_session import Question, Value
from tests.integration.conftest import Watch
from tests.kit.driver_recorder import CLUSTER, CONNECTED, LOST, SUSPENDED, Recorder, now, running
from tests.kit.relay import Wire
from tests.kit.waiting import wait_for
from tests.kit.zookeeper_client import connected
from tests.lab.processes import free_port
from tests.lab.zookeeper import ZooKeeper

NAMESPACE = "/flink/default"
LEADER = "/leader/dispatcher/connection_info"


def write(server: ZooKeeper, data: bytes) -> None:
    """Have `data` stand at the dispatcher's path."""
    with connected(server.address) as client:
        client.ensure_path(f"{NAMESPACE}{LEADER}")
        client.set(f"{NAMESPACE}{LEADER}", data)


def our_threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("zookeeper-"))


# -- outages -----------------------------------------------------------------------------------------------------------


def test_a_short_outage_is_suspended_and_then_read_anew(watch: Watch, zookeeper: ZooKeeper) -> None:
    """A server killed and back after 2 s: SUSPENDED at once, CONNECTED soon, in the same session, and what changed meanwhile is seen."""
    write(zookeeper, b"before")
    recorder = watch(zookeeper.address, NAMESPACE, session_timeout=40)
    recorder.wait_complete()
    session = recorder.driver._session._client.client_id  # white box: that it is the same one shows nowhere else
    zookeeper.kill()
    recorder.wait_view(CONNECTED, SUSPENDED)
    time.sleep(2)  # the outage
    zookeeper.start()
    write(zookeeper, b"meanwhile")
    recorder.wait_complete(2)
    recorder.wait_value(LEADER, b"meanwhile")
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]
    assert recorder.driver._session._client.client_id == session


@pytest.mark.timing
def test_an_outage_longer_than_the_session_is_lost_on_our_own_clock(watch: Watch, zookeeper: ZooKeeper) -> None:
    """With no server left to say that the session is over, LOST comes when it would be; then the driver is back within 5 s."""
    write(zookeeper, b"before")
    recorder = watch(zookeeper.address, NAMESPACE, session_timeout=3)
    recorder.wait_complete()
    zookeeper.kill()
    recorder.wait_view(CONNECTED, SUSPENDED, LOST)
    suspended, lost = (
        view.at.steady for view in recorder.all if isinstance(view, ViewObserved) and view.connection != CONNECTED
    )
    assert 3.0 <= (lost - suspended) / 1e6 < 4.5
    zookeeper.start()
    recorder.wait_complete(2, timeout=5)  # as promised: it tries again every second or so
    assert recorder.view() == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert recorder.values(LEADER) == [b"before", b"before"]
    write(zookeeper, b"after")
    recorder.wait_value(LEADER, b"after")


def test_a_server_that_lost_its_data_is_believed(watch: Watch, zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Back with an empty disk, the server refuses clients that have seen more than it has; with a new session it is read all the same."""
    write(zookeeper, b"before")
    recorder = watch(zookeeper.address, NAMESPACE, session_timeout=3)
    recorder.wait_complete()
    zookeeper.kill()
    shutil.rmtree(tmp_path / "zookeeper" / "data")
    zookeeper.start()
    recorder.wait_complete(2)
    assert recorder.view() == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert recorder.values(LEADER) == [b"before", None]


def test_an_expired_session_is_lost_and_a_new_one_begun(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """When the server says that the session is over, that is LOST; everything is read again in the next session."""
    flink.create(LEADER, b"leader", makepath=True)
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    usurper = KazooClient(shared_zookeeper.address, client_id=recorder.driver._session._client.client_id)
    usurper.start(10)
    usurper.stop()  # a session that its other owner has closed
    usurper.close()
    recorder.wait_complete(2)
    assert recorder.view() == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    flink.set(LEADER, b"next")
    recorder.wait_value(LEADER, b"next")
    assert recorder.values(LEADER) == [b"leader", b"leader", b"next"]


@pytest.mark.timing
def test_a_server_that_is_frozen_is_noticed(
    watch: Watch, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """An open connection on which nobody answers is cut after a third of the session timeout, and taken up again when the server wakes."""
    write(zookeeper, b"before")
    recorder = watch(zookeeper.address, NAMESPACE, session_timeout=6)
    recorder.wait_complete()
    zookeeper.pause()
    frozen = now().steady
    recorder.wait_view(CONNECTED, SUSPENDED)
    assert (recorder.all[-1].at.steady - frozen) / 1e6 < 3
    assert [line for line in caplog.messages if "closing the connection" in line] != []
    zookeeper.resume()
    recorder.wait_complete(2)
    write(zookeeper, b"after")
    recorder.wait_value(LEADER, b"after")
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]


def test_a_slow_observer_is_not_taken_for_a_silent_server(shared_zookeeper: ZooKeeper, namespace: str) -> None:
    """While our own inbox is full the server's answers wait: the connection is kept."""
    driver = ZooKeeperDriver(shared_zookeeper.address, namespace, CLUSTER, now, session_timeout=3)
    recorder = Recorder(driver)

    def slow(observation: ClusterObservation) -> None:
        if isinstance(observation, SnapshotCompleted):
            time.sleep(2.5)  # longer than the second of silence that is allowed
        recorder(observation)

    with running(driver, slow):
        recorder.wait_complete()
        time.sleep(1.5)  # time to cut it, wrongly
        assert recorder.view() == [CONNECTED]


def test_connections_cut_while_reading_leave_nothing_behind(
    watch: Watch, wire: Wire, namespace: str, flink: KazooClient
) -> None:
    """Cut again and again under a thousand reads and writes, the driver ends with what is there, and not with an older answer."""
    jobs = [f"/leader/job-{number:032x}/connection_info" for number in range(1000)]
    for made in [flink.create_async(path, b"0", makepath=True) for path in jobs]:
        made.get(timeout=20)
    recorder = watch(wire.address, namespace)
    for round_ in range(1, 6):
        written = [flink.set_async(path, b"%d" % round_) for path in jobs]
        wire.cut()
        for done in written:
            done.get(timeout=20)
    recorder.wait(lambda: recorder.standing() == dict.fromkeys(jobs, b"5"))
    values = {path: [int(value) for value in recorder.values(path) if value is not None] for path in jobs}
    assert [path for path, seen in values.items() if seen != sorted(seen)] == []


def test_a_late_answer_of_an_earlier_connection_is_not_believed(
    watch: Watch, wire: Wire, namespace: str, flink: KazooClient
) -> None:
    """What was asked before the connection broke is no news after it was had again, and does not count as read."""
    flink.create(LEADER, b"old", makepath=True)
    recorder = watch(wire.address, namespace)
    recorder.wait_complete()
    driver = recorder.driver  # white box from here: no server answers late on demand
    watched = recorder.tree._watched[LEADER]
    data, stat = flink.get(LEADER)
    position = ZNodePosition(LEADER, stat.czxid, stat.mzxid, stat.version, 0, stat.mtime)
    ask = Ask(watched, Question.VALUE, LEADER)
    answered = partial(driver._place._answered, "", driver._place._clusters[""], ask)
    late = Inquiry(Question.VALUE, LEADER, watch=False, answered=answered), now(), Value(data, position)
    answer = partial(driver._if_connected, driver._connection, partial(driver._process_answer, *late))
    flink.set(LEADER, b"new")
    recorder.wait_value(LEADER, b"new")
    wire.cut()
    recorder.wait_complete(2)
    driver._inbox.put(answer)
    recorder.wait(driver._inbox.empty)
    flink.set(LEADER, b"newer")
    recorder.wait_value(LEADER, b"newer")
    assert recorder.values(LEADER) == [b"old", b"new", b"new", b"newer"]
    recorder.wait(lambda: driver._reads_in_flight == 0)


# -- no server ---------------------------------------------------------------------------------------------------------


def test_a_server_that_comes_late_is_awaited(
    watch: Watch, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """With nobody there at the start, the driver says so once, in one line and as SUSPENDED, and connects when the server is there."""
    write(zookeeper, b"leader")
    zookeeper.stop()
    recorder = watch(zookeeper.address, NAMESPACE)
    recorder.wait_view(SUSPENDED)
    time.sleep(2)  # several attempts
    assert caplog.messages == [
        f"no connection to ZooKeeper {zookeeper.address}{NAMESPACE}: Connection refused; retrying"
    ]
    zookeeper.start()
    recorder.wait_complete()
    assert recorder.view() == [SUSPENDED, CONNECTED]
    assert recorder.standing() == {LEADER: b"leader"}


@pytest.mark.timing
def test_waiting_for_a_server_costs_next_to_nothing(watch: Watch) -> None:
    """Three seconds without a server are not three seconds of CPU."""
    watch(f"127.0.0.1:{free_port()}", NAMESPACE)
    began = time.process_time()
    time.sleep(3)  # nothing is awaited: it is the waiting that is measured
    assert time.process_time() - began < 1


def test_a_name_that_does_not_resolve_is_said(
    watch: Watch, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that does not exist is named in the log."""

    def unknown(*_: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    recorder = watch("no-such-host:2181", NAMESPACE)
    recorder.wait_view(SUSPENDED)
    (line,) = caplog.messages
    assert line.removeprefix("no connection to ZooKeeper no-such-host:2181/flink/default: ") == (
        "Cannot resolve no-such-host: [Errno -2] Name or service not known; retrying"
    )
    recorder.driver.stop()


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address that takes no more connections and does not refuse them."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        for _ in range(4):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            waiting.append(client)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        for client in waiting:
            client.close()


def test_an_address_that_does_not_answer_is_given_up_after_the_connection_timeout(
    watch: Watch, black_hole: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Packets that vanish cost one connection timeout for each attempt, not the session's."""
    recorder = watch(black_hole, NAMESPACE, session_timeout=600, connection_timeout=1)
    recorder.wait_view(SUSPENDED)
    assert caplog.messages == [f"no connection to ZooKeeper {black_hole}{NAMESPACE}: no answer; retrying"]


def test_a_server_that_takes_connections_and_says_nothing_is_given_up_too(
    watch: Watch, zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """A frozen server accepts: the greeting that never comes is waited for no longer than the connection timeout."""
    zookeeper.pause()
    recorder = watch(zookeeper.address, NAMESPACE, session_timeout=600, connection_timeout=1)
    recorder.wait_view(SUSPENDED)
    assert [line.rpartition(": ")[2] for line in caplog.messages] == ["socket time-out during read; retrying"]
    zookeeper.resume()
    recorder.wait_complete()


# -- surprises ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nonsense",
    [
        struct.pack("!i", 1) + b"?",
        struct.pack("!iiqi", 16, 999_999, 1, 0),
        struct.pack("!iiqi", 16, -1, 1, 0) + b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["too short", "an answer to no question", "another protocol"],
)
def test_after_nonsense_from_the_server_it_begins_anew(
    watch: Watch, wire: Wire, namespace: str, flink: KazooClient, nonsense: bytes
) -> None:
    """Bytes that end kazoo's thread are a lost connection to us: it is opened again, and what changes then is seen."""
    recorder = watch(wire.address, namespace)
    recorder.wait_complete()
    wire.inject(nonsense)
    recorder.wait_complete(2)
    flink.create(LEADER, b"leader", makepath=True)
    recorder.wait_value(LEADER, b"leader")
    assert recorder.view() in ([CONNECTED, LOST, CONNECTED], [CONNECTED, SUSPENDED, CONNECTED])
    assert len(our_threads()) == 2


def test_an_error_in_our_own_thread_does_not_make_it_deaf(
    shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong behind an observation, the view is lost, said to be lost, and had again."""
    driver = ZooKeeperDriver(shared_zookeeper.address, namespace, CLUSTER, now)
    recorder = Recorder(driver)

    def broken_once(observation: ClusterObservation) -> None:
        recorder(observation)
        if len(recorder.all) == 3:
            raise KeyError("a mistake")

    with running(driver, broken_once):
        recorder.wait_complete()
        flink.create(LEADER, b"leader", makepath=True)
        recorder.wait_value(LEADER, b"leader")
        assert recorder.view() == [CONNECTED, LOST, CONNECTED]
    assert [line.exc_info is not None for line in caplog.records if line.levelno == logging.ERROR] == [True]


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.timing
def test_stop_ends_everything_and_may_be_repeated(
    watch: Watch, shared_zookeeper: ZooKeeper, namespace: str, flink: KazooClient
) -> None:
    """After stop no thread is left, the server has forgotten the session, and nothing is observed any more; a second stop is nothing."""
    before = our_threads()
    recorder = watch(shared_zookeeper.address, namespace)
    recorder.wait_complete()
    session = recorder.driver._session._client.client_id
    began = time.monotonic()
    recorder.driver.stop()
    assert time.monotonic() - began < 1.5
    assert our_threads() == before
    observation_count = len(recorder.all)
    flink.create(LEADER, b"leader", makepath=True)
    recorder.driver.stop()
    recorder.driver.start(recorder)
    assert len(recorder.all) == observation_count
    again = KazooClient(shared_zookeeper.address, client_id=session)
    again.start(10)
    assert again.client_id[0] != session[0]
    again.stop()
    again.close()


def test_stop_before_start(shared_zookeeper: ZooKeeper) -> None:
    """What never began ends at once, and the constructor starts no thread."""
    before = threading.active_count()
    driver = ZooKeeperDriver(shared_zookeeper.address, NAMESPACE, CLUSTER, now)
    assert threading.active_count() == before
    driver.stop()
    driver.stop()


@pytest.mark.timing
def test_stop_while_nobody_answers(watch: Watch, zookeeper: ZooKeeper) -> None:
    """Neither a frozen server nor one that is gone keeps stop from ending within 5 s, with no thread left."""
    before = our_threads()
    for hurt in (zookeeper.pause, zookeeper.kill):
        recorder = watch(zookeeper.address, NAMESPACE, session_timeout=60)
        recorder.wait_complete()
        hurt()
        began = time.monotonic()
        recorder.driver.stop()
        assert time.monotonic() - began < 5
        assert our_threads() == before
        zookeeper.resume()


@pytest.mark.timing
def test_stop_while_connecting(watch: Watch, black_hole: str) -> None:
    """An attempt to connect that nobody answers does not hold up stop; it is left to its time limit."""
    before = our_threads()
    recorder = watch(black_hole, NAMESPACE, session_timeout=60, connection_timeout=6)
    recorder.wait(lambda: len(our_threads()) == len(before) + 2)
    time.sleep(0.5)  # it connects
    began = time.monotonic()
    recorder.driver.stop()
    assert time.monotonic() - began < 5
    recorder.wait(lambda: our_threads() == before)
    assert recorder.all == []


@pytest.mark.timing
def test_stop_while_the_observer_blocks(shared_zookeeper: ZooKeeper, namespace: str) -> None:
    """An inbox that takes nothing any more does not hold up stop either, and gets nothing later."""
    release = threading.Event()
    observations = []

    def blocks(observation: ClusterObservation) -> None:
        observations.append(observation)
        release.wait(20)

    driver = ZooKeeperDriver(shared_zookeeper.address, namespace, CLUSTER, now)
    driver.start(blocks)
    wait_for("an observation", lambda: observations)
    began = time.monotonic()
    driver.stop()
    assert time.monotonic() - began < 5
    release.set()
    # white box: it was left to itself
    wait_for("the thread's end", lambda: not (driver._thread and driver._thread.is_alive()))
    assert [type(observation) for observation in observations] == [ViewObserved]
