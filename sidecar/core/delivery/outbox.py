"""The outbox: one row per notification and destination, from queued to delivered or given up.

A row is in the journal before anybody is told. It is claimed (SENDING) before it is handed out, so that after a crash it is known which
rows may have arrived: they are sent again, labelled as a possible duplicate.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Member, Reason
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Severity

EARLY_RETRY: Final = 30 * SECOND
"""So long after its last attempt a message may be tried again before its pause is over: its destination took another one, or a newer one
of its group was queued."""
PROBE_GAP: Final = 5 * SECOND
"""Between an attempt that failed and that of another message to the same destination: one that is down is not tried for each."""
_ANYTHING: Final = ""
"""In place of the alerts of a message of which it is not known what it is about."""
SENDING_LIMIT: Final = 300 * SECOND
"""A claim older than this belongs to a sender that will not answer any more. Far above a sender's own hard limit."""
MOST_OWED: Final = 50
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
    subjects: tuple[str, ...] = ()
    """As of its alert."""
    certain: bool = True


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
    """The alerts that other observers may send too. Empty: they are this observer's alone."""
    owed: tuple[Member, ...] = ()
    """The first MOST_OWED of the alerts that it notifies of, for whoever takes over before it is delivered."""
    repeat_interval: int = 0
    send_resolved: bool = True
    """Whether its destination is notified when something is over."""
    stage: Stage = Stage.WAITING
    attempt: int = 0
    possible_duplicate: bool = False
    failed_at: int | None = None
    """When (steady) its last attempt failed. None: there was none, or the service asks for a pause."""
    without_ledger_since: int | None = None
    """Since when (steady) the ledger has been out of reach of it."""
    held_since: int | None = None
    """Since when (steady) it has waited for the ledger, whether that was out of reach or another observer had a claim."""
    fails_open: bool = False
    """It is sent without a claim: the ledger is unreachable, or others hold the claim for too long."""

    @property
    def is_heartbeat(self) -> bool:
        """Whether it is a heartbeat."""
        return self.reason is Reason.HEARTBEAT

    @property
    def is_shared(self) -> bool:
        """Whether it has to be claimed in the ledger before it is sent: not when that was out of reach for too long."""
        return bool(self.parts) and not self.fails_open


Outbox = Mapping[str, Delivery]


class Settled(Struct, frozen=True):
    """How an attempt ended, for the record."""

    delivery: Delivery
    outcome: str
    detail: str | None


def queue(outbox: Outbox, deliveries: list[Delivery]) -> tuple[Outbox, list[Settled]]:
    """The outbox with more to deliver, and what had to be given up to make room.

    A newer message of a group ends the pause of those that it may have to wait for.
    """
    grown = dict(outbox)
    given_up = []
    for delivery in deliveries:
        waiting = [other for other in waiting_for(grown, delivery.destination) if not other.is_heartbeat]
        if len(waiting) >= CAPACITY:
            given_up.append(Settled(grown.pop(waiting.pop(0).id), "gave_up", "the outbox is full"))
        group = [other for other in waiting if other.fingerprint == delivery.fingerprint]
        grown |= without_pause(group, delivery.queued_at.steady)
        grown[delivery.id] = delivery
    return grown, given_up


def with_heartbeats(outbox: Outbox, beats: Sequence[Delivery], *, blind: bool) -> Outbox:
    """The outbox with these heartbeats. One that still waits is dropped when it is replaced, or while nothing can be seen."""
    replaced = {beat.destination for beat in beats}
    dropped = {
        other.id
        for other in outbox.values()
        if other.is_heartbeat and other.stage is Stage.WAITING and (blind or other.destination in replaced)
    }
    if not beats and not dropped:
        return outbox
    kept = {key: other for key, other in outbox.items() if key not in dropped}
    return {**kept, **{beat.id: beat for beat in beats}}


def claim(outbox: Outbox, now: Moment) -> tuple[Outbox, list[Delivery]]:
    """Claim what is due: at most one delivery per destination is under way, so that a slow destination delays only itself."""
    lost = {
        delivery.id
        for delivery in outbox.values()
        if delivery.stage is Stage.SENDING and now.steady - delivery.next_at >= SENDING_LIMIT
    }
    outbox = released(outbox, lost, now) if lost else outbox
    changed: dict[str, Delivery] = {}
    busy: set[str] = set()
    due: set[str] = set()
    failed: dict[str, Delivery] = {}
    for delivery in outbox.values():
        if delivery.failed_at is not None:
            failed[delivery.destination] = max(failed.get(delivery.destination, delivery), delivery, key=_failed_at)
        if delivery.stage is Stage.SENDING:
            busy.add(delivery.destination)
        elif now.steady >= delivery.next_at:
            due.add(delivery.destination)
    claimed: list[Delivery] = []
    due -= busy
    ready = {key: delivery for key, delivery in outbox.items() if delivery.destination in due} if due else {}
    for delivery in sorted(that_may_go(ready), key=lambda delivery: not delivery.is_heartbeat):
        last = failed.get(delivery.destination, delivery)
        is_probe_due = last is delivery or now.steady >= _failed_at(last) + PROBE_GAP
        if delivery.destination not in busy and now.steady >= delivery.next_at and is_probe_due:
            busy.add(delivery.destination)
            sending = replace(delivery, stage=Stage.SENDING, attempt=delivery.attempt + 1, next_at=now.steady)
            changed[delivery.id] = sending
            claimed.append(sending)
    return ({**outbox, **changed} if changed else outbox), claimed


def that_may_go(outbox: Outbox) -> Iterator[Delivery]:
    """Those that wait, but for those that depend on an earlier one of their group: an all-clear never overtakes its alarm.

    Two messages depend on each other when they share an alert, or when it is not known what one of them is about.
    """
    ahead: dict[tuple[str, str], set[str]] = {}
    for delivery in outbox.values():
        earlier = ahead.setdefault((delivery.destination, delivery.fingerprint), set())
        about = {part.alert_id for part in delivery.parts} or {_ANYTHING}
        depends = earlier and (_ANYTHING in about or _ANYTHING in earlier or not about.isdisjoint(earlier))
        if delivery.stage is Stage.WAITING and not depends:
            yield delivery
        earlier |= about


def _failed_at(delivery: Delivery) -> int:
    return delivery.failed_at or 0


def without_pause(waiting: Iterable[Delivery], now: int) -> dict[str, Delivery]:
    """Those of them that wait since they failed, due now, or EARLY_RETRY after they were tried."""
    return {
        delivery.id: replace(delivery, next_at=min(delivery.next_at, max(now, delivery.failed_at + EARLY_RETRY)))
        for delivery in waiting
        if delivery.failed_at is not None
    }


def released(outbox: Outbox, lost: Collection[str], now: Moment) -> Outbox:
    """The outbox after the senders of these are gone. The time of a heartbeat is over."""
    return {
        key: release(delivery, now) if key in lost else delivery
        for key, delivery in outbox.items()
        if not (key in lost and delivery.is_heartbeat)
    }


def release(delivery: Delivery, now: Moment) -> Delivery:
    """A claim whose sender is gone: it may have been sent, so the next attempt is a possible duplicate."""
    if delivery.stage is Stage.WAITING:
        return delivery
    return replace(delivery, stage=Stage.WAITING, next_at=now.steady, possible_duplicate=True)


def waiting_for(outbox: Outbox, destination: str) -> list[Delivery]:
    return [other for other in outbox.values() if other.destination == destination and other.stage is Stage.WAITING]
