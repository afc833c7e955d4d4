"""The handover is read before a cluster is watched, written when something changed, and a last time at the end.

The store here is memory with faults on demand; the real ones have their own tests (tests/integration/test_ledgers.py), and a sidecar with
an empty folder takes over in tests/e2e/test_handover.py.
"""

import gzip
import logging
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core import handover
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ConnectionState,
    HandoverRead,
    PodNamed,
    SnapshotCompleted,
    Started,
    ViewObserved,
)
from sidecar.core.pods import Pod
from sidecar.core.policy.policy import Policy
from sidecar.core.state_and_effects import State
from sidecar.ports import LedgerError, LedgerRefusedError, StoredDocument
from sidecar.runtime.clock import Clock
from sidecar.sinks import handover as sink
from sidecar.sinks.handover import STOP_SECONDS, Handovers
from tests.kit.memory_ledger import Memory, Shared
from tests.kit.observed_failovers import CLUSTER, PATHS, POLICY, held, play
from tests.kit.waiting import LOADED_MACHINE_SECONDS, wait_for

CLOCK = Clock()
NEXT = replace(POLICY, observer="observer-2")


def led_by(term: int) -> State:
    """A cluster with the leader of this term, observed now."""
    now = CLOCK()
    nodes = [replace(held(0, path, term), at=now) for path in PATHS]
    connected = ViewObserved(now, CLUSTER, ConnectionState.CONNECTED)
    return play([Started(now), connected, *nodes, SnapshotCompleted(now, CLUSTER)])[0]


def left_there(store: Memory) -> handover.Handover | None:
    """What the next sidecar would find."""
    return handover.read(store.shared.document.content, CLUSTER, CLOCK())


class World:
    """A sidecar's side of it: its state, and what it observes and watches."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.observed: list[HandoverRead | PodNamed] = []
        self.watched: list[str] = []

    def learns(self) -> None:
        """What it observed is processed."""
        self.state = play([*self.observed], self.state)[0]


@contextmanager
def running(store: Memory, world: World, *, new: bool, observer: str = POLICY.observer) -> Iterator[Handovers]:
    """The handovers of a sidecar."""
    policy = replace(POLICY, observer=observer)
    handovers = Handovers({CLUSTER: store}, policy, lambda: world.state, world.observed.append, CLOCK)
    handovers.start({CLUSTER} if new else set(), world.watched.append)
    try:
        yield handovers
    finally:
        handovers.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses short enough for a test."""
    for name, seconds in (
        ("PAUSE_SECONDS", 0.05),
        ("REFILL_SECONDS", 0.2),
        ("_POLL_SECONDS", 0.02),
        ("READ_SECONDS", 2.0),
    ):
        monkeypatch.setattr(sink, name, seconds)


def until(condition: Callable[[], object]) -> None:
    wait_for("the handover", condition)


def test_what_is_known_is_written_and_taken_over() -> None:
    """By a sidecar whose folder is empty: before it watches."""
    store = Memory(Shared())
    with running(store, World(led_by(1)), new=True):
        until(lambda: left_there(store))
    found = left_there(store)
    assert found
    assert (found.observer, found.ended, found.leaders) == (POLICY.observer, True, 3)
    world = World(State())
    with running(store, world, new=True, observer=NEXT.observer):
        until(lambda: world.watched)
        [read] = world.observed
    state = play([Started(CLOCK()), read], policy=NEXT)[0]
    assert state.clusters[CLUSTER].handed_over_by == POLICY.observer


def test_a_cluster_that_the_journal_knows_is_watched_at_once() -> None:
    """Nothing is read: its own journal says more."""
    store = Memory(Shared())
    store.fault = LedgerError("out of reach")
    world = World(led_by(1))
    with running(store, world, new=False):
        assert world.watched == [CLUSTER]
    assert world.observed == []


def test_a_cluster_waits_for_no_store_of_another() -> None:
    """Twelve stores do not answer: the others are read, watched, written, and written a last time at the end."""
    released, dark = Event(), [f"dark-{number}" for number in range(12)]
    stores = {name: Memory(Shared()) for name in [*dark, CLUSTER]}
    for name in dark:
        stores[name].hangs = released
    policy = replace(POLICY, stores=dict.fromkeys(stores, POLICY.stores[CLUSTER]))
    world = World(led_by(1))
    handovers = Handovers(stores, policy, lambda: world.state, world.observed.append, CLOCK)
    handovers.start(stores, world.watched.append)
    try:
        until(lambda: world.watched == [CLUSTER])
        until(lambda: left_there(stores[CLUSTER]))
        began = time.monotonic()
        handovers.stop()
        assert time.monotonic() - began < STOP_SECONDS / 2
        found = left_there(stores[CLUSTER])
        assert found
        assert found.ended
    finally:
        released.set()


def test_a_change_is_written_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that stays causes no write until it is to be confirmed."""
    store, world = Memory(Shared()), World(led_by(1))
    with running(store, world, new=False):
        until(lambda: left_there(store))
        version = store.shared.document.version
        world.state = led_by(1)
        time.sleep(0.5)
        assert store.shared.document.version == version
        world.state = led_by(2)
        until(lambda: store.shared.document.version != version)
        monkeypatch.setattr(sink, "CONFIRM_SECONDS", 0.1)
        world.state = led_by(3)
        until(lambda: int(store.shared.document.version or 0) >= 3)
        until(lambda: int(store.shared.document.version or 0) > 4)


def is_written(store: Memory, state: State) -> bool:
    """Whether the next sidecar would find this state."""
    found = left_there(store)
    return found is not None and found.gist() == handover.cluster_handover(POLICY, state, CLUSTER, CLOCK()).gist()


def test_changes_in_quick_succession_are_written_and_then_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaders of an election appear one after the other. What still waits is written at the end, which waits for nothing."""
    monkeypatch.setattr(sink, "REFILL_SECONDS", 3600.0)
    store, world = Memory(Shared()), World(State())
    with running(store, world, new=False) as handovers:
        for term in (1, 2, 3):
            world.state = led_by(term)
            until(lambda: is_written(store, world.state))
        world.state = led_by(4)
        time.sleep(0.5)
        assert store.shared.document.version == sink.BURST == 3
        began = time.monotonic()
        handovers.stop()
        assert time.monotonic() - began < LOADED_MACHINE_SECONDS
    assert is_written(store, world.state)
    assert store.shared.document.version == 4


def test_a_storm_is_written_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest state wins, and few states are written."""
    monkeypatch.setattr(sink, "REFILL_SECONDS", 0.5)
    store, world = Memory(Shared()), World(State())
    began = time.monotonic()
    with running(store, world, new=False):
        for term in range(1, 41):
            world.state = led_by(term)
            time.sleep(0.05)
        until(lambda: is_written(store, world.state))
        allowed = sink.BURST + (time.monotonic() - began) / sink.REFILL_SECONDS
        assert sink.BURST < int(store.shared.document.version or 0) <= allowed


def test_a_change_that_could_not_be_written_is_written_later() -> None:
    """Without another change in between. Meanwhile it is known not to be written."""
    store, world = Memory(Shared()), World(led_by(1))
    with running(store, world, new=False) as handovers:
        until(lambda: handovers.up == {CLUSTER: True})
        store.fault = LedgerError("no answer in 5 s")
        world.state = led_by(2)
        until(lambda: handovers.up == {CLUSTER: False})
        store.fault = None
        until(lambda: store.shared.document.version == 2 and handovers.up == {CLUSTER: True})


def test_two_sidecars_that_see_the_same_write_once() -> None:
    """The second one finds it written."""
    shared = Shared()
    one, two = Memory(shared), Memory(shared)
    with running(one, World(led_by(1)), new=False):
        until(lambda: left_there(one))
        with running(two, World(led_by(1)), new=False, observer=NEXT.observer):
            until(lambda: two.reads)
            time.sleep(0.3)
            found = left_there(two)
            assert found
            assert (found.observer, shared.document.version) == (POLICY.observer, 1)


def test_two_sidecars_learn_the_names_of_each_others_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each knows its own. The second one writes both down; the first one finds them when it confirms its own."""
    monkeypatch.setattr(sink, "CONFIRM_SECONDS", 0.3)
    shared, one, two = Shared(), World(led_by(1)), World(led_by(1))
    for number, world in ((1, one), (2, two)):
        pod = PodNamed(CLOCK(), CLUSTER, f"10.1.2.{number}", Pod(f"jm-{number}", None, CLOCK().wall))
        world.state = play([pod], world.state)[0]
    with running(Memory(shared), one, new=False):
        until(lambda: left_there(Memory(shared)))
        with running(Memory(shared), two, new=False, observer=NEXT.observer):
            until(lambda: two.observed)
            two.learns()
            until(lambda: one.observed)
            one.learns()
            until(lambda: (found := left_there(Memory(shared))) and len(found.cluster.pods) == 2)
    both = {"10.1.2.1": "jm-1", "10.1.2.2": "jm-2"}
    for world in (one, two):
        assert {host: pod.name for host, pod in world.state.clusters[CLUSTER].pods.items()} == both


def test_who_cannot_see_writes_nothing() -> None:
    """Not even at the end: what it knew before is there already."""
    store = Memory(Shared())
    blind = play([ViewObserved(CLOCK(), CLUSTER, ConnectionState.LOST)], led_by(1))[0]
    with running(store, World(blind), new=False) as handovers:
        time.sleep(0.2)
        assert handovers.up == {}
    assert store.shared.document == StoredDocument()


def test_who_loses_a_race_writes_on_top_of_it() -> None:
    """What it knows is newer than what it found."""
    store = Memory(Shared())
    store.races = 1
    with running(store, World(led_by(1)), new=False):
        until(lambda: left_there(store))


@pytest.mark.parametrize("fault", [LedgerError("no answer in 5 s"), LedgerRefusedError("no permission")])
def test_a_store_that_gives_nothing_does_not_keep_a_cluster_from_being_watched(
    fault: LedgerError, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what is missing, once; before that, what is waited for, unless waiting is in vain."""
    store = Memory(Shared())
    store.fault = fault
    world = World(State())
    with caplog.at_level(logging.WARNING), running(store, world, new=True):
        until(lambda: world.watched)
    assert world.observed == []
    *waiting, line = caplog.messages
    assert line.endswith(f"starts without what this one knows: {fault}")
    refused = isinstance(fault, LedgerRefusedError)
    assert waiting == ([] if refused else [f"cluster {CLUSTER}: waiting for the store, to read the handover: {fault}"])


def test_a_sidecar_that_is_still_running_is_followed() -> None:
    """Until it has ended: what it writes is observed before it is replaced."""
    store = Memory(Shared())
    store.shared.document = StoredDocument(
        handover.written(CLUSTER, handover.cluster_handover(POLICY, led_by(1), CLUSTER, CLOCK())), 1
    )
    world = World(State())
    with running(store, world, new=True, observer=NEXT.observer):
        until(lambda: world.watched)
        world.state = led_by(1)
        later = handover.cluster_handover(POLICY, led_by(2), CLUSTER, CLOCK(), ended=True)
        store.shared.document = StoredDocument(handover.written(CLUSTER, later), 7)
        until(lambda: len(world.observed) > 1)
        world.state = led_by(3)
        until(lambda: (found := left_there(store)) and found.observer == NEXT.observer)
    observed = world.observed[-1]
    assert isinstance(observed, HandoverRead)
    read = handover.read(observed.content, CLUSTER, CLOCK())
    assert read
    assert (read.alive, read.ended) == (later.alive, True)


def test_a_store_that_is_back_in_time_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """Before the cluster is watched. The log names the store's problem at once."""
    store = Memory(Shared())
    store.shared.document = StoredDocument(
        handover.written(CLUSTER, handover.cluster_handover(POLICY, led_by(1), CLUSTER, CLOCK())), 1
    )
    store.fault = LedgerError("no answer in 5 s")
    world = World(State())
    with running(store, world, new=True):
        until(lambda: "no answer in 5 s" in caplog.text)
        assert world.watched == []
        store.fault = None
        until(lambda: world.watched)
        assert world.observed


def test_a_document_of_somebody_else_is_named_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    """The cluster is watched without, and the document is replaced when there is something to hand over."""
    store = Memory(Shared())
    store.shared.document = StoredDocument(b"hello", 1)
    world = World(State())
    with caplog.at_level(logging.WARNING), running(store, world, new=True):
        until(lambda: world.watched)
        world.state = led_by(1)
        until(lambda: store.shared.document.version == 2)
    assert world.observed == []
    assert caplog.messages == [
        f"cluster {CLUSTER}: the handover in the store is not used: it is no handover of a sidecar: delete it"
    ]


def test_a_document_of_a_newer_version_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """It is not used, and not replaced: who wrote it may still run. The log says what to do, and the metric that there is no handover."""
    store = Memory(Shared())
    newer = StoredDocument(b64encode(gzip.compress(b'{"format":2,"leaders":"another shape"}')), 1)
    store.shared.document = newer
    world = World(State())
    with caplog.at_level(logging.WARNING), running(store, world, new=True) as handovers:
        until(lambda: world.watched)
        world.state = led_by(1)
        until(lambda: handovers.up == {CLUSTER: False})
    assert store.shared.document is newer
    assert world.observed == []
    why = "it was written by a newer version (format 2, this version reads up to 1): update this sidecar, or delete it"
    assert caplog.messages[0] == f"cluster {CLUSTER}: the handover in the store is not used: {why}"


def test_an_error_in_one_handover_is_logged_and_the_others_are_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread goes on."""
    cluster_handover = handover.cluster_handover

    def raises(policy: Policy, state: State, cluster_id: str, *rest: Any, **more: Any) -> handover.Handover:
        if cluster_id == "other":
            raise ZeroDivisionError("a mistake of ours")
        return cluster_handover(policy, state, cluster_id, *rest, **more)

    monkeypatch.setattr(handover, "cluster_handover", raises)
    state = led_by(1)
    state = replace(state, clusters={"other": state.clusters[CLUSTER], **state.clusters})
    stores = {"other": Memory(Shared()), CLUSTER: Memory(Shared())}
    with caplog.at_level(logging.WARNING):
        handovers = Handovers(stores, POLICY, lambda: state, lambda _: None, CLOCK)
        handovers.start((), lambda _: None)
        until(lambda: left_there(stores[CLUSTER]))
        handovers.stop()
    assert handovers.up == {"other": False, CLUSTER: True}
    assert caplog.messages == [
        "cluster other: no handover: a sidecar that replaces this one starts without what this one knows: a mistake of ours"
    ]


def test_a_store_that_hangs_at_the_end_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """A sidecar is given seconds to end."""
    store = Memory(Shared())
    store.fault = LedgerError("no answer in 5 s")
    with caplog.at_level(logging.WARNING), running(store, World(led_by(1)), new=False) as handovers:
        began = time.monotonic()
        handovers.stop()
        handovers.stop()
        assert time.monotonic() - began < 10
    assert len(caplog.messages) <= 1


def test_times_are_those_of_the_last_write() -> None:
    """The vacancy that follows is counted from there."""
    store = Memory(Shared())
    before = CLOCK()
    with running(store, World(led_by(1)), new=False):
        until(lambda: left_there(store))
    found = left_there(store)
    assert found
    assert before <= found.alive <= Moment(CLOCK().steady, CLOCK().wall)
