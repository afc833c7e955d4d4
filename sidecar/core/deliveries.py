"""The outbox: one row per notification and destination, from queued to delivered or given up.

A row is in the journal before anybody is told. It is claimed (SENDING) before it is handed out, so that after a crash it is known which
rows may have arrived: they are sent again, labelled as a possible duplicate.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerts import Reason
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliverySettled, Outcome
from sidecar.core.policy import Severity

FIRST_RETRY: Final = 2 * SECOND
SLOWEST_RETRY: Final = 600 * SECOND
GIVE_UP_AFTER: Final = 24 * 3600 * SECOND
SENDING_LIMIT: Final = 300 * SECOND
"""A claim older than this belongs to a sender that will not answer any more. Far above a sender's own hard limit."""
CAPACITY: Final = 1000
"""Rows per destination. Beyond it the oldest one that waits is given up, and recorded as such."""


class Stage(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    SENDING = "sending"


class Delivery(Struct, frozen=True):
    """One notification on its way to one destination. Texts are plain; the URL is looked up by the sender."""

    id: str
    destination: str
    receiver: str
    cluster_id: str
    alert: str
    fingerprint: str
    reason: Reason
    severity: Severity
    title: str
    body: str
    queued_at: Moment
    next_at: int
    stage: Stage = Stage.WAITING
    attempt: int = 0
    possible_duplicate: bool = False


Outbox = Mapping[str, Delivery]


class Settled(Struct, frozen=True):
    """How an attempt ended, for the record."""

    delivery: Delivery
    outcome: str
    detail: str | None


def queue(outbox: Outbox, deliveries: list[Delivery]) -> tuple[Outbox, list[Settled]]:
    """The outbox with more to deliver, and what had to be given up to make room."""
    grown = dict(outbox)
    given_up = []
    for delivery in deliveries:
        waiting = [d for d in grown.values() if d.destination == delivery.destination and d.stage is Stage.WAITING]
        if len(waiting) >= CAPACITY:
            given_up.append(Settled(grown.pop(waiting[0].id), "gave_up", "the outbox is full"))
        grown[delivery.id] = delivery
    return grown, given_up


def claim(outbox: Outbox, now: Moment) -> tuple[Outbox, list[Delivery]]:
    """Claim what is due: at most one delivery per destination is under way, so that a slow destination delays only itself.

    What is told of one group stays in order: an all-clear waits behind the alarm that is to be tried again.
    """
    changed: dict[str, Delivery] = {}
    busy: set[str] = set()
    for delivery in outbox.values():
        if delivery.stage is Stage.SENDING:
            if now.steady - delivery.next_at < SENDING_LIMIT:
                busy.add(delivery.destination)
            else:
                changed[delivery.id] = release(delivery, now)
    claimed = []
    spoken_for: set[tuple[str, str]] = set()
    for delivery in outbox.values():
        waiting = delivery.stage is Stage.WAITING and (delivery.destination, delivery.fingerprint) not in spoken_for
        spoken_for.add((delivery.destination, delivery.fingerprint))
        if waiting and delivery.destination not in busy and now.steady >= delivery.next_at:
            busy.add(delivery.destination)
            sending = replace(delivery, stage=Stage.SENDING, attempt=delivery.attempt + 1, next_at=now.steady)
            changed[delivery.id] = sending
            claimed.append(sending)
    return ({**outbox, **changed} if changed else outbox), claimed


def settle(outbox: Outbox, settled: DeliverySettled) -> tuple[Outbox, Settled | None]:
    """The outbox after an attempt ended, and the outcome to record. None: nobody waits for this any more."""
    delivery = outbox.get(settled.delivery_id)
    if delivery is None or delivery.stage is not Stage.SENDING:
        return outbox, None
    rest = {key: other for key, other in outbox.items() if key != delivery.id}
    if settled.outcome is Outcome.DELIVERED:
        return rest, Settled(delivery, Outcome.DELIVERED, settled.detail or None)
    if settled.outcome is Outcome.REJECTED or settled.at.steady - delivery.queued_at.steady >= GIVE_UP_AFTER:
        return rest, Settled(delivery, "gave_up", settled.detail or None)
    again = replace(
        delivery,
        stage=Stage.WAITING,
        next_at=settled.at.steady + back_off(delivery),
        possible_duplicate=delivery.possible_duplicate or settled.outcome is Outcome.TIMED_OUT,
    )
    return {**outbox, delivery.id: again}, Settled(delivery, settled.outcome, settled.detail or None)


def release(delivery: Delivery, now: Moment) -> Delivery:
    """A claim whose sender is gone: it may have been sent, so the next attempt is a possible duplicate."""
    if delivery.stage is Stage.WAITING:
        return delivery
    return replace(delivery, stage=Stage.WAITING, next_at=now.steady, possible_duplicate=True)


def back_off(delivery: Delivery) -> int:
    """How long to wait after the attempt that just failed: doubling, with ±20 % that differs from row to row."""
    delay = min(FIRST_RETRY << min(delivery.attempt - 1, 20), SLOWEST_RETRY)
    spread = crc32(f"{delivery.id}/{delivery.attempt}".encode()) % 401 - 200
    return delay + delay * spread // 1000
