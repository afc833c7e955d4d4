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
LONGEST_WAIT: Final = 3600 * SECOND
"""Of what a service may ask for: one that asks for a year would be silent for ever."""
GIVES_WAY_AFTER: Final = 3
"""Attempts. A row that is rejected once more then makes room for a newer one of its group, which it would hold up for a day."""
GIVE_UP_AFTER: Final = 24 * 3600 * SECOND
SENDING_LIMIT: Final = 300 * SECOND
"""A claim older than this belongs to a sender that will not answer any more. Far above a sender's own hard limit."""
LEDGER_PATIENCE: Final = 15 * SECOND
"""So long a message waits for a ledger that is out of reach. Then it is sent without a claim, as a possible duplicate."""
LEDGER_PAUSE: Final = 2 * SECOND
"""Between two looks at a ledger that is out of reach, or at a claim that somebody else holds."""
CAPACITY: Final = 1000
"""Rows per destination. Beyond it the oldest one that waits is given up, and recorded as such."""


class Stage(StrEnum):
    """Where a delivery stands."""

    WAITING = "waiting"
    SENDING = "sending"


class Part(Struct, frozen=True):
    """One alert of a notification, for the ledger. Times are microseconds since the epoch."""

    alert_id: str
    began: int
    ended: int = 0
    """0: it is not over."""
    is_event: bool = False
    """It happens once: what is not so any more may become so again."""


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
    facts: tuple[tuple[str, str], ...] = ()
    """By name, to be shown below the body."""
    link: str | None = None
    """Where people find more."""
    episode_id: str | None = None
    parts: tuple[Part, ...] = ()
    """What of it every observer may have to tell. Nothing: it is ours alone."""
    repeat_interval: int = 0
    stage: Stage = Stage.WAITING
    attempt: int = 0
    possible_duplicate: bool = False
    without_ledger_since: int | None = None
    """Since when (steady) the ledger has been out of reach of it."""

    @property
    def is_shared(self) -> bool:
        """Whether it has to be claimed in the ledger before it is sent: not when that was out of reach for too long."""
        return bool(self.parts) and not self.fails_open

    @property
    def fails_open(self) -> bool:
        """Whether it is sent without a claim, as nobody can be asked."""
        return self.without_ledger_since is not None and self.next_at - self.without_ledger_since >= LEDGER_PATIENCE


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
    """The outbox after an attempt ended, and the outcome to record. None: nobody waits for this any more.

    What a service asks of us when it limits the rate, it asks of all that goes there.
    """
    delivery = outbox.get(settled.delivery_id)
    if delivery is None or delivery.stage is not Stage.SENDING:
        return outbox, None
    if settled.outcome in {Outcome.HELD, Outcome.NO_LEDGER}:
        return _waiting_for_ledger(outbox, delivery, settled)
    delivery = replace(delivery, possible_duplicate=delivery.possible_duplicate or settled.possible_duplicate)
    rest = {key: other for key, other in outbox.items() if key != delivery.id}
    detail = settled.detail or None
    if settled.outcome in {Outcome.DELIVERED, Outcome.ALREADY_TOLD}:
        attempts = delivery.attempt - (settled.outcome is Outcome.ALREADY_TOLD)  # which was none
        return rest, Settled(replace(delivery, attempt=attempts), settled.outcome, detail)
    too_late = settled.at.steady - delivery.queued_at.steady >= GIVE_UP_AFTER
    if settled.outcome is Outcome.UNDELIVERABLE or too_late:
        return rest, Settled(delivery, "gave_up", detail)
    if settled.outcome is Outcome.REJECTED and delivery.attempt >= GIVES_WAY_AFTER and _has_successor(delivery, outbox):
        return rest, Settled(delivery, "gave_up", f"{settled.detail}; a newer message of its group takes its place")
    again = replace(
        delivery,
        stage=Stage.WAITING,
        next_at=settled.at.steady + back_off(delivery, settled),
        possible_duplicate=delivery.possible_duplicate or settled.outcome is Outcome.TIMED_OUT,
        without_ledger_since=None,
    )
    held_up = {}
    if settled.outcome is Outcome.RATE_LIMITED:
        held_up = {
            key: replace(other, next_at=max(other.next_at, again.next_at))
            for key, other in rest.items()
            if other.destination == delivery.destination and other.stage is Stage.WAITING
        }
    return {**outbox, **held_up, delivery.id: again}, Settled(delivery, settled.outcome, detail)


def _waiting_for_ledger(outbox: Outbox, delivery: Delivery, settled: DeliverySettled) -> tuple[Outbox, Settled | None]:
    """Nothing was sent: looked at again in a moment, which is no attempt. That the ledger is given up is recorded."""
    now = settled.at.steady
    since = None
    if settled.outcome is Outcome.NO_LEDGER:
        since = now if delivery.without_ledger_since is None else delivery.without_ledger_since
    again = replace(
        delivery,
        stage=Stage.WAITING,
        attempt=delivery.attempt - 1,
        next_at=now + LEDGER_PAUSE,
        without_ledger_since=since,
    )
    record = Settled(again, Outcome.NO_LEDGER, settled.detail or None) if again.fails_open else None
    return {**outbox, delivery.id: again}, record


def release(delivery: Delivery, now: Moment) -> Delivery:
    """A claim whose sender is gone: it may have been sent, so the next attempt is a possible duplicate."""
    if delivery.stage is Stage.WAITING:
        return delivery
    return replace(delivery, stage=Stage.WAITING, next_at=now.steady, possible_duplicate=True)


def back_off(delivery: Delivery, settled: DeliverySettled) -> int:
    """How long to wait after the attempt that just failed, with ±20 % that differs from row to row: doubling, or the slowest where it was
    rejected. Never less than the service asked for, up to LONGEST_WAIT.
    """
    delay = min(FIRST_RETRY << min(delivery.attempt - 1, 20), SLOWEST_RETRY)
    if settled.outcome is Outcome.REJECTED:
        delay = SLOWEST_RETRY
    spread = crc32(f"{delivery.id}/{delivery.attempt}".encode()) % 401 - 200
    asked = min(settled.retry_after or 0, LONGEST_WAIT)
    return max(delay + delay * spread // 1000, asked + FIRST_RETRY * (spread + 200) // 400 if asked else 0)


def _has_successor(delivery: Delivery, outbox: Outbox) -> bool:
    """Whether something newer is to be told of the same group there."""
    same = [
        other.id
        for other in outbox.values()
        if (other.destination, other.fingerprint) == (delivery.destination, delivery.fingerprint)
    ]
    return same[-1] != delivery.id
