"""The owner's loop: recorded before sent, and nothing sent twice that was marked."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sidecar.app.loop import Loop
from sidecar.core.alerting.alerting_step import Send
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.captures import Capture
from sidecar.core.moment import Moment
from sidecar.core.observations import DeliveryOutcome, DeliverySettled, Observation
from sidecar.core.pictures import PictureRequest
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.policy.routing import Route
from sidecar.core.state import Effect, Gather, TakePicture
from sidecar.journal import Journal, JournalReader
from sidecar.runtime.clock import Clock
from tests.kit.observed_failovers import POLICY, failover, first_sight
from tests.kit.waiting import until

QUICK = Policy(
    POLICY.observer,
    POLICY.stores,
    rules=POLICY.rules,
    route=Route("ops", group_wait=100_000),
    receivers={"ops": POLICY.receivers["ops"][:1]},
)


class House:
    """A loop with its journal, and what it asked to be sent."""

    def __init__(self, folder: Path, policy: Policy = QUICK) -> None:
        self.journal = Journal(folder)
        self.reader = JournalReader(folder)
        state = self.journal.open()
        self.sent: list[Delivery] = []
        self.recorded_when_sent: list[int] = []
        self.died = threading.Event()
        self.clock = Clock(state.alive)
        self.captures: list[Capture] = []
        self.pictures: list[PictureRequest] = []
        self.loop = Loop(
            policy,
            self.journal,
            state,
            self.clock,
            carry_out=self.carry_out,
            sealed=lambda: 0,
            died=self.died.set,
        )

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(delivery):
                self.sent.append(delivery)
                self.recorded_when_sent.append(len(self.reader.records(0, 1000)))
            case Gather(capture):
                self.captures.append(capture)
            case TakePicture(request):
                self.pictures.append(request)

    def bring(self, observations: list[Observation]) -> None:
        """Bring a scene in, as if it happened now."""
        now = self.clock()
        for observation in observations:
            self.loop.observe(replaced(observation, now))

    def close(self) -> None:
        self.loop.stop()
        self.journal.close()
        self.reader.close()


def replaced(observation: Observation, at: Moment) -> Observation:
    return replace(observation, at=at)


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    assert until(condition, seconds), "it did not happen"


@pytest.fixture
def house(tmp_path: Path) -> "House":
    return House(tmp_path)


def test_a_failover_is_recorded_before_it_is_sent(house: House) -> None:
    """When the delivery is handed out, every record of the failover is on disk already."""
    house.loop.start()
    house.bring(first_sight()[1:])
    house.bring(failover(0, term=2))
    wait_until(lambda: house.sent)
    house.close()
    discovered, revoked, granted, coverage, statuses, queued = 3, 3, 3, 1, 2, 1
    assert house.recorded_when_sent == [discovered + revoked + granted + coverage + statuses + queued]


def test_what_was_marked_is_not_sent_again_after_a_restart_and_what_was_not_is(tmp_path: Path) -> None:
    """A claim without an outcome comes back as a possible duplicate; a delivered one never does."""
    first = House(tmp_path)
    first.loop.start()
    first.bring(first_sight()[1:])
    first.bring(failover(0, term=2))
    wait_until(lambda: first.sent)
    first.close()

    second = House(tmp_path)
    second.loop.start()
    wait_until(lambda: second.sent)
    again = second.sent[0]
    assert (again.id, again.possible_duplicate) == (first.sent[0].id, True)
    second.loop.observe(DeliverySettled(second.clock(), again.id, DeliveryOutcome.DELIVERED))
    wait_until(lambda: not second.loop.snapshot.state.outbox)
    second.close()

    third = House(tmp_path)
    third.loop.start()
    began = third.clock()
    wait_until(lambda: third.loop.snapshot.at > began)
    third.close()
    assert third.sent == []


def test_stopping_records_what_is_still_in_the_inbox(house: House) -> None:
    """A stop drains; the last thing in the journal is what was covered until then."""
    house.loop.start()
    house.bring(first_sight()[1:])
    house.loop.stop()
    kinds = [line for _, line in house.reader.records(0, 100)]
    house.close()
    assert len([line for line in kinds if b"DISCOVERED" in line]) == 3
    assert b'"state":"seeing"' in kinds[-1]


def test_what_falls_due_while_stopping_is_sent_after_the_next_start_and_is_no_duplicate(tmp_path: Path) -> None:
    """Nothing is claimed that nobody would send any more."""
    stopping = House(tmp_path, replace(QUICK, route=Route("ops", group_wait=0)))
    stopping.bring([*first_sight()[1:], *failover(0, term=2)])
    stopping.loop.stop()
    stopping.loop.start()
    stopping.loop.stop()
    stopping.close()
    assert stopping.sent == []
    next_one = House(tmp_path)
    next_one.loop.start()
    wait_until(lambda: next_one.sent)
    next_one.close()
    assert [delivery.possible_duplicate for delivery in next_one.sent] == [False]


def test_an_error_in_the_owner_is_not_silent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started the loop is notified that it died, and observers are not held up by a dead one."""

    def raises(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(house.journal, "commit", raises)  # what must not happen
    house.loop.start()
    assert house.died.wait(10)
    house.loop.observe(first_sight()[0])
    house.close()


def test_stop_without_start_and_twice(house: House) -> None:
    """Stopping is boring."""
    house.loop.stop()
    house.loop.stop()
    house.close()


def test_the_snapshot_is_ready_when_everything_was_seen(house: House) -> None:
    """Before the first complete view there is no readiness."""
    house.loop.start()
    scene = first_sight()
    house.bring(scene[1:-1])
    wait_until(lambda: sum(house.loop.snapshot.tally.transitions.values()) == 3)
    assert not house.loop.snapshot.ready
    house.bring(scene[-1:])
    wait_until(lambda: house.loop.snapshot.ready)
    house.close()


def test_what_is_remembered_is_not_in_sight_before_anything_was_seen(tmp_path: Path) -> None:
    """Before the first turn the snapshot holds what an earlier process knew, and says of none of it that it can be seen."""
    first = House(tmp_path)
    first.loop.start()
    first.bring(first_sight()[1:])
    wait_until(lambda: any(cluster.is_in_sight for cluster in first.loop.snapshot.state.clusters.values()))
    first.close()
    second = House(tmp_path)
    remembered = second.loop.snapshot.state.clusters
    assert [(bool(cluster.components), cluster.is_in_sight) for cluster in remembered.values()] == [(True, False)]
    second.close()


def test_a_picture_that_is_due_is_asked_for_once(tmp_path: Path) -> None:
    """Of the leading REST server; the next one waits for the answer."""
    asking = House(tmp_path, replace(QUICK, evidence=frozenset({Source.FLINK_REST})))
    asking.loop.start()
    asking.bring(first_sight())
    wait_until(lambda: asking.pictures)
    last = asking.loop.snapshot.at
    wait_until(lambda: asking.loop.snapshot.at > last)
    asking.close()
    [request] = asking.pictures
    assert request.cluster_id in QUICK.stores
