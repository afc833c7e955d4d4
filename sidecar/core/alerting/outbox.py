"""The outbox: one row per notification and destination, from queued to delivered or given up.

A row is in the journal before it is sent. It is claimed (SENDING) before it is handed out, so that after a crash it is known which rows
may have arrived: they are sent again, labelled as a possible duplicate. After an attempt a row leaves, or waits for the next one.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Member, Reason
from sidecar.core.cluster.record_lines import DUPLICATE_NOTE
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.failover.recovery_state import RecoverySummary
from sidecar.core.message import Message
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import DeliveryOutcome, DeliverySettled
from sidecar.core.policy.policy import Severity

EARLY_RETRY: Final = 30 * SECOND
"""A pause ends this long after the last attempt if the destination accepted another message, or a newer one of the group was queued."""
PROBE_GAP: Final = 5 * SECOND
"""Between a failed attempt and that of another message to the same destination, so that one that is down is not tried for each."""
SUPERSEDED: Final = "superseded"
"""The outcome of a message that was scheduled, and is not needed any more: no fault."""
_REPLACED: Final = "a newer message of its group decides when the incident ends"
_ANYTHING: Final = ""
"""Stands for the alerts of a message whose alerts are not known."""
SENDING_LIMIT: Final = 300 * SECOND
"""The sender of an older claim is dead. Far above a sender's own hard limit."""
_ID: Final = re.compile(r"[0-9a-f-]{36}")
"""A thread comes with a group, and a group may come from a handover, which others can write."""
CAPACITY: Final = 1000
"""Rows per destination. Beyond it the oldest waiting row is given up, and recorded as such."""


class Stage(StrEnum):
    """The state of a delivery."""

    WAITING = "waiting"
    SENDING = "sending"


class Part(Struct, frozen=True):
    """One alert of a notification, for the ledger. Times are microseconds since the epoch."""

    alert_id: str
    began: int
    ended: int = 0
    """0: still firing."""
    is_event: bool = False
    """This and the following fields are those of its alert."""
    subjects: tuple[str, ...] = ()
    certain: bool = True


class Delivery(Message, frozen=True, kw_only=True):
    """One notification for one destination. The sender looks up the endpoint.

    An empty `incident` is the fingerprint, an empty `thread` the incident; a resend gets its `feed` when it is sent.
    """

    id: str
    destination: str
    cluster_id: str
    alert: str
    fingerprint: str
    reason: Reason
    severity: Severity
    queued_at: Moment
    next_at: int
    death: DeathVerdict | None = None
    recovery: RecoverySummary | None = None
    parts: tuple[Part, ...] = ()
    """The alerts that other observers may send too. Empty: the alerts are about this observer alone."""
    owed: tuple[Member, ...] = ()
    """The first MOST_OWED alerts of the message, for a sidecar that takes over before it is delivered."""
    agreement: Agreement | None = None
    """That of its first alert that has one."""
    in_order: bool = False
    """It waits for every earlier message of its group."""
    is_closing: bool = False
    """It only closes an incident that no resolve would close: one of events. A newer message of the group takes its place."""
    repeat_interval: int = 0
    send_resolved: bool = True
    stage: Stage = Stage.WAITING
    attempt: int = 0
    failed_at: int | None = None
    """When (steady) its last attempt failed. None: no attempt failed, or the service asked for a pause."""
    without_ledger_since: int | None = None
    """Since when (steady) the ledger has been unreachable."""
    held_since: int | None = None
    """Since when (steady) it has waited for the ledger: unreachable, or claimed by another observer."""
    fails_open: bool = False
    """It is sent without a claim: the ledger is unreachable, or others hold the claim for too long."""

    @property
    def is_heartbeat(self) -> bool:
        return self.reason is Reason.HEARTBEAT

    @property
    def is_transient(self) -> bool:
        """Whether it is neither retried nor sent late, since the next one replaces it."""
        return self.reason in {Reason.HEARTBEAT, Reason.RESEND}

    @property
    def is_scheduled(self) -> bool:
        """Whether it closes an incident later, and was not due yet: it is not late."""
        return self.is_closing and self.stage is Stage.WAITING and not self.attempt

    @property
    def is_shared(self) -> bool:
        """Whether it must be claimed in the ledger before it is sent."""
        return bool(self.parts) and not self.fails_open


Outbox = Mapping[str, Delivery]


class Settled(Struct, frozen=True):
    """How an attempt ended, for the record."""

    delivery: Delivery
    outcome: str
    detail: str | None


def queue(outbox: Outbox, deliveries: list[Delivery]) -> tuple[Outbox, list[Settled]]:
    """The outbox with more deliveries, and those that are superseded, or given up to make room.

    A newer message of a group ends the pause of those that it may have to wait for.
    """
    grown = dict(outbox)
    given_up = []
    for delivery in deliveries:
        waiting = [other for other in waiting_for(grown, delivery.destination) if not other.is_transient]
        if not waiting:
            grown[delivery.id] = delivery
            continue
        closing = [other for other in waiting if other.is_closing and other.fingerprint == delivery.fingerprint]
        replaced = [other for other in closing if other.incident == delivery.incident]
        # Other external labels gave the group another incident: the one before is closed first.
        now = delivery.queued_at.steady
        grown |= {other.id: replace(other, next_at=now) for other in closing if other not in replaced}
        given_up += [Settled(grown.pop(other.id), SUPERSEDED, _REPLACED) for other in replaced]
        waiting = [other for other in waiting if other not in replaced]
        if len(waiting) >= CAPACITY:
            given_up.append(Settled(grown.pop(waiting.pop(0).id), "gave_up", "the outbox is full"))
        group = [other for other in waiting if other.fingerprint == delivery.fingerprint]
        grown |= without_pause(group, delivery.queued_at.steady)
        grown[delivery.id] = delivery
    return grown, given_up


def with_heartbeats(outbox: Outbox, beats: Sequence[Delivery], *, blind: bool) -> Outbox:
    """The outbox with these heartbeats and resends. A waiting one is dropped when it is replaced, a heartbeat also while blind."""
    replaced = {beat.destination for beat in beats}
    dropped = {
        other.id
        for other in outbox.values()
        if other.is_transient
        and other.stage is Stage.WAITING
        and ((blind and other.is_heartbeat) or other.destination in replaced)
    }
    if not beats and not dropped:
        return outbox
    return {key: other for key, other in outbox.items() if key not in dropped} | {beat.id: beat for beat in beats}


def claim(outbox: Outbox, now: Moment) -> tuple[Outbox, list[Delivery]]:
    """Claim the deliveries that are due, at most one per destination, so that a slow destination delays only itself."""
    lost = {
        delivery.id
        for delivery in outbox.values()
        if delivery.stage is Stage.SENDING and now.steady - delivery.next_at >= SENDING_LIMIT
    }
    outbox = released(outbox, lost, now) if lost else outbox
    busy = {delivery.destination for delivery in outbox.values() if delivery.stage is Stage.SENDING}
    due = {delivery.destination for delivery in outbox.values() if now.steady >= delivery.next_at} - busy
    failed: dict[str, Delivery] = {}
    for delivery in outbox.values():
        if delivery.failed_at is not None:
            failed[delivery.destination] = max(failed.get(delivery.destination, delivery), delivery, key=_failed_at)
    changed: dict[str, Delivery] = {}
    ready = {key: delivery for key, delivery in outbox.items() if delivery.destination in due} if due else {}
    for delivery in sorted(sendable(ready), key=lambda delivery: not delivery.is_transient):
        last = failed.get(delivery.destination, delivery)
        is_probe_due = last is delivery or now.steady >= _failed_at(last) + PROBE_GAP
        if delivery.destination not in busy and now.steady >= delivery.next_at and is_probe_due:
            busy.add(delivery.destination)
            sending = replace(delivery, stage=Stage.SENDING, attempt=delivery.attempt + 1, next_at=now.steady)
            changed[delivery.id] = sending
    return ({**outbox, **changed} if changed else outbox), [*changed.values()]


def sendable(outbox: Outbox) -> Iterator[Delivery]:
    """The waiting deliveries that do not depend on an earlier one of their group: a resolve never overtakes its alert.

    Two messages depend on each other if they share an alert, if the alerts of one of them are not known, or if one is sent in order.
    """
    ahead: dict[tuple[str, str], set[str]] = {}
    for delivery in outbox.values():
        earlier = ahead.setdefault((delivery.destination, delivery.fingerprint), set())
        about = set() if delivery.in_order else {part.alert_id for part in delivery.parts}
        about = about or {_ANYTHING}
        depends = earlier and (_ANYTHING in about or _ANYTHING in earlier or not about.isdisjoint(earlier))
        if delivery.stage is Stage.WAITING and not depends:
            yield delivery
        earlier |= about


def _failed_at(delivery: Delivery) -> int:
    return delivery.failed_at or 0


def without_pause(waiting: Iterable[Delivery], now: int) -> dict[str, Delivery]:
    """The failed ones of `waiting`, due now or EARLY_RETRY after their last attempt."""
    return {
        delivery.id: replace(delivery, next_at=min(delivery.next_at, max(now, delivery.failed_at + EARLY_RETRY)))
        for delivery in waiting
        if delivery.failed_at is not None
    }


def released(outbox: Outbox, lost: Collection[str], now: Moment) -> Outbox:
    """The outbox after the senders of these died. Their heartbeats and resends are dropped: they would be late."""
    return {
        key: release(delivery, now) if key in lost else delivery
        for key, delivery in outbox.items()
        if not (key in lost and delivery.is_transient)
    }


def release(delivery: Delivery, now: Moment) -> Delivery:
    """A delivery whose sender died: it may have been sent, so the next attempt is a possible duplicate."""
    if delivery.stage is Stage.WAITING:
        return delivery
    return replace(delivery, stage=Stage.WAITING, next_at=now.steady, possible_duplicate=True)


def waiting_for(outbox: Outbox, destination: str) -> list[Delivery]:
    return [other for other in outbox.values() if other.destination == destination and other.stage is Stage.WAITING]


def outgoing(delivery: Delivery) -> Message:
    """The message as its service gets it, with the note about a possible duplicate, and without what only the outbox needs."""
    reason = Reason.FIRST if delivery.reason is Reason.DRILL else delivery.reason
    if reason is Reason.CONFIGURATION_CHANGED:
        reason = Reason.SHRANK if delivery.goes_on else Reason.RESOLVED
    return replace(
        delivery,
        body=f"{delivery.body}\n\n{DUPLICATE_NOTE}" if delivery.possible_duplicate else delivery.body,
        reason=reason,
        incident=delivery.incident or delivery.fingerprint,
        thread=delivery.thread if _ID.fullmatch(delivery.thread) else "",
        parts=(),
        owed=(),
    )


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
