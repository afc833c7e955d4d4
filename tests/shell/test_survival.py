"""The owner's thread survives what it cannot process: that is recorded, all else goes on, and a thread that stands still is not alive."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.app.loop import Loop
from sidecar.core.alerting.conditions import CONDITIONS, Condition, Holding
from sidecar.core.alerting.rules import evaluate
from sidecar.core.flink import leadership
from sidecar.core.flink.leadership import LeaderInformation, Unreadable
from sidecar.core.leadership import stored_leaders
from sidecar.core.observations import (
    ConfigMapObserved,
    ConnectionState,
    NodeObserved,
    Observation,
    SnapshotCompleted,
    ViewObserved,
)
from sidecar.core.policy.policy import Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import TransitionRecord
from sidecar.core.views.status_view import verdicts
from tests.kit.cluster import CLUSTER
from tests.kit.core_sidecar import POLICY
from tests.kit.observed_failovers import PATHS, at, failover, first_sight, held
from tests.shell.test_loop import QUICK, House, wait_until

POISON = b"poison"
RESOURCE_MANAGER, DISPATCHER, _ = PATHS


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.close()


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that the core cannot process: none are known that do this."""
    decode = leadership.decode_connection_info

    def raises(data: bytes) -> LeaderInformation | Unreadable:
        if data == POISON:
            raise ZeroDivisionError("a mistake of ours")
        return decode(data)

    monkeypatch.setattr(stored_leaders, "decode_connection_info", raises)


def transitions(house: House) -> list[TransitionRecord]:
    return house.reader.latest(TransitionRecord, 1000)[::-1]


@pytest.mark.parametrize("mtime", [-(1 << 63), -1, 253_402_300_800_000, (1 << 63) - 1])
def test_a_time_that_the_store_cannot_mean_is_no_time(house: House, mtime: int) -> None:
    """A znode written before 1970 or after the year 9999: its leader is recorded, with no time of the write."""
    node = held(1, DISPATCHER, 2)
    assert node.position
    house.loop.start()
    house.bring(first_sight()[1:])
    house.bring([replace(node, position=replace(node.position, mtime=mtime))])
    wait_until(lambda: [t.kind for t in transitions(house)][3:] == ["CHANGED"])
    assert transitions(house)[-1].written_at is None
    assert not house.died.is_set()


def test_an_observation_that_cannot_be_processed_is_recorded_and_the_rest_goes_on(
    house: House, poison: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the leadership that it was about nothing is known from then on; it is logged once, and the next failover is seen."""
    house.loop.start()
    house.bring(first_sight()[1:])
    poisoned = held(1, DISPATCHER, 2)
    with caplog.at_level(logging.ERROR):
        house.bring([replace(poisoned, data=POISON)] * 2)
        house.bring([held(2, RESOURCE_MANAGER, 2)])
        wait_until(lambda: len(transitions(house)) == 5)
    obscured, changed = transitions(house)[3:]
    assert (obscured.component, obscured.kind) == ("dispatcher", "OBSCURED")
    assert obscured.reason == "an observation of it could not be processed (ZeroDivisionError)"
    assert (changed.component, changed.kind) == ("resource_manager", "CHANGED")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("skipped an observation that raised an error: ")
    assert line.endswith(f"NodeObserved of default, {DISPATCHER}: ZeroDivisionError: a mistake of ours")
    wait_until(lambda: house.loop.snapshot.health.unprocessed == 2)
    house.bring([held(3, DISPATCHER, 3)])
    wait_until(lambda: len(transitions(house)) == 6)
    assert transitions(house)[-1].pattern == "?->A"


def test_a_config_map_that_cannot_be_processed_is_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Kubernetes it is about every leader in it; the next one that can be processed has who leads."""
    name = f"{CLUSTER}-cluster-config-map"
    session = "00000000-0000-0000-0000-000000000001"
    lease = '{"holderIdentity":"a","leaseDuration":"PT15S","acquireTime":"x","renewTime":"%d","leaderTransitions":0}'
    config_map = ConfigMapObserved(
        at(0), CLUSTER, name, "uid", "1", {"org.apache.flink.k8s.leader.dispatcher": f"{session},a"}, lease % 0
    )
    house = House(tmp_path, replace(QUICK, stores={CLUSTER: Store.KUBERNETES}))
    house.loop.start()
    view: list[Observation] = [
        ViewObserved(at(0), CLUSTER, ConnectionState.CONNECTED),
        config_map,
        SnapshotCompleted(at(0), CLUSTER),
    ]
    house.bring(view)
    wait_until(lambda: [t.kind for t in transitions(house) if t.after_session_id] == ["DISCOVERED"])

    def raises(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("sidecar.core.leadership.leases.take", raises)
        house.bring([replace(config_map, resource_version="2", leader=lease % 1)])
        wait_until(lambda: transitions(house)[-1].kind == "OBSCURED")
    house.bring([replace(config_map, resource_version="3", leader=lease % 2)])
    dispatcher = ["?->A", "A->?", "?->A"]
    wait_until(lambda: [t.pattern for t in transitions(house) if t.component == "dispatcher"] == dispatcher)
    house.close()


def test_where_time_itself_cannot_be_processed_the_snapshot_stands_still(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that cannot be evaluated notify nobody: the snapshot gets old, so that `/livez` fails, and the thread goes on trying.

    That holds also for a cluster so large that most turns are without a tick.
    """

    def slow(*arguments: Any) -> Any:
        time.sleep(0.1)
        return evaluate(*arguments)

    monkeypatch.setattr("sidecar.core.alerting.rules.evaluate", slow)
    house.loop.start()
    house.bring(first_sight()[1:])
    wait_until(lambda: house.loop.snapshot.ready)

    def raises(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("sidecar.core.alerting.rules.evaluate", raises)
        wait_until(lambda: house.loop.snapshot.health.unprocessed)
        stood = house.loop.snapshot
        house.bring(failover(0, term=2))
        wait_until(lambda: len(transitions(house)) == 9)
        assert house.loop.snapshot.at == stood.at
    wait_until(lambda: house.loop.snapshot.at > stood.at)
    assert isinstance(house.loop, Loop)
    assert not house.died.is_set()


def test_a_rule_that_raises_is_logged_counted_and_shown_and_time_goes_on(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other rules notify; `/livez` stays well, the snapshot says what was left out."""

    def raises(*_: object) -> Holding:
        raise ZeroDivisionError("a mistake\nof ours")

    monkeypatch.setitem(CONDITIONS, Trigger.VACANT, Condition(raises))
    with caplog.at_level(logging.ERROR):
        house.loop.start()
        house.bring(first_sight()[1:])
        house.bring(failover(0, term=2))
        wait_until(lambda: house.sent and house.loop.snapshot.health.quarantines > 1)
    line = f"rule FlinkNoLeader of cluster {CLUSTER}: ZeroDivisionError: a mistake\ufffdof ours"
    health = house.loop.snapshot.health
    assert (health.quarantined, health.unprocessed) == ((line,), 0)
    assert [record.getMessage() for record in caplog.records] == [
        f"left out what raised an error, all else goes on: {line}"
    ]
    [verdict, _] = verdicts(house.loop.snapshot)
    assert verdict.sentence == f"left out because of an error in the sidecar: {line}"


def test_an_observation_of_a_cluster_that_nobody_knows_harms_nobody(house: House) -> None:
    """Whatever a driver brings: the owner goes on."""
    house.loop.start()
    house.bring([ViewObserved(at(0), "nobody's", ConnectionState.CONNECTED), NodeObserved(at(0), "nobody's", "/x")])
    house.bring(first_sight()[1:])
    wait_until(lambda: len(transitions(house)) == 3)
    assert POLICY.stores.keys() == {CLUSTER}
