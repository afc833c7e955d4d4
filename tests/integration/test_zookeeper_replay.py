"""What real Flink clusters did, done again before the driver and the core: each value is seen or accounted for, and none is made up.

Every recording is played at its own pace, at ten times that, and as fast as it goes, at the first two with idle stretches cut short:
`replay.TRUE_PACE` says how to have them whole.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import Held, LeaderInformation, decode_connection_info
from sidecar.core.moment import SECOND
from sidecar.core.observations import NodeObserved, SnapshotCompleted, Started
from sidecar.core.records import TransitionRecord
from sidecar.core.state import Append, State
from sidecar.drivers.zookeeper import ZooKeeperDriver
from tests.integration.replay import PACES, Operation, Replay, operations
from tests.integration.test_zookeeper_driver import is_subsequence
from tests.kit import zookeeper_recordings as recordings
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY
from tests.kit.core_witness import Witness
from tests.kit.driver_recorder import CONNECTED, Recorder, now, running
from tests.kit.zookeeper_log import Entry, read_log
from tests.lab.zookeeper import ZooKeeper

_PATIENCE_SECONDS = 60.0
"""With all recordings played at once on a busy machine."""
_WANTED = [(version, pace) for version in recordings.histories() for pace in PACES]


class Played(NamedTuple):
    """A recording that was played, what the driver reported of it, and what its server kept of all that was done to it."""

    version: str
    recorder: Recorder
    sessions: dict[str, str]
    log: list[Entry]
    """All transactions but those of the other recordings' players and drivers."""
    done: list[Operation]
    """What was done to the nodes, by the server's own account."""

    def at(self, path: str) -> list[Operation]:
        return [operation for operation in self.done if operation.path == path]

    def leaders(self) -> set[str]:
        return {operation.path for operation in self.done if znode_paths.component_of(operation.path)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server of this module keeps its transactions."""
    return tmp_path_factory.mktemp("replayed")


@pytest.fixture(scope="module")
def server(data: Path, flink_2_home: Path, java: Path) -> Iterator[ZooKeeper]:
    """A server to which nothing is done but what is done here."""
    zookeeper = ZooKeeper(data, flink_2_home, java)
    zookeeper.start()
    yield zookeeper
    zookeeper.kill()


@pytest.fixture(scope="module")
def plays(server: ZooKeeper, data: Path) -> dict[tuple[str, str], Played]:
    """Every recording at every pace, all at once, each in a namespace of its own with a driver of its own."""
    with ThreadPoolExecutor(len(_WANTED)) as together:
        playing = [together.submit(_play, server, data, number, *which) for number, which in enumerate(_WANTED)]
        unlogged = [future.result() for future in playing]
    log = read_log(data / "data")
    listeners = [_listeners(log, number) for number in range(len(_WANTED))]
    theirs = [{*played.sessions.values(), *listening} for played, listening in zip(unlogged, listeners, strict=True)]
    known = set[str]().union(*theirs)
    # A session that belongs to nobody stays in the log of each recording.
    logs = [[entry for entry in log if entry["session"] not in known - mine] for mine in theirs]
    return {which: played._replace(log=log) for which, played, log in zip(_WANTED, unlogged, logs, strict=True)}


def _play(server: ZooKeeper, data: Path, number: int, version: str, pace: str) -> Played:
    """One recording at one pace, with the driver watching from before its beginning until nothing more is reported."""
    namespace = f"/{version}/{pace.replace(' ', '-')}"
    driver = ZooKeeperDriver(
        *(server.address, namespace + recordings.NAMESPACE, CLUSTER, now),
        session_timeout=_listener_seconds(number),
        connection_timeout=5,
    )
    recorder = Recorder(driver)
    with running(driver, recorder):
        recorder.wait_complete(timeout=_PATIENCE_SECONDS)
        with Replay(server.address, namespace, version) as replay:
            replay.play(PACES[pace])
            done = list(operations(entry for entry in read_log(data / "data") if _is_below(namespace, entry)))
            _wait_until_settled(recorder, done)
            driver.stop()
    return Played(version, recorder, replay.sessions, [], done)


def _listener_seconds(number: int) -> float:
    """The session timeout of the n-th driver. No two are equal, so that the server's log shows which session is whose."""
    return 20 + number / 8


def _listeners(log: list[Entry], number: int) -> set[str]:
    """The sessions of the n-th driver."""
    lasting = _listener_seconds(number) * 1000
    return {entry["session"] for entry in log if entry["op"] == "createSession" and entry["timeout"] == lasting}


def _is_below(namespace: str, entry: Entry) -> bool:
    """Whether a transaction did something in a namespace."""
    paths = [*entry.get("deleted", ()), *(op.get("path", "") for op in entry.get("ops", [entry]))]
    return any(path.startswith(f"{namespace}/") for path in paths)


@pytest.fixture(scope="module", params=_WANTED, ids="-".join)
def played(request: pytest.FixtureRequest, plays: dict[tuple[str, str], Played]) -> Played:
    """One recording at one pace."""
    return plays[request.param]


def _wait_until_settled(recorder: Recorder, done: list[Operation]) -> None:
    """Wait until all that was done to leaders has been reported or counted, and lists are known. Whether they ever are, the tests say."""
    paths = {operation.path for operation in done if znode_paths.component_of(operation.path)}
    expected = {path: _end([operation for operation in done if operation.path == path]) for path in paths}
    lists = _lists(done)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and (
        {path: _last_reported(recorder, path) for path in paths} != expected
        or any(recorder.names(path)[-1:] != [names] for path, names in lists.items())
    ):
        time.sleep(0.02)


def _lists(done: list[Operation]) -> dict[str, tuple[str, ...]]:
    """Who contends for each component, and which jobs are stored, in the end."""
    values = {operation.path: operation.data for operation in done}
    standing = {path for path, value in values.items() if value is not None}
    return {
        path: tuple(sorted(p.removeprefix(path + "/") for p in standing if p.rpartition("/")[0] == path))
        for path in {path for path in standing if znode_paths.is_latch(path)} | {*znode_paths.JOB_STORES}
    }


def _end(operations: list[Operation]) -> tuple[int | None, int]:
    """The transaction that wrote what stands in the end, None for nothing, and how many changes there were until then."""
    last = operations[-1]
    return None if last.data is None else last.zxid, len(operations)


def _last_reported(recorder: Recorder, path: str) -> tuple[int | None, int]:
    nodes = recorder.nodes(path)
    last = nodes[-1].position if nodes else None
    return last.mzxid if last else None, sum(node.writes or 0 for node in nodes)


def test_what_was_recorded_is_what_is_done(played: Played) -> None:
    """The server's own log has the recording's operations, by as many sessions, in its order: what else is shown here rests on that."""
    recorded = operations(recordings.transactions(played.version))
    assert [(op.session, op.kind, op.path, op.data) for op in played.done] == [
        (played.sessions[op.session], op.kind, op.path, op.data) for op in recorded
    ]


def test_the_connection_held(played: Played) -> None:
    """Over one connection, from before the first operation to the last: nothing is excused by blindness."""
    assert (played.recorder.view(), played.recorder.snapshots()) == ([CONNECTED], 1)


def test_no_value_is_made_up(played: Played) -> None:
    """What is reported of a leader's path has stood there, in that order. That there is nothing may be reported twice."""
    for path in played.leaders():
        values = [value for value, _ in groupby(played.recorder.values(path))]
        stood = [value for value, _ in groupby([None, *(operation.data for operation in played.at(path))])]
        assert is_subsequence(values, stood), path


def test_every_value_has_its_place(played: Played) -> None:
    """With a value comes the position of the transaction that wrote it, which wrote those bytes; the older is reported before the newer."""
    for path in played.leaders():
        stood = {operation.zxid: operation.data for operation in played.at(path)}
        nodes = [(node.position.mzxid, node.data) for node in played.recorder.nodes(path) if node.position]
        assert nodes == sorted((zxid, stood[zxid]) for zxid, _ in nodes), path


def test_the_last_value_is_the_last_reported(played: Played) -> None:
    """In the end, what stands is known: each leader, each contender and each stored job, and nothing besides."""
    standing = {operation.path: operation.data for operation in played.done}
    standing = {path: value for path, value in standing.items() if value is not None}
    assert played.recorder.standing() == {p: value for p, value in standing.items() if znode_paths.component_of(p)}
    expected = _lists(played.done)
    assert {path: played.recorder.names(path)[-1] for path in expected} == expected


def test_every_write_is_seen_or_accounted_for(played: Played) -> None:
    """The n-th change is the n-th change, deletions too, however many before it were too fast to be read; in the end, none is missing."""
    observations = played.recorder.all
    first_sight = next(at for at, observation in enumerate(observations) if isinstance(observation, SnapshotCompleted))
    for path in played.leaders():
        changes = [(operation.zxid, operation.kind) for operation in played.at(path)]
        counted = 0
        nodes = (node for node in observations[first_sight:] if isinstance(node, NodeObserved) and node.path == path)
        for node in nodes:
            assert node.writes is not None, node
            counted += node.writes
            zxid, kind = changes[counted - 1]
            if node.position:
                assert (node, zxid) == (node, node.position.mzxid)
            else:
                assert (node, kind) == (node, "delete")
        assert (path, counted) == (path, len(changes))


# -- the core behind it ------------------------------------------------------------------------------------------------


class _Lenient(Witness):
    """What is watched here does not begin where the scenes of other tests do."""

    def _check_coverage(self, after: object, stretches: object) -> None:
        """Nothing to check."""


def core(played: Played) -> tuple[State, list[TransitionRecord]]:
    """What a sidecar knows after all that the driver reported, and which transitions it recorded."""
    witness, transitions = _Lenient(), list[TransitionRecord]()
    first = played.recorder.all[0].at
    before = replace(first, steady=first.steady - SECOND, wall=first.wall - SECOND)
    state, _ = witness.step(POLICY, State(), Started(before))
    for observation in played.recorder.all:
        state, effects = witness.step(POLICY, state, observation)
        records = [effect.record for effect in effects if isinstance(effect, Append)]
        transitions += [record for record in records if isinstance(record, TransitionRecord)]
    return state, transitions


def test_the_core_ends_with_who_leads(played: Played) -> None:
    """In the end, each leadership is held by whom the recording's last write names, or by nobody."""
    state, _ = core(played)
    leaderships = {
        str(component): now.leadership.leader
        for component, now in state.clusters[CLUSTER].components.items()
        if isinstance(now.leadership, Held)
    }
    last = {operation.path: operation.data for operation in played.done}
    decoded = {
        str(znode_paths.component_of(path)): decode_connection_info(data)
        for path, data in last.items()
        if data and znode_paths.component_of(path)
    }
    assert leaderships == {
        component: leader for component, leader in decoded.items() if isinstance(leader, LeaderInformation)
    }


def test_the_core_accounts_for_what_it_did_not_see(played: Played) -> None:
    """Between one leader that was recorded and the next, `unobserved` is how many changes the server's log has that were not reported."""
    _, transitions = core(played)
    for path in played.leaders():
        component = znode_paths.component_of(path)
        assert component
        reported_zxids = _reported_changes(played, path)
        unseen = [operation.zxid for operation in played.at(path) if operation.zxid not in reported_zxids]
        mine = [t for t in transitions if (t.component, t.job_id) == (component.component.value, component.job_id)]
        assert (path, bool(mine)) == (path, bool(reported_zxids))
        before, pending = 0, 0
        for transition in mine:
            if transition.kind == "DISCOVERED" and transition.after_session_id is None:
                continue
            assert transition.unobserved is not None, transition
            assert transition.unobserved == transition.unobserved_at_least
            pending += transition.unobserved
            if transition.after_session_id and transition.position and transition.position.mzxid:
                until = transition.position.mzxid
                assert (transition, pending) == (transition, sum(before < zxid < until for zxid in unseen))
                before, pending = until, 0


def _reported_changes(played: Played, path: str) -> set[int]:
    """The transactions behind what was reported of `path`."""
    changes = [operation.zxid for operation in played.at(path)]
    zxids, counted = set(), 0
    for node in played.recorder.nodes(path):
        counted += node.writes or 0
        if counted:
            zxids.add(changes[counted - 1])
    return zxids


def test_a_split_leadership_is_known_as_one_and_nothing_else_is(played: Played) -> None:
    """Of all recordings, one is of two leaders who deleted each other's nodes: there, and nowhere else, leadership is split."""
    _, transitions = core(played)
    assert any(transition.split for transition in transitions) == (played.version == "2.1.1-unfinished")


# -- nothing is written ------------------------------------------------------------------------------------------------


def test_the_listener_writes_nothing(played: Played) -> None:
    """Of all transactions, those that the players did not make are the beginning and the end of the listener's session."""
    players = set(played.sessions.values())
    others = [(entry["session"], entry["op"]) for entry in played.log if entry["session"] not in players]
    ((listener, _), *_) = others
    assert others == [(listener, "createSession"), (listener, "closeSession")]
