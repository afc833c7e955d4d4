"""The ZooKeeper driver before an ensemble of three, whatever happens to it: the view is right, and no leader is reported gone who is there.

`--log-cli-level=INFO` shows how long it took to notice each time.
"""

import logging
import random
import socket
import time
from collections.abc import Iterator, MutableSequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol import connection as kazoo_connection

from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import NodeObserved, SnapshotCompleted, ViewObserved
from sidecar.core.records import TransitionRecord
from tests.integration.conftest import RelayTo, Watch
from tests.kit.cluster import ALL_FOUR, DISPATCHER, RESOURCE_MANAGER, REST_SERVER, THE_JOB, A, B, job_manager
from tests.kit.core_sidecar import POLICY
from tests.kit.driver_recorder import CONNECTED, LOST, SUSPENDED, Recorder, now, recorded
from tests.kit.private_network import PrivateNetwork
from tests.kit.relay import Wire
from tests.kit.waiting import LOADED_MACHINE_SECONDS
from tests.kit.zookeeper_ensemble import FOLLOWER, LEADER, READ_ONLY, Ensemble, elect, info, path, quorum, writer

SESSION_TIMEOUT = 6.0
SHORT_SESSION_TIMEOUT = 3.0
CONNECTION_TIMEOUT = 1.0

THE_OTHERS = (RESOURCE_MANAGER, REST_SERVER, THE_JOB)
"""All but the dispatcher, whose leader some of the tests change."""

_log = logging.getLogger("tests.ensemble")


@pytest.fixture(scope="module")
def shared_ensemble(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[Ensemble]:
    servers = Ensemble(tmp_path_factory.mktemp("ensemble"), flink_2_home, java)
    try:
        servers.start()
        yield servers
    finally:
        servers.kill()


@pytest.fixture
def ensemble(shared_ensemble: Ensemble, namespace: str) -> Ensemble:
    """Three members that serve, to which a test may do what it likes; A leads everything in a Flink cluster with one job."""
    shared_ensemble.heal()
    elect(shared_ensemble, namespace, A)
    return shared_ensemble


class Unshuffled(random.Random):
    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Leave it as it is."""


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo tries hosts in the order given, so that a test can say to whom we are connected."""
    monkeypatch.setattr(kazoo_connection, "random", Unshuffled())


@pytest.fixture
def wires(ensemble: Ensemble, relay_to: RelayTo) -> list[Wire]:
    """One to each member."""
    return [relay_to(member.address) for member in ensemble.members]


# -- what must be true -------------------------------------------------------------------------------------------------


def story(recorder: Recorder, component: ComponentId) -> list[str]:
    """What a sidecar records of `component`, in short: `DISCOVERED OBSCURED DISCOVERED:same`."""
    return [
        f"{record.kind}:same" if record.kind == "DISCOVERED" and record.same_leader else record.kind
        for record in recorded(recorder.all, now(), POLICY)
        if isinstance(record, TransitionRecord)
        and (record.component, record.job_id) == (component.component, component.job_id)
    ]


def blindness(recorder: Recorder) -> list[float]:
    """For how long nothing could be seen, each time, until everything had been read again."""
    stretches, since = [], None
    for observation in recorder.all:
        match observation:
            case ViewObserved(connection=connection) if since is None and connection is not CONNECTED:
                since = observation.at
            case SnapshotCompleted() if since is not None:
                stretches.append((observation.at.steady - since.steady) / SECOND)
                since = None
    return stretches


def is_beyond_trust(recorder: Recorder) -> bool:
    """Whether the view was suspended so long ago that a sidecar, whose clock ticks, has recorded leaders as out of sight."""
    since = next(view.at for view in recorder.all if isinstance(view, ViewObserved) and view.connection is SUSPENDED)
    return now().steady - since.steady > POLICY.trust_window + SECOND


def assert_stayed(recorder: Recorder, *components: ComponentId) -> None:
    """Of leaders that stayed nothing was reported but that they are there, and out of sight where we were blind beyond the trust window."""
    long = sum(seconds >= POLICY.trust_window / SECOND for seconds in blindness(recorder))
    for component in components:
        assert None not in recorder.values(path(component))
        first, *more = story(recorder, component)
        assert first == "DISCOVERED"
        assert more == ["OBSCURED", "DISCOVERED:same"] * (len(more) // 2)
        assert len(more) // 2 <= long


def assert_right_at_every_moment(recorder: Recorder) -> None:
    """CONNECTED, SUSPENDED, LOST follow each other as they can, nothing is reported without a view, and no path goes back in time."""
    assert set(pairwise(recorder.view())) <= {
        (CONNECTED, SUSPENDED),
        (SUSPENDED, LOST),
        (SUSPENDED, CONNECTED),
        (LOST, CONNECTED),
    }
    newest: dict[str, int] = {}
    connection = None
    for observation in recorder.all:
        match observation:
            case ViewObserved():
                connection = observation.connection
            case _:
                assert connection is CONNECTED, f"observed without a view: {observation}"
        if isinstance(observation, NodeObserved) and observation.position:
            assert observation.position.mzxid >= newest.get(observation.path, 0), f"went back in time: {observation}"
            newest[observation.path] = observation.position.mzxid


def wait_settled(recorder: Recorder) -> None:
    """Wait until there is a connection, and everything has been read on it."""

    def settled() -> bool:
        marks = (mark for mark in reversed(recorder.all) if isinstance(mark, ViewObserved | SnapshotCompleted))
        return isinstance(next(marks), SnapshotCompleted)

    recorder.wait(settled)


def assert_noticed(recorder: Recorder, since: Moment, limit: float) -> None:
    """SUSPENDED was reported two seconds after `limit` at the latest."""
    seconds = recorder.seconds_until(SUSPENDED, since)
    _log.info("noticed after %.2f s (limit %.0f + 2 s)", seconds, limit)
    assert seconds < limit + 2 + LOADED_MACHINE_SECONDS


# -- the ensemble changes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours", [LEADER, FOLLOWER])
@pytest.mark.usefixtures("in_order")
def test_the_ensembles_leader_is_killed(watch: Watch, ensemble: Ensemble, namespace: str, ours: str) -> None:
    """While another is elected the view is SUSPENDED, whether we were connected to the dead leader or not; then all is as it was."""
    leader, (follower, other) = ensemble.leader(), ensemble.followers()
    hosts = (leader, follower, other) if ours == LEADER else (follower, leader, other)
    recorder = watch(quorum(*hosts), namespace, connection_timeout=CONNECTION_TIMEOUT)
    recorder.wait_complete()
    killed = now()
    leader.kill()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_value(path(DISPATCHER), info(B, DISPATCHER))
    wait_settled(recorder)
    assert recorder.view()[:2] == [CONNECTED, SUSPENDED]
    assert_noticed(recorder, killed, 0)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)


@pytest.mark.usefixtures("in_order")
def test_the_quorum_is_lost_and_comes_back(watch: Watch, ensemble: Ensemble, namespace: str) -> None:
    """One member of three serves nobody: SUSPENDED, then LOST by our own clock, and nobody's leadership ends for that. Then all is read."""
    leader, (ours, other) = ensemble.leader(), ensemble.followers()
    recorder = watch(
        quorum(ours, leader, other),
        namespace,
        session_timeout=SHORT_SESSION_TIMEOUT,
        connection_timeout=CONNECTION_TIMEOUT,
    )
    recorder.wait_complete()
    killed = now()
    leader.kill()
    other.kill()
    recorder.wait_view(CONNECTED, SUSPENDED, LOST)
    suspended, lost = (recorder.seconds_until(state, killed) for state in (SUSPENDED, LOST))
    assert SHORT_SESSION_TIMEOUT <= lost - suspended < SHORT_SESSION_TIMEOUT + LOADED_MACHINE_SECONDS
    assert (ours.running, ours.mode()) == (True, "")
    leader.launch()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_value(path(DISPATCHER), info(B, DISPATCHER))
    wait_settled(recorder)
    assert recorder.view()[:4] == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert_noticed(recorder, killed, SHORT_SESSION_TIMEOUT / 3)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)
    for component in THE_OTHERS:
        assert story(recorder, component)[:3] == ["DISCOVERED", "OBSCURED", "DISCOVERED:same"]


def test_a_rolling_restart(watch: Watch, ensemble: Ensemble, namespace: str) -> None:
    """Each member is restarted in turn, and a job comes to be in each gap: every one of them is seen, and no leader is reported gone."""
    recorder = watch(ensemble.reachable, namespace, connection_timeout=CONNECTION_TIMEOUT)
    recorder.wait_complete()
    standing = {path(component): info(A, component) for component in ALL_FOUR}
    for number, member in enumerate(ensemble.members):
        job = ComponentId(THE_JOB.component, f"{number:032x}")
        member.stop()
        elect(ensemble, namespace, A, job)
        standing[path(job)] = info(A, job)
        member.start()
    recorder.wait(lambda: recorder.standing() == standing)
    wait_settled(recorder)
    assert SUSPENDED in recorder.view()  # whom it was connected to was among them
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *ALL_FOUR)


def test_a_read_only_minority_is_no_view(watch: Watch, ensemble: Ensemble, namespace: str) -> None:
    """A member cut off from the quorum knows only what was: it may offer that to whoever wants it, we wait for the quorum."""
    stale, *others = ensemble.members
    recorder = watch(
        quorum(*ensemble.members),
        namespace,
        session_timeout=SHORT_SESSION_TIMEOUT,
        connection_timeout=CONNECTION_TIMEOUT,
    )
    recorder.wait_complete()
    stale.kill()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_value(path(DISPATCHER), info(B, DISPATCHER))
    for member in others:
        member.kill()
    alone = now()
    stale.serves_alone = True
    stale.start()
    assert stale.mode() == READ_ONLY
    assert stale.read_as_it_is(namespace + path(DISPATCHER)) == info(A, DISPATCHER)
    recorder.wait(lambda: recorder.view()[-1] is LOST)
    time.sleep(3)  # a new session's attempts at it
    since = [observation for observation in recorder.all if observation.at.steady > alone.steady]
    assert [view.connection for view in since if isinstance(view, ViewObserved)][-1:] == [LOST]
    assert [late for late in since if not isinstance(late, ViewObserved) or late.connection is CONNECTED] == []
    ensemble.heal()
    elect(ensemble, namespace, B, REST_SERVER)
    recorder.wait_value(path(REST_SERVER), info(B, REST_SERVER))
    wait_settled(recorder)
    assert recorder.values(path(DISPATCHER))[-1] == info(B, DISPATCHER)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, RESOURCE_MANAGER, THE_JOB)


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ours", [LEADER, FOLLOWER])
@pytest.mark.usefixtures("in_order")
def test_our_server_is_frozen(watch: Watch, ensemble: Ensemble, namespace: str, ours: str) -> None:
    """A member that is stopped keeps its connections open: that it is silent is noticed, and another one asked, which has a quorum."""
    leader, (follower, other) = ensemble.leader(), ensemble.followers()
    hosts = (leader, follower, other) if ours == LEADER else (follower, leader, other)
    recorder = watch(quorum(*hosts), namespace, session_timeout=SESSION_TIMEOUT, connection_timeout=CONNECTION_TIMEOUT)
    recorder.wait_complete()
    frozen = now()
    hosts[0].pause()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_value(path(DISPATCHER), info(B, DISPATCHER))
    wait_settled(recorder)
    assert hosts[0].paused
    assert recorder.view()[:2] == [CONNECTED, SUSPENDED]
    assert_noticed(recorder, frozen, SESSION_TIMEOUT / 3)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)


@pytest.mark.usefixtures("in_order")
def test_our_connection_is_half_open(watch: Watch, ensemble: Ensemble, wires: list[Wire], namespace: str) -> None:
    """Nothing passes on the wire to our server, which lives and keeps our session: it is taken along to another one."""
    recorder = watch(quorum(*wires), namespace, session_timeout=SESSION_TIMEOUT, connection_timeout=CONNECTION_TIMEOUT)
    recorder.wait_complete()
    silent = now()
    wires[0].fall_silent()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_value(path(DISPATCHER), info(B, DISPATCHER))
    wait_settled(recorder)
    assert recorder.view() == [CONNECTED, SUSPENDED, CONNECTED]
    assert_noticed(recorder, silent, SESSION_TIMEOUT / 3)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    try:
        private = PrivateNetwork()
    except (PermissionError, FileNotFoundError) as error:  # a failure in CI: see tests/conftest.py
        pytest.skip(
            f"packets are dropped in a network namespace, which needs root and the ip and tc of iproute2: {error}"
        )
    yield private
    private.close()


@pytest.fixture
def wires_into(ensemble: Ensemble, network: PrivateNetwork) -> Iterator[list[Wire]]:
    """From the private network, one to each member."""
    listeners = [network.run(partial(socket.create_server, ("127.0.0.1", 0))) for _ in ensemble.members]
    relays = [Wire(member.address, listener) for member, listener in zip(ensemble.members, listeners, strict=True)]
    yield relays
    for relay in relays:
        relay.close()


def test_our_packets_are_dropped(
    ensemble: Ensemble, network: PrivateNetwork, wires_into: list[Wire], watch: Watch, namespace: str
) -> None:
    """The network swallows every packet, to any member: SUSPENDED within the limit, and CONNECTED when packets arrive again."""
    recorder = network.run(
        partial(
            watch,
            quorum(*wires_into),
            namespace,
            session_timeout=SESSION_TIMEOUT,
            connection_timeout=CONNECTION_TIMEOUT,
        )
    )
    recorder.wait_complete()
    dropped = now()
    network.drop_packets()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_view(CONNECTED, SUSPENDED)
    network.pass_packets()
    recorder.wait_complete(2)
    assert recorder.values(path(DISPATCHER)) == [info(A, DISPATCHER), info(B, DISPATCHER)]
    assert_noticed(recorder, dropped, SESSION_TIMEOUT / 3)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)


def test_the_session_expires_at_the_server(watch: Watch, ensemble: Ensemble, wires: list[Wire], namespace: str) -> None:
    """Silent for longer than the session lasts, we are LOST; in the next one all is read, and who changed is kept apart from who stayed."""
    before = ensemble.sessions()
    recorder = watch(
        wires[0].address, namespace, session_timeout=SHORT_SESSION_TIMEOUT, connection_timeout=CONNECTION_TIMEOUT
    )
    recorder.wait_complete()
    ours = ensemble.sessions() - before
    assert len(ours) == 1
    silent = now()
    wires[0].fall_silent()
    elect(ensemble, namespace, B, DISPATCHER)
    recorder.wait_view(CONNECTED, SUSPENDED, LOST)
    recorder.wait(lambda: not ours & ensemble.sessions())
    recorder.wait(lambda: is_beyond_trust(recorder))  # the session may be over earlier: both last 3 s
    wires[0].speak_again()
    recorder.wait_complete(2)
    assert recorder.view() == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert not ours & ensemble.sessions()
    assert recorder.standing() == {
        **{path(component): info(A, component) for component in THE_OTHERS},
        path(DISPATCHER): info(B, DISPATCHER),
    }
    assert_noticed(recorder, silent, SHORT_SESSION_TIMEOUT / 3)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, *THE_OTHERS)
    assert story(recorder, THE_JOB) == ["DISCOVERED", "OBSCURED", "DISCOVERED:same"]
    assert story(recorder, DISPATCHER) == ["DISCOVERED", "OBSCURED", "DISCOVERED"]


# -- a server that lags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [30, 2], ids=["same session", "next session"])
@pytest.mark.usefixtures("in_order")
def test_a_server_that_lags_behind_is_not_believed(
    watch: Watch, ensemble: Ensemble, wires: list[Wire], namespace: str, timeout: float
) -> None:
    """Moved to a server that serves and knows nothing of the last write, nothing is reported that is older than what we saw."""
    lagging = ensemble.leave_first_behind()
    recorder = watch(
        quorum(wires[1], lagging), namespace, session_timeout=timeout, connection_timeout=CONNECTION_TIMEOUT
    )
    recorder.wait_complete()
    with writer(quorum(*ensemble.members[1:])) as client:
        for term in (1, 2):
            client.retry(client.set, namespace + path(REST_SERVER), info(job_manager("jm-a", term), REST_SERVER))
    newest = info(job_manager("jm-a", 2), REST_SERVER)
    recorder.wait_value(path(REST_SERVER), newest)
    assert lagging.read_as_it_is(namespace + path(REST_SERVER)) == info(A, REST_SERVER)
    wires[1].close()
    recorder.wait_complete(2)
    recorder.wait_value(path(REST_SERVER), newest)
    wait_settled(recorder)
    assert_right_at_every_moment(recorder)
    assert_stayed(recorder, RESOURCE_MANAGER, DISPATCHER, THE_JOB)
