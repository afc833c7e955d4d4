"""What becomes of a row of the outbox after each way in which an attempt may end."""

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import (
    GIVE_UP_AFTER,
    GIVES_WAY_AFTER,
    LONGEST_WAIT,
    SLOWEST_RETRY,
    Delivery,
    Outbox,
    Settled,
    Stage,
    claim,
    settle,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome, DeliverySettled
from sidecar.core.policy.policy import Severity
from tests.kit.cluster import B
from tests.kit.core_sidecar import watching

NOW = 1_000_000 * SECOND
NOT_ACCEPTED = (
    DeliveryOutcome.FAILED,
    DeliveryOutcome.TIMED_OUT,
    DeliveryOutcome.REJECTED,
    DeliveryOutcome.RATE_LIMITED,
)


def row(name: str, destination: str = "ops#0", group: str = "f", queued: int = NOW) -> Delivery:
    """One that waits and is due."""
    return Delivery(
        id=name,
        destination=destination,
        receiver=destination.partition("#")[0],
        cluster_id="default",
        alert="FlinkNoLeader",
        fingerprint=group,
        reason=Reason.FIRST,
        severity=Severity.CRITICAL,
        title="",
        body="",
        queued_at=Moment(queued, queued),
        next_at=NOW,
    )


def ended(
    outbox: Outbox,
    name: str,
    outcome: DeliveryOutcome,
    *,
    after: int = 0,
    retry_after: int | None = None,
    attempt: int = 1,
) -> tuple[Outbox, Settled]:
    """The attempt of this row ended so, `after` now."""
    outbox = {**outbox, name: replace(outbox[name], stage=Stage.SENDING, attempt=attempt)}
    observation = DeliverySettled(Moment(NOW + after, NOW + after), name, outcome, "as it was said", retry_after)
    outbox, settled = settle(outbox, observation)
    assert settled is not None
    return outbox, settled


def outbox_of(*rows: Delivery) -> Outbox:
    """In this order."""
    return {delivery.id: delivery for delivery in rows}


@pytest.mark.parametrize("outcome", NOT_ACCEPTED)
def test_what_did_not_arrive_waits_for_its_next_attempt(outcome: DeliveryOutcome) -> None:
    """Recorded as what it was, with what was said; it may have arrived only where nobody answered."""
    outbox, settled = ended(outbox_of(row("a")), "a", outcome)
    assert (settled.outcome, settled.detail) == (outcome, "as it was said")
    assert outbox["a"].stage is Stage.WAITING
    assert outbox["a"].possible_duplicate is (outcome is DeliveryOutcome.TIMED_OUT)


@pytest.mark.parametrize("attempt", [1, 2, 30])
def test_what_is_rejected_is_tried_again_slowly(attempt: int) -> None:
    """Every ten minutes, within a fifth, from the first time on: somebody may repair the token or the route."""
    outbox, _ = ended(outbox_of(row("a")), "a", DeliveryOutcome.REJECTED, attempt=attempt)
    assert 0.8 * SLOWEST_RETRY <= outbox["a"].next_at - NOW <= 1.2 * SLOWEST_RETRY


@pytest.mark.parametrize("outcome", NOT_ACCEPTED)
def test_after_a_day_it_is_given_up(outcome: DeliveryOutcome) -> None:
    """On the record, whatever it was that went wrong."""
    alone = outbox_of(row("a"))
    assert "a" in ended(alone, "a", outcome, after=GIVE_UP_AFTER - 1)[0]
    outbox, settled = ended(alone, "a", outcome, after=GIVE_UP_AFTER)
    assert (outbox, settled.outcome, settled.detail) == ({}, "gave_up", "as it was said")


def test_what_nothing_can_be_sent_to_is_given_up_at_once() -> None:
    """There is nobody to wait for."""
    outbox, settled = ended(outbox_of(row("a")), "a", DeliveryOutcome.UNDELIVERABLE)
    assert (outbox, settled.outcome) == ({}, "gave_up")


def test_a_service_that_refuses_one_message_gets_the_next_of_its_group() -> None:
    """The third time that it says no, the older one makes room: it would hold up its all-clear for a day."""
    outbox = outbox_of(row("alarm"), row("other group", group="g"), row("all-clear"))
    for attempt in range(1, GIVES_WAY_AFTER):
        outbox, settled = ended(outbox, "alarm", DeliveryOutcome.REJECTED, attempt=attempt)
        assert settled.outcome == "rejected"
    outbox, settled = ended(outbox, "alarm", DeliveryOutcome.REJECTED, attempt=GIVES_WAY_AFTER)
    assert (settled.outcome, settled.detail) == (
        "gave_up",
        "as it was said; a newer message of its group takes its place",
    )
    assert list(outbox) == ["other group", "all-clear"]


@pytest.mark.parametrize(
    "others",
    [(), (row("b", group="g"),), (row("b", destination="oncall#0"),)],
    ids=["alone", "another group", "another destination"],
)
def test_the_newest_of_a_group_makes_room_for_nobody(others: tuple[Delivery, ...]) -> None:
    """It says how things are: it is tried until it is too old."""
    outbox = outbox_of(row("older", group="h"), row("a"), *others)
    outbox, settled = ended(outbox, "a", DeliveryOutcome.REJECTED, attempt=50)
    assert settled.outcome == "rejected"
    assert "a" in outbox


@pytest.mark.parametrize("outcome", [DeliveryOutcome.FAILED, DeliveryOutcome.TIMED_OUT, DeliveryOutcome.RATE_LIMITED])
def test_only_a_refusal_makes_room(outcome: DeliveryOutcome) -> None:
    """A service that is down loses nothing."""
    outbox, _ = ended(outbox_of(row("a"), row("b")), "a", outcome, attempt=50)
    assert list(outbox) == ["a", "b"]


@pytest.mark.parametrize(
    ("asked", "least"),
    [(30 * SECOND, 30 * SECOND), (LONGEST_WAIT, LONGEST_WAIT), (10**18, LONGEST_WAIT), (0, 0), (None, 0)],
)
def test_nobody_knocks_before_the_service_said_so(asked: int | None, least: int) -> None:
    """Not sooner, a little later, and never later than an hour; rows that got the same answer do not come back at the same instant."""
    waits = set()
    for number in range(100):
        name = f"row {number}"
        outbox, _ = ended(outbox_of(row(name)), name, DeliveryOutcome.RATE_LIMITED, retry_after=asked)
        waits.add(outbox[name].next_at - NOW)
    assert max(least, SECOND) <= min(waits) < max(waits) <= least + 3 * SECOND
    assert len(waits) > 50


def test_a_service_that_asks_for_little_is_not_hammered() -> None:
    """The pauses of our own grow all the same."""
    outbox, _ = ended(outbox_of(row("a")), "a", DeliveryOutcome.RATE_LIMITED, retry_after=SECOND, attempt=6)
    assert outbox["a"].next_at - NOW >= 50 * SECOND


def test_a_rate_limit_is_for_all_that_goes_there() -> None:
    """Another row of the destination would be refused too, and prolong it; other destinations have nothing to do with it."""
    outbox = outbox_of(row("a"), row("b", group="g"), row("elsewhere", destination="oncall#0"))
    outbox, _ = ended(outbox, "a", DeliveryOutcome.RATE_LIMITED, retry_after=60 * SECOND)
    assert outbox["b"].next_at == outbox["a"].next_at >= NOW + 60 * SECOND
    assert [delivery.id for delivery in claim(outbox, Moment(NOW + 59 * SECOND, 0))[1]] == ["elsewhere"]
    assert [delivery.id for delivery in claim(outbox, Moment(NOW + 63 * SECOND, 0))[1]] == ["a", "elsewhere"]


def test_who_waits_longer_anyway_still_does() -> None:
    """A rate limit shortens nobody's pause, and what is being sent elsewhere stays as it is."""
    later = replace(row("later", group="g"), next_at=NOW + 500 * SECOND)
    outbox = outbox_of(row("a"), later)
    outbox, _ = ended(outbox, "a", DeliveryOutcome.RATE_LIMITED, retry_after=60 * SECOND)
    assert outbox["later"] == later


@pytest.mark.parametrize("outcome", [DeliveryOutcome.FAILED, DeliveryOutcome.TIMED_OUT, DeliveryOutcome.REJECTED])
def test_other_troubles_are_the_row_s_own(outcome: DeliveryOutcome) -> None:
    """They may lie in this one message."""
    outbox, _ = ended(outbox_of(row("a"), row("b", group="g")), "a", outcome)
    assert outbox["b"] == row("b", group="g")


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_what_another_observer_sends_is_no_attempt_of_ours() -> None:
    """Held: looked at again in two seconds, unrecorded. Sent by now: done, recorded, and nothing was sent."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.HELD
    sidecar.sees(flink.elect(B)).waits(20)
    held = len(sidecar.sent)
    assert held >= 7
    assert [record.outcome for record in sidecar.notifications()] == ["queued"]
    sidecar.answers["ops#0"] = DeliveryOutcome.ALREADY_TOLD
    sidecar.waits(10)
    assert len(sidecar.sent) == held + 1
    assert [(record.outcome, record.attempt) for record in sidecar.notifications()] == [
        ("queued", 0),
        ("already_told", 0),
    ]
    assert sidecar.state.outbox == {}


def test_a_ledger_out_of_reach_is_waited_for_and_then_done_without() -> None:
    """Fifteen seconds, then it is sent without a claim, on the record. After a failure the ledger is asked again."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.NO_LEDGER
    sidecar.sees(flink.elect(B)).waits(5.5)
    asked_at = sidecar.now
    while len(sidecar.notifications()) < 2:
        sidecar.waits(0.5)
    assert 13 * SECOND <= sidecar.now - asked_at <= 17 * SECOND
    assert [record.outcome for record in sidecar.notifications()] == ["queued", "no_ledger"]
    sidecar.answers["ops#0"] = DeliveryOutcome.FAILED
    sidecar.waits(5)
    assert [delivery.is_shared for delivery in sidecar.sent[-3:]] == [True, False, True]


def test_what_goes_out_late_is_not_sent_without_a_claim_for_that() -> None:
    """That the ledger is given up is decided where it is recorded: a process that comes late to its work asks the ledger once more."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.NO_LEDGER
    sidecar.sees(flink.elect(B)).waits(12)
    sidecar.answers["ops#0"] = None
    sidecar.waits(20, tick=20)
    assert sidecar.sent[-1].is_shared
    assert "no_ledger" not in [record.outcome for record in sidecar.notifications()]


def test_a_ledger_that_is_back_is_asked_again() -> None:
    """What counts is for how long it was away without a break."""
    flink, sidecar = watching()
    flink.elect(B)
    sidecar.answers["ops#0"] = DeliveryOutcome.NO_LEDGER
    sidecar.sees_changes().waits(15)
    sidecar.answers["ops#0"] = DeliveryOutcome.HELD
    sidecar.waits(3)
    sidecar.answers["ops#0"] = DeliveryOutcome.NO_LEDGER
    sidecar.waits(12)
    assert all(delivery.is_shared for delivery in sidecar.sent)


def test_what_is_claimed_by_others_for_ever_is_sent_all_the_same() -> None:
    """After two minutes, without a claim, on the record: whoever changes a claim faster than it can be abandoned silences nobody."""
    flink, sidecar = watching()
    sidecar.answers["ops#0"] = DeliveryOutcome.HELD
    sidecar.sees(flink.elect(B)).waits(5.5)
    asked_at = sidecar.now
    while len(sidecar.notifications()) < 2 and sidecar.now - asked_at < 600 * SECOND:
        sidecar.waits(0.5)
    assert 115 * SECOND <= sidecar.now - asked_at <= 125 * SECOND
    assert [record.outcome for record in sidecar.notifications()] == ["queued", "no_ledger"]
    sidecar.answers["ops#0"] = DeliveryOutcome.DELIVERED
    sidecar.waits(5)
    assert not sidecar.sent[-1].is_shared
    assert sidecar.notifications()[-1].outcome == "delivered"


def test_it_is_also_sent_when_the_ledger_goes_and_comes_meanwhile() -> None:
    """Claimed by another and out of reach, in turn: the time in all counts."""
    flink, sidecar = watching()
    sidecar.sees(flink.elect(B))
    for _ in range(40):
        for outcome in (DeliveryOutcome.HELD, DeliveryOutcome.NO_LEDGER):
            sidecar.answers["ops#0"] = outcome
            sidecar.waits(2)
    assert not sidecar.sent[-1].is_shared


def test_what_was_not_sent_is_recorded_as_such_and_done() -> None:
    """Trying again would send nothing either. It says nothing of the destination."""
    waits = replace(row("waits", group="g"), failed_at=NOW - 3600 * SECOND, next_at=NOW + 600 * SECOND)
    outbox, settled = ended(outbox_of(row("a"), waits), "a", DeliveryOutcome.NOT_SENT)
    assert (settled.outcome, settled.detail, settled.delivery.attempt) == ("not_sent", "as it was said", 1)
    assert outbox == outbox_of(waits)
