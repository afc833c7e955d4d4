"""A pause after a failure lasts no longer than the trouble, and holds up only what depends on the message that failed."""

import pytest
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.outbox import (
    EARLY_RETRY,
    GIVES_WAY_AFTER,
    PROBE_GAP,
    Delivery,
    Outbox,
    Part,
    Settled,
    Stage,
    claim,
    queue,
    settle,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome, DeliverySettled
from tests.core.alerting.test_settle import NOW, outbox_of, row

FAILURES = [DeliveryOutcome.FAILED, DeliveryOutcome.TIMED_OUT, DeliveryOutcome.REJECTED]


def about(name: str, *alerts: str, destination: str = "ops#0", group: str = "f") -> Delivery:
    """A message about these alerts."""
    return replace(row(name, destination, group), parts=tuple(Part(alert, NOW) for alert in alerts))


def at(seconds: float) -> Moment:
    """So many seconds from NOW."""
    return Moment(NOW + round(seconds * SECOND), NOW + round(seconds * SECOND))


def due(outbox: Outbox, seconds: float) -> list[str]:
    """Which would be sent then."""
    return [delivery.id for delivery in claim(outbox, at(seconds))[1]]


def ended(
    outbox: Outbox, name: str, outcome: DeliveryOutcome, seconds: float = 0, attempt: int = 1
) -> tuple[Outbox, Settled | None]:
    """The attempt of this message ended so, then."""
    sending = {**outbox, name: replace(outbox[name], stage=Stage.SENDING, attempt=attempt)}
    return settle(sending, DeliverySettled(at(seconds), name, outcome, "as it was said"))


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_message_about_other_alerts_does_not_wait_behind_one_that_failed(outcome: DeliveryOutcome) -> None:
    """One group may hold all alerts of a cluster: what has nothing in common with the message that waits goes out."""
    outbox = outbox_of(about("vacancy", "1", "2"), about("other", "3"))
    outbox, _ = ended(outbox, "vacancy", outcome, attempt=9)
    assert due(outbox, PROBE_GAP / SECOND) == ["other"]


@pytest.mark.parametrize("later", [about("later", "2", "3"), row("later"), about("later", "3", "4")])
def test_what_depends_on_a_message_that_waits_stays_behind_it(later: Delivery) -> None:
    """It shares an alert with it, or with another that waits behind it; or nobody knows what it is about."""
    outbox = outbox_of(about("first", "1", "2"), about("second", "2", "3"), later)
    outbox, _ = ended(outbox, "first", DeliveryOutcome.FAILED, attempt=9)
    assert due(outbox, 60) == []


def test_another_group_and_another_destination_never_wait() -> None:
    """Whatever they are about."""
    outbox = outbox_of(about("a", "1"), about("b", "1", group="g"), about("c", "1", destination="oncall#0"))
    outbox, _ = ended(outbox, "a", DeliveryOutcome.FAILED, attempt=9)
    assert due(outbox, PROBE_GAP / SECOND) == ["b", "c"]


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_success_at_the_destination_ends_the_pause(outcome: DeliveryOutcome) -> None:
    """The receiver is well: whatever waits for it is tried now, or a moment after its own last attempt."""
    outbox = outbox_of(about("first", "1"), about("all-clear", "1"), about("other", "2"))
    outbox, _ = ended(outbox, "first", outcome, attempt=2 if outcome is DeliveryOutcome.REJECTED else 9)
    seconds = EARLY_RETRY / SECOND
    assert due(outbox, seconds) == ["other"]
    outbox, _ = ended(outbox, "other", DeliveryOutcome.DELIVERED, seconds=seconds)
    assert due(outbox, seconds) == ["first"]


def test_a_success_elsewhere_says_nothing_of_this_destination() -> None:
    """Another receiver is another one."""
    outbox = outbox_of(about("first", "1"), about("elsewhere", "2", destination="oncall#0"))
    outbox, _ = ended(outbox, "first", DeliveryOutcome.FAILED, attempt=9)
    outbox, _ = ended(outbox, "elsewhere", DeliveryOutcome.DELIVERED, seconds=60)
    assert due(outbox, 100) == []


def test_a_message_that_alone_is_refused_is_not_repeated_with_each_success() -> None:
    """Each of its attempts may have arrived: the receiver gets it no more often than once in EARLY_RETRY."""
    outbox = outbox_of(about("bad", "1"), *(about(f"good {number}", f"g{number}") for number in range(20)))
    outbox, _ = ended(outbox, "bad", DeliveryOutcome.TIMED_OUT, attempt=9)
    for number in range(20):
        outbox, _ = ended(outbox, f"good {number}", DeliveryOutcome.DELIVERED, seconds=1 + number)
    assert due(outbox, EARLY_RETRY / SECOND - 0.1) == []
    assert due(outbox, EARLY_RETRY / SECOND) == ["bad"]


def test_a_newer_message_that_depends_on_it_has_it_tried_again() -> None:
    """It is a probe: fifty that wait behind one need not wait for the end of its pause."""
    outbox = outbox_of(about("first", "1"))
    outbox, _ = ended(outbox, "first", DeliveryOutcome.FAILED, attempt=9)
    outbox, _ = queue(outbox, [replace(about("newer", "1"), queued_at=at(100))])
    assert due(outbox, 100) == ["first"]


def test_a_rate_limit_is_kept_whatever_succeeds_or_is_queued() -> None:
    """The receiver has asked for the pause."""
    outbox = outbox_of(about("first", "1"), about("sent before", "2"))
    outbox = {**outbox, "sent before": replace(outbox["sent before"], stage=Stage.SENDING, attempt=1)}
    first = DeliverySettled(at(0), "first", DeliveryOutcome.RATE_LIMITED, "", 600 * SECOND)
    outbox = {**outbox, "first": replace(outbox["first"], stage=Stage.SENDING, attempt=1)}
    outbox, _ = settle(outbox, first)
    outbox, _ = settle(outbox, DeliverySettled(at(1), "sent before", DeliveryOutcome.DELIVERED))
    outbox, _ = queue(outbox, [replace(about("newer", "1"), queued_at=at(100))])
    assert due(outbox, 599) == []


def test_a_receiver_that_is_down_is_not_tried_for_each_message_at_once() -> None:
    """However many wait: after a failure, another one is tried PROBE_GAP later."""
    outbox = outbox_of(*(about(f"{number}", f"a{number}") for number in range(100)))
    tried = 0
    for tick in range(600):
        outbox, claimed = claim(outbox, at(tick / 2))
        for delivery in claimed:
            tried += 1
            outbox, _ = settle(outbox, DeliverySettled(at(tick / 2), delivery.id, DeliveryOutcome.FAILED))
    assert 300 * SECOND // PROBE_GAP - 2 <= tried <= 2 * 300 * SECOND // PROBE_GAP


def test_a_refused_message_makes_room_only_for_what_depends_on_it() -> None:
    """Nothing else is held up by it."""
    outbox = outbox_of(about("refused", "1"), about("independent", "2"))
    outbox, settled = ended(outbox, "refused", DeliveryOutcome.REJECTED, attempt=GIVES_WAY_AFTER)
    assert settled
    assert settled.outcome == "rejected"
    outbox, settled = ended(
        {**outbox, "b": about("b", "1")}, "refused", DeliveryOutcome.REJECTED, attempt=GIVES_WAY_AFTER + 1
    )
    assert settled
    assert settled.outcome == "gave_up"


def test_fifty_messages_behind_one_arrive_soon_after_the_receiver_is_well() -> None:
    """The receiver fails for ten minutes, in which fifty messages are queued; then all of them arrive within a minute or two."""
    outbox: Outbox = {}
    arrived: dict[str, float] = {}
    for tick in range(2000):
        now = tick / 2
        if tick % 24 == 0 and tick < 1200:
            message = replace(about(f"{tick}", f"alert {tick // 72}"), queued_at=at(now), next_at=at(now).steady)
            outbox, _ = queue(outbox, [replace(message, reason=Reason.GREW)])
        outbox, claimed = claim(outbox, at(now))
        for delivery in claimed:
            outcome = DeliveryOutcome.FAILED if now < 600 else DeliveryOutcome.DELIVERED
            outbox, _ = settle(outbox, DeliverySettled(at(now), delivery.id, outcome))
            if outcome is DeliveryOutcome.DELIVERED:
                arrived[delivery.id] = now
    assert len(arrived) == 50
    assert max(arrived.values()) <= 600 + 60
