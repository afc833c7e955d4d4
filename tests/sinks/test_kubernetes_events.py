"""Events are written in the background: bounded, tried again for a while, and never in anybody's way.

The store here is memory with faults on demand; a real API server has its own test (tests/integration/test_kubernetes_events.py).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from msgspec.structs import replace

from sidecar.core.failover.failover_events import EventReason, EventSubject, KubernetesEvent
from sidecar.core.moment import Timestamp
from sidecar.ports import KubernetesError, KubernetesRefusedError
from sidecar.sinks import kubernetes_events as sink
from sidecar.sinks.kubernetes_events import CAPACITY, Events
from tests.kit.waiting import wait_for

EVENT = KubernetesEvent(
    "orders",
    EventSubject("ConfigMap", "orders-cluster-config-map", "uid-1"),
    EventReason.LEADER_LOST,
    "no leader",
    Timestamp("2026-11-20T08:00:00.000000Z"),
    "episode-1",
)


class Memory:
    """A store that fails as it is set to."""

    def __init__(self) -> None:
        self.written: list[KubernetesEvent] = []
        self.tried = 0
        self.fails: KubernetesError | None = None
        self.held = threading.Event()
        self.held.set()

    def write(self, event: KubernetesEvent) -> None:
        self.tried += 1
        self.held.wait(30)
        if self.fails:
            raise self.fails
        self.written.append(event)


@contextmanager
def running(**stores: Memory) -> Iterator[Events]:
    events = Events(stores)
    events.start()
    try:
        yield events
    finally:
        for store in stores.values():
            store.held.set()
        events.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses short enough for a test."""
    monkeypatch.setattr(sink, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(sink, "_LONGEST_PAUSE", 0.05)


def until(condition: Callable[[], object]) -> None:
    wait_for("the Events", condition)


def is_counted(events: Events, **counts: int) -> bool:
    return all(events.counts[outcome] == count for outcome, count in counts.items())


def numbered(number: int) -> KubernetesEvent:
    return replace(EVENT, episode_id=f"episode-{number}")


def test_events_are_written_in_order() -> None:
    """And counted."""
    store = Memory()
    with running(orders=store) as events:
        for number in range(5):
            events.publish(numbered(number))
        until(lambda: len(store.written) == 5)
        assert store.written == [numbered(number) for number in range(5)]
        until(lambda: events.counts == {"written": 5, "dropped": 0})


def test_a_store_that_hangs_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    """So many wait; what is beyond that is dropped, counted, and logged once."""
    store = Memory()
    store.held.clear()
    with running(orders=store) as events:
        events.publish(EVENT)
        until(lambda: store.tried == 1)
        for number in range(CAPACITY + 3):
            events.publish(numbered(number))
        assert events.counts["dropped"] == 3
        assert caplog.messages == [f"cluster orders: Kubernetes Events are dropped: {CAPACITY} others wait"]
        store.held.set()
        until(lambda: len(store.written) == CAPACITY + 1)


def test_an_outage_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Another cluster's Events do not wait with it."""
    away, there = Memory(), Memory()
    away.fails = KubernetesError("no answer in time")
    with running(orders=away, billing=there) as events:
        events.publish(EVENT)
        events.publish(replace(EVENT, cluster_id="billing"))
        until(lambda: there.written)
        until(lambda: away.tried >= 2)
        away.fails = None
        until(lambda: away.written == [EVENT])
    assert caplog.messages == []


def test_an_outage_that_lasts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An Event that is old says nothing any more. One line, and another one when it has worked in between."""
    monkeypatch.setattr(sink, "KEPT_SECONDS", 0.0)
    store = Memory()
    store.fails = KubernetesError("no answer in time")
    with running(orders=store) as events:
        for outage in (1, 2):
            events.publish(EVENT)
            events.publish(EVENT)
            until(partial(is_counted, events, dropped=2 * outage))
            store.fails = None
            events.publish(EVENT)
            until(partial(is_counted, events, written=outage))
            store.fails = KubernetesError("no answer in time")
    assert caplog.messages == ["cluster orders: Kubernetes Events are dropped: no answer in time"] * 2


def test_a_refusal_is_said_once_and_then_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Until an operator has had time to change it."""
    store = Memory()
    store.fails = KubernetesRefusedError("no permission")
    with running(orders=store) as events:
        for _ in range(3):
            events.publish(EVENT)
        until(lambda: events.counts["dropped"] == 3)
    assert store.tried == 1
    assert caplog.messages == ["cluster orders: Kubernetes Events are dropped: no permission"]


def test_without_a_store_there_is_no_thread() -> None:
    """And no metric."""
    with running() as events:
        assert events.counts == {}
        assert not events._thread.is_alive()


def test_it_ends_soon_and_twice() -> None:
    """Also before it began, and while it waits."""
    Events({}).stop()
    store = Memory()
    store.fails = KubernetesError("no answer in time")
    with running(orders=store) as events:
        events.publish(EVENT)
        until(lambda: store.tried)
        events.stop()
        assert not events._thread.is_alive()
