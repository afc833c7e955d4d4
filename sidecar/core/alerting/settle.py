"""After an attempt a delivery leaves the outbox, or waits for the next attempt."""

from typing import Final
from zlib import crc32

from msgspec.structs import replace

from sidecar.core.alerting.outbox import Delivery, Outbox, Settled, Stage, sendable, waiting_for, without_pause
from sidecar.core.moment import SECOND
from sidecar.core.observations import DeliveryOutcome, DeliverySettled

FIRST_RETRY: Final = 2 * SECOND
SLOWEST_RETRY: Final = 600 * SECOND
LONGEST_WAIT: Final = 3600 * SECOND
"""The longest pause that a service may ask for."""
GIVES_WAY_AFTER: Final = 3
"""Attempts after which a rejected row makes room for a newer one of its group, which it would delay for a day."""
GIVE_UP_AFTER: Final = 24 * 3600 * SECOND
LEDGER_PAUSE: Final = 2 * SECOND
"""Between two attempts to read an unreachable ledger."""
HELD_PAUSE: Final = 1 * SECOND
"""Between two attempts to get a claim that another observer holds."""
LEDGER_PATIENCE: Final = 15 * SECOND
"""How long a message waits for an unreachable ledger before it is sent without a claim, as a possible duplicate."""
HELD_PATIENCE: Final = 120 * SECOND
"""How long a message waits while others claim it, before it is sent without a claim. A claim is marked or taken over much sooner."""

NOT_RESENT: Final = (
    DeliveryOutcome.FAILED,
    DeliveryOutcome.RATE_LIMITED,
    DeliveryOutcome.TIMED_OUT,
    DeliveryOutcome.REJECTED,
)
"""Outcomes of a resend that are recorded, besides that it was given up."""
NOT_DELIVERED: Final = frozenset({*NOT_RESENT, DeliveryOutcome.NO_LEDGER, "gave_up"})
"""Recorded outcomes of an attempt after which the message may not have arrived."""


def settle(outbox: Outbox, settled: DeliverySettled) -> tuple[Outbox, Settled | None]:
    """The outbox after an attempt, and the outcome to record. None: there is no such attempt, or it is not recorded."""
    delivery = outbox.get(settled.delivery_id)
    if delivery is None or delivery.stage is not Stage.SENDING:
        return outbox, None
    if delivery.is_transient:
        return _without_delivery(outbox, delivery, settled), _not_resent(delivery, settled)
    if settled.outcome in {DeliveryOutcome.HELD, DeliveryOutcome.NO_LEDGER}:
        return _waiting_for_ledger(outbox, delivery, settled)
    delivery = replace(delivery, possible_duplicate=delivery.possible_duplicate or settled.possible_duplicate)
    detail = settled.detail or None
    if settled.outcome in {DeliveryOutcome.DELIVERED, DeliveryOutcome.ALREADY_TOLD, DeliveryOutcome.NOT_SENT}:
        attempts = delivery.attempt - (settled.outcome is DeliveryOutcome.ALREADY_TOLD)  # this observer sent nothing
        return _without_delivery(outbox, delivery, settled), Settled(
            replace(delivery, attempt=attempts), settled.outcome, detail
        )
    if why := _given_up(outbox, delivery, settled):
        return _without_delivery(outbox, delivery, settled), Settled(delivery, "gave_up", *why)
    return _waiting_again(outbox, delivery, settled), Settled(delivery, settled.outcome, detail)


def _not_resent(delivery: Delivery, settled: DeliverySettled) -> Settled | None:
    """The record of a resend that did not arrive. A heartbeat has none: a missing one is the message."""
    if delivery.is_heartbeat or settled.outcome not in {*NOT_RESENT, DeliveryOutcome.UNDELIVERABLE}:
        return None
    given_up = settled.outcome is DeliveryOutcome.UNDELIVERABLE
    return Settled(delivery, "gave_up" if given_up else settled.outcome, settled.detail or None)


def _given_up(outbox: Outbox, delivery: Delivery, settled: DeliverySettled) -> tuple[str | None] | None:
    """The detail to record if it is given up after a failed attempt; None: it is tried again."""
    age = settled.at.steady - delivery.queued_at.steady
    if settled.outcome is DeliveryOutcome.UNDELIVERABLE or age >= GIVE_UP_AFTER:
        return (settled.detail or None,)
    makes_room = settled.outcome is DeliveryOutcome.REJECTED and delivery.attempt >= GIVES_WAY_AFTER
    if makes_room and _has_successor(delivery, outbox):
        return (f"{settled.detail}; a newer message of its group takes its place",)
    return None


def _waiting_again(outbox: Outbox, delivery: Delivery, settled: DeliverySettled) -> Outbox:
    """The outbox in which it waits for its next attempt. If the service limits the rate, all messages to the destination wait as long."""
    again = replace(
        delivery,
        stage=Stage.WAITING,
        next_at=settled.at.steady + back_off(delivery, settled),
        possible_duplicate=delivery.possible_duplicate or settled.outcome is DeliveryOutcome.TIMED_OUT,
        failed_at=None if settled.outcome is DeliveryOutcome.RATE_LIMITED else settled.at.steady,
        without_ledger_since=None,
        held_since=None,
        fails_open=False,
    )
    held_up = {}
    if settled.outcome is DeliveryOutcome.RATE_LIMITED:
        held_up = {
            other.id: replace(other, next_at=max(other.next_at, again.next_at), failed_at=None)
            for other in waiting_for(outbox, delivery.destination)
        }
    return {**outbox, **held_up, delivery.id: again}


def _waiting_for_ledger(outbox: Outbox, delivery: Delivery, settled: DeliverySettled) -> tuple[Outbox, Settled | None]:
    """The outbox in which it waits for the ledger, which is no attempt. Sending without a claim is recorded."""
    now = settled.at.steady
    next_at = now + (HELD_PAUSE if settled.outcome is DeliveryOutcome.HELD else LEDGER_PAUSE)
    held_since = now if delivery.held_since is None else delivery.held_since
    without_since = None
    if settled.outcome is DeliveryOutcome.NO_LEDGER:
        without_since = now if delivery.without_ledger_since is None else delivery.without_ledger_since
    without = without_since is not None and next_at - without_since >= LEDGER_PATIENCE
    again = replace(
        delivery,
        stage=Stage.WAITING,
        attempt=delivery.attempt - 1,
        next_at=next_at,
        without_ledger_since=without_since,
        held_since=held_since,
        fails_open=without or next_at - held_since >= HELD_PATIENCE,
    )
    record = Settled(again, DeliveryOutcome.NO_LEDGER, settled.detail or None) if again.fails_open else None
    return {**outbox, delivery.id: again}, record


def _without_delivery(outbox: Outbox, delivery: Delivery, settled: DeliverySettled) -> Outbox:
    """The outbox without `delivery`. If it was delivered, the destination works: the pauses of its other messages end."""
    rest = {key: other for key, other in outbox.items() if key != delivery.id}
    if settled.outcome is DeliveryOutcome.DELIVERED:
        rest |= without_pause(waiting_for(rest, delivery.destination), settled.at.steady)
    return rest


def back_off(delivery: Delivery, settled: DeliverySettled) -> int:
    """The pause after a failed attempt, ±20 % by row: doubling, or SLOWEST_RETRY if rejected. Never less than the service asked for, up to
    LONGEST_WAIT.
    """
    delay = min(FIRST_RETRY << min(delivery.attempt - 1, 20), SLOWEST_RETRY)
    if settled.outcome is DeliveryOutcome.REJECTED:
        delay = SLOWEST_RETRY
    spread = crc32(f"{delivery.id}/{delivery.attempt}".encode()) % 401 - 200
    asked = min(settled.retry_after or 0, LONGEST_WAIT)
    return max(delay + delay * spread // 1000, asked + FIRST_RETRY * (spread + 200) // 400 if asked else 0)


def _has_successor(delivery: Delivery, outbox: Outbox) -> bool:
    """Whether a newer message can be sent once `delivery` is out of the way."""
    rest = {key: other for key, other in outbox.items() if key != delivery.id}
    return bool({other.id for other in sendable(rest)} - {other.id for other in sendable(outbox)})
