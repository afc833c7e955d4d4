"""What the ledger says of a notification, and how an attempt to send it changes the ledger.

A sidecar claims a notification before it sends it, renews the claim while it sends, and marks it as sent afterwards. A claim that stays
unchanged for LEASE belongs to a dead sidecar. Another one takes it over, and labels the message as a possible duplicate.
"""

from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import ledger_document
from sidecar.core.alerting.alerts import Reason
from sidecar.core.alerting.ledger_document import Claim, Ledger, LedgerEntry
from sidecar.core.alerting.outbox import Delivery, Part

MOST_INTERVALS: Final = 2
"""Repeat intervals after which an alert that was not repeated counts as another alert."""


class ClaimStanding(StrEnum):
    """What a ledger says about a notification."""

    FREE = "free"
    """Neither sent nor claimed."""
    OURS = "ours"
    """This observer was sending it, and the result is not known."""
    HELD = "held"
    """Another observer is sending it."""
    TOLD = "told"
    """All of it has been sent."""


def name_of(delivery: Delivery) -> str:
    """The name of its entry: the same for every observer with the same configuration."""
    return f"{delivery.destination} {delivery.fingerprint}"


def entry_of(ledger: Ledger, delivery: Delivery) -> LedgerEntry:
    """What the ledger says of its group."""
    return ledger.entries.get(name_of(delivery), LedgerEntry())


def standing(ledger: Ledger, delivery: Delivery, observer: str) -> ClaimStanding:
    entry = entry_of(ledger, delivery)
    if not _has_news(entry, delivery) or (delivery.is_closing and entry.lasting):
        return ClaimStanding.TOLD
    if entry.claim is None:
        return ClaimStanding.FREE
    return ClaimStanding.OURS if entry.claim.by == observer else ClaimStanding.HELD


def repeats(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether all that it reports as new was sent before, by an observer that saw fewer alerts or saw them earlier."""
    entry = entry_of(ledger, delivery)
    sent = [_last_sent(entry, part) is not None and not _began_anew(entry, part) for part in delivery.parts]
    match delivery.reason:
        case Reason.FIRST:
            # By an observer that did not know when it began, its subject may have been sent after that.
            known = (part for part in delivery.parts if entry.at >= part.began)
            return any(sent) or any(entry.sent.get(subject) == 0 for part in known for subject in part.subjects)
        case Reason.GREW:
            return all(sent)
    return False


def may_have_arrived(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether one of its alerts was in an attempt whose result is not known."""
    entry = entry_of(ledger, delivery)
    unsure = {*entry.unsure, *(entry.claim.about if entry.claim else ())}
    news = [part.alert_id for part in delivery.parts if _is_news(entry, part, delivery)]
    return not unsure.isdisjoint(news or [part.alert_id for part in delivery.parts])


def oldest_news(ledger: Ledger, delivery: Delivery) -> int:
    """When the first alert began that is not in the ledger."""
    entry = entry_of(ledger, delivery)
    news = (part.began for part in delivery.parts if _is_news(entry, part, delivery))
    return min((delivery.queued_at.wall, *news))


def ends(ledger: Ledger, delivery: Delivery, wall: int) -> bool:
    """Whether nothing of its group fires any more once it is sent, for no observer."""
    entry = entry_of(ledger, delivery)
    return not delivery.goes_on and not _lasting(entry, delivery, wall)


def claimed(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int) -> Ledger:
    """The ledger with this claim. The notification of a previous claim may have arrived."""
    entry = entry_of(ledger, delivery)
    ours = replace(claim, about=tuple(part.alert_id for part in delivery.parts))
    return _with_entry(ledger, delivery, replace(_with_doubt(entry, entry.claim), claim=ours), wall)


def renewed(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int) -> Ledger:
    """The ledger in which `claim` is renewed; unchanged if it is there no longer."""
    entry = entry_of(ledger, delivery)
    if entry.claim is None or not _is_same(entry.claim, claim):
        return ledger
    again = replace(entry.claim, renewed=(entry.claim.renewed or 0) + 1)
    return _with_entry(ledger, delivery, replace(entry, claim=again), wall)


def marked(ledger: Ledger, delivery: Delivery, observer: str, wall: int) -> Ledger:
    """The ledger in which it is marked as sent at `wall`. Claims of others on the group are kept."""
    entry = entry_of(ledger, delivery)
    sent = {**entry.sent}
    for part in delivery.parts:
        over = sent.pop(part.alert_id, 0)  # the latest come last
        sent[part.alert_id] = part.ended or (0 if _began_anew(entry, part) else over)
        for subject in part.subjects[:1]:
            over = sent.pop(subject, 0)
            sent[subject] = part.ended or (over if over >= part.began else 0)
    latest = dict([*sent.items()][-ledger_document.MOST_ALERTS :])
    other = entry.claim if entry.claim and entry.claim.by != observer else None
    parts = {part.alert_id for part in delivery.parts}
    unsure = tuple(alert for alert in entry.unsure if alert not in parts)
    return _with_entry(
        ledger,
        delivery,
        LedgerEntry(latest, wall, observer, other, unsure, lasting=_lasting(entry, delivery, wall)),
        wall,
    )


def released(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int, *, unsure: bool) -> Ledger:
    """The ledger without `claim`; unchanged if another observer holds it now."""
    entry = entry_of(ledger, delivery)
    if entry.claim is None or not _is_same(entry.claim, claim):
        return ledger
    after = _with_doubt(entry, entry.claim) if unsure else entry
    return _with_entry(ledger, delivery, replace(after, claim=None), wall)


def _has_news(entry: LedgerEntry, delivery: Delivery) -> bool:
    if any(_is_news(entry, part, delivery) for part in delivery.parts):
        return True
    # All observers repeat it at about the same time: half an interval tells this repetition from the last one, whatever their clocks say.
    again = delivery.reason is Reason.REPEAT_INTERVAL_ELAPSED
    return again and delivery.queued_at.wall - entry.at >= delivery.repeat_interval // 2


def _is_news(entry: LedgerEntry, part: Part, delivery: Delivery) -> bool:
    match _last_sent(entry, part):
        case None:
            return True
        case 0:
            if part.alert_id not in entry.sent and not delivery.send_resolved:
                return True  # without resolves, an alert that was sent may have resolved long ago
            # A firing alert is repeated in each interval. An older entry was another alert.
            forgotten = not part.is_event and part.began - entry.at > MOST_INTERVALS * delivery.repeat_interval > 0
            return part.ended > 0 or forgotten
        case ledger_document.DROPPED:
            return not part.ended and not part.is_event
    return _began_anew(entry, part)


def _last_sent(entry: LedgerEntry, part: Part) -> int | None:
    """What was sent of it last, as an entry has it: when it was resolved, 0 for that it fires, or DROPPED; None: nothing.

    If this observer does not know when the alert began, the entry of its subject decides; else that entry may show that it is resolved.
    """
    ended = entry.sent.get(part.alert_id)
    for subject in part.subjects:
        its = entry.sent.get(subject)
        if (ended is None and not part.certain) or (ended == 0 and its and its >= part.began):
            ended = its
    return ended


def _lasting(entry: LedgerEntry, delivery: Delivery, wall: int) -> tuple[str, ...]:
    """What fires once the delivery is sent. What fires is repeated, so a repetition names all of it, and an old entry none."""
    forgotten = wall - entry.at > MOST_INTERVALS * delivery.repeat_interval > 0
    all_is_named = forgotten or delivery.reason is Reason.REPEAT_INTERVAL_ELAPSED
    lasting = dict.fromkeys(() if all_is_named else entry.lasting)
    for part in delivery.parts:
        name = part.subjects[0] if part.subjects else part.alert_id
        lasting.pop(name, None)
        if not part.ended:
            lasting[name] = None
    return tuple(lasting)[-ledger_document.MOST_ALERTS :]


def _is_same(claim: Claim, other: Claim) -> bool:
    return (claim.by, claim.token) == (other.by, other.token)


def _with_doubt(entry: LedgerEntry, claim: Claim | None) -> LedgerEntry:
    """The entry in which the alerts of a claim may have arrived."""
    about = claim.about if claim else ()
    return replace(entry, unsure=tuple(dict.fromkeys((*entry.unsure, *about)))[-ledger_document.MOST_ALERTS :])


def _began_anew(entry: LedgerEntry, part: Part) -> bool:
    """Whether the same condition began again after its end was sent."""
    last = _last_sent(entry, part)
    if not last or part.is_event:
        return False
    return last == ledger_document.DROPPED or part.began > last


def _with_entry(ledger: Ledger, delivery: Delivery, entry: LedgerEntry, wall: int) -> Ledger:
    return replace(ledger, entries={**ledger.entries, name_of(delivery): replace(entry, changed_at=wall)})
