"""The ledger: one document that all sidecars of a cluster share, so that one of them notifies for all.

A sidecar claims a notification before it sends it, renews the claim while it sends, and marks it as sent afterwards. A claim that stays
unchanged for LEASE belongs to a dead sidecar. Another one takes it over, and labels the message as a possible duplicate.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.delivery import presence
from sidecar.core.delivery.outbox import Delivery, Part
from sidecar.core.delivery.presence import Observers, Presence
from sidecar.core.errors import OperatorError
from sidecar.core.moment import SECOND

LEASE: Final = 10 * SECOND
"""Age at which an unchanged claim may be taken over. Its holder renews it several times in this time, or ends sending before."""
LEASE_UNRENEWED: Final = 40 * SECOND
"""The same of a claim that is not renewed. Longer than its living holder needs to reach the ledger, to send, and to mark it."""
KEPT: Final = 7 * 24 * 3600 * SECOND
"""Entries that have not changed for this long are dropped."""
DROPPED: Final = 1
"""In place of the time of its end: another configuration does not notify of the alert any more. It is news as soon as it fires again."""
MOST_ALERTS: Final = 500
"""Alerts per group that are remembered as sent, the latest. Of a larger notification this many represent all."""
MOST_INTERVALS: Final = 2
"""Repeat intervals after which an alert that was not repeated counts as another alert."""
MOST_ENTRIES: Final = 2000
"""Entries that are read. Those that are written fit in MOST_BYTES."""
LONGEST_ID: Final = 100
"""Characters of an alert's id. Ours have 36."""
LONGEST_NAME: Final = 1000
"""Characters of the name of an entry, an observer or an attempt."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""The largest difference of observers' clocks. A time further in the future is invalid."""
MOST_RENEWALS: Final = 1000
"""Of a claim: far more than there are in one attempt."""
MOST_BYTES: Final = 256 << 10
"""Of the document. The entry that changed longest ago is dropped first."""


class Claim(Struct, frozen=True):
    """An observer is sending a notification now."""

    by: str
    """The observer."""
    token: str
    """Identifies the attempt: another attempt is another claim."""
    about: tuple[str, ...] = ()
    """The ids of the alerts."""
    renewed: int | None = None
    """How often it was renewed. None: it is not, or a sidecar that does not know of renewals has written the document since."""


class Entry(Struct, frozen=True, rename={"sent": "told"}):
    """What was sent to one destination about one group. Times are microseconds since the epoch, by the sender's clock."""

    sent: Mapping[str, int] = {}
    """By alert: when it was resolved, if the resolve was sent; else 0."""
    at: int = 0
    by: str = ""
    claim: Claim | None = None
    unsure: tuple[str, ...] = ()
    """Alerts of attempts that may have arrived, until they are sent."""
    changed_at: int = 0
    lasting: tuple[str, ...] = ()
    """What fires according to all that was sent: subjects of alerts, else their ids. An observer may know of less."""


class Ledger(Struct, frozen=True):
    """The document."""

    format: int = 1
    """FORMAT."""
    entries: Mapping[str, Entry] = {}
    """By destination and group."""
    began: int = 0
    """Notifications before this time may have been marked in an earlier ledger, which is lost. 0: there is no ledger yet."""
    observers: Observers = {}
    """Who watches the cluster now."""


FORMAT: Final = 1


class ForeignFormatError(OperatorError):
    """A newer version has written it. It is left alone."""


class _Header(Struct, frozen=True):
    format: int = FORMAT


_LEDGER: Final = json.Decoder(Ledger)
_HEADER: Final = json.Decoder(_Header)


class Standing(StrEnum):
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


def standing(ledger: Ledger, delivery: Delivery, observer: str) -> Standing:
    entry = ledger.entries.get(name_of(delivery), Entry())
    if not _has_news(entry, delivery) or (delivery.is_closing and entry.lasting):
        return Standing.TOLD
    if entry.claim is None:
        return Standing.FREE
    return Standing.OURS if entry.claim.by == observer else Standing.HELD


def repeats(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether all that it reports as new was sent before, by an observer that saw fewer alerts or saw them earlier."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    known = [_sent(entry, part) is not None and not _began_anew(entry, part) for part in delivery.parts]
    match delivery.reason:
        case Reason.FIRST:
            return any(known) or any(_may_be_another(entry, part) for part in delivery.parts)
        case Reason.GREW:
            return all(known)
    return False


def begun(ledger: Ledger, wall: int) -> Ledger:
    """The ledger; where there is none, one that begins now."""
    return ledger if ledger.began else replace(ledger, began=wall)


def may_have_arrived(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether one of its alerts was in an attempt whose result is not known."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    unsure = {*entry.unsure, *(entry.claim.about if entry.claim else ())}
    news = [part.alert_id for part in delivery.parts if _is_news(entry, part, delivery)]
    return not unsure.isdisjoint(news or [part.alert_id for part in delivery.parts])


def oldest_news(ledger: Ledger, delivery: Delivery) -> int:
    """When the first alert began that is not in the ledger."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    news = (part.began for part in delivery.parts if _is_news(entry, part, delivery))
    return min((delivery.queued_at.wall, *news))


def ends(ledger: Ledger, delivery: Delivery, wall: int) -> bool:
    """Whether nothing of its group fires any more once it is sent, for no observer."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    return not delivery.goes_on and not _lasting(entry, delivery, wall)


def claimed(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int) -> Ledger:
    """The ledger with this claim. The notification of a previous claim may have arrived."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    ours = replace(claim, about=tuple(part.alert_id for part in delivery.parts))
    return _with(ledger, delivery, replace(_doubted(entry, entry.claim), claim=ours), wall)


def renewed(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int) -> Ledger:
    """The ledger in which `claim` is renewed; unchanged if it is there no longer."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    if entry.claim is None or not _is_same(entry.claim, claim):
        return ledger
    again = replace(entry.claim, renewed=(entry.claim.renewed or 0) + 1)
    return _with(ledger, delivery, replace(entry, claim=again), wall)


def marked(ledger: Ledger, delivery: Delivery, observer: str, wall: int) -> Ledger:
    """The ledger in which it is marked as sent at `wall`. Claims of others on the group are kept."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    sent = {**entry.sent}
    for part in delivery.parts:
        over = sent.pop(part.alert_id, 0)  # the latest come last
        sent[part.alert_id] = part.ended or (0 if _began_anew(entry, part) else over)
        for subject in part.subjects[:1]:
            over = sent.pop(subject, 0)
            sent[subject] = part.ended or (over if over >= part.began else 0)
    latest = dict([*sent.items()][-MOST_ALERTS:])
    other = entry.claim if entry.claim and entry.claim.by != observer else None
    parts = {part.alert_id for part in delivery.parts}
    unsure = tuple(alert for alert in entry.unsure if alert not in parts)
    return _with(
        ledger, delivery, Entry(latest, wall, observer, other, unsure, lasting=_lasting(entry, delivery, wall)), wall
    )


def released(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int, *, unsure: bool) -> Ledger:
    """The ledger without `claim`; unchanged if another observer holds it now."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    if entry.claim is None or not _is_same(entry.claim, claim):
        return ledger
    left = _doubted(entry, entry.claim) if unsure else entry
    return _with(ledger, delivery, replace(left, claim=None), wall)


def announced(ledger: Ledger, observer: str, its: Presence) -> Ledger:
    """The ledger in which `observer` has published this."""
    return replace(ledger, observers={**ledger.observers, observer: its})


def read(content: bytes) -> Ledger:
    """The ledger in a document, unchecked: see `believed`. An unreadable document is an empty ledger: a duplicate is better than a loss.

    Raises ForeignFormatError: what it says is not known, and must not be lost.
    """
    try:
        found = _HEADER.decode(content).format if content else FORMAT
        if found > FORMAT:
            raise ForeignFormatError(
                f"the ledger was written by a newer version (format {found}, this version reads {FORMAT}): update this sidecar, "
                "or delete the ledger"
            )
        return _LEDGER.decode(content) if content and found == FORMAT else Ledger()
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return Ledger()


def believed(ledger: Ledger, wall: int) -> Ledger:
    """The plausible part of an untrusted ledger: bounded in every way, with no time in the future.

    The alerts of an entry with an impossible time may have been sent.
    """
    names = [name for name in ledger.entries if len(name) <= LONGEST_NAME]
    if len(names) > MOST_ENTRIES:
        names = sorted(names, key=lambda name: -ledger.entries[name].changed_at)[:MOST_ENTRIES]
    entries = {name: _believed(ledger.entries[name], wall) for name in names}
    observers = presence.present(ledger.observers, wall, wall + CLOCK_SKEW, LONGEST_NAME)
    return Ledger(FORMAT, entries, ledger.began if _is_past(ledger.began, wall) else 0, observers)


def _believed(entry: Entry, wall: int) -> Entry:
    sent = {alert: entry.sent[alert] for alert in _ids(entry.sent)}
    timely = _is_past(entry.at, wall) and _is_past(entry.changed_at, wall)
    doubted = dict.fromkeys(alert for alert, over in sent.items() if not (timely and _is_past(over, wall)))
    claim = entry.claim
    if claim:
        is_counted = claim.renewed is not None and 0 <= claim.renewed < MOST_RENEWALS
        claim = replace(claim, about=_ids(claim.about), renewed=claim.renewed if is_counted else None)
        if max(len(claim.by), len(claim.token)) > LONGEST_NAME:
            doubted |= dict.fromkeys(claim.about)
            claim = None
    return Entry(
        {alert: over for alert, over in sent.items() if alert not in doubted},
        entry.at if timely else 0,
        entry.by[:LONGEST_NAME],
        claim,
        tuple(dict.fromkeys((*_ids(entry.unsure), *doubted)))[-MOST_ALERTS:],
        entry.changed_at if timely else wall,
        _ids(entry.lasting),
    )


def _ids(alerts: Iterable[str]) -> tuple[str, ...]:
    return tuple(alert for alert in alerts if len(alert) <= LONGEST_ID)[-MOST_ALERTS:]


def _is_past(time: int, wall: int) -> bool:
    return 0 <= time <= wall + CLOCK_SKEW


def written(ledger: Ledger, wall: int) -> bytes:
    """The document within MOST_BYTES, without entries that are too old."""
    entries = {name: entry for name, entry in ledger.entries.items() if wall - entry.changed_at < KEPT}
    content = json.encode(replace(ledger, entries=entries))
    excess = len(content) - MOST_BYTES
    for name in sorted(entries, key=lambda name: (entries[name].claim is not None, entries[name].changed_at)):
        if excess <= 0:
            break
        excess -= len(json.encode({name: entries.pop(name)})) - 1  # a comma in place of two braces
    return content if len(content) <= MOST_BYTES else json.encode(replace(ledger, entries=entries))


def _has_news(entry: Entry, delivery: Delivery) -> bool:
    if any(_is_news(entry, part, delivery) for part in delivery.parts):
        return True
    # All observers repeat it at about the same time: half an interval tells this repetition from the last one, whatever their clocks say.
    again = delivery.reason is Reason.REPEAT_INTERVAL_ELAPSED
    return again and delivery.queued_at.wall - entry.at >= delivery.repeat_interval // 2


def _is_news(entry: Entry, part: Part, delivery: Delivery) -> bool:
    over = _sent(entry, part)
    if over is None:
        return True
    if over == 0:
        if part.alert_id not in entry.sent and not delivery.send_resolved:
            return True  # without resolves, an alert that was sent may have resolved long ago
        # A firing alert is repeated in each interval. An older entry was another alert.
        forgotten = not part.is_event and part.began - entry.at > MOST_INTERVALS * delivery.repeat_interval > 0
        return part.ended > 0 or forgotten
    return _began_anew(entry, part) and not (over == DROPPED and part.ended)


def _sent(entry: Entry, part: Part) -> int | None:
    """When it was resolved according to what was sent, 0 while it fires; None: it was not sent.

    If this observer does not know when the alert began, the entry of its subject decides; else that entry may show that it is resolved.
    """
    over = entry.sent.get(part.alert_id)
    for subject in part.subjects:
        known = entry.sent.get(subject)
        if (over is None and not part.certain) or (over == 0 and known and known >= part.began):
            over = known
    return over


def _may_be_another(entry: Entry, part: Part) -> bool:
    """Whether its subject was sent after it began, by an observer that did not know when it began."""
    return entry.at >= part.began and any(entry.sent.get(subject) == 0 for subject in part.subjects)


def _lasting(entry: Entry, delivery: Delivery, wall: int) -> tuple[str, ...]:
    """What fires once the delivery is sent. What fires is repeated, so a repetition names all of it, and an old entry none."""
    forgotten = wall - entry.at > MOST_INTERVALS * delivery.repeat_interval > 0
    known = () if forgotten or delivery.reason is Reason.REPEAT_INTERVAL_ELAPSED else entry.lasting
    found = dict.fromkeys(known)
    for part in delivery.parts:
        name = part.subjects[0] if part.subjects else part.alert_id
        found.pop(name, None)
        if not part.ended:
            found[name] = None
    return tuple(found)[-MOST_ALERTS:]


def _is_same(claim: Claim, other: Claim) -> bool:
    """Whether both are of one attempt."""
    return (claim.by, claim.token) == (other.by, other.token)


def _doubted(entry: Entry, claim: Claim | None) -> Entry:
    """The entry in which the alerts of a claim may have arrived."""
    about = claim.about if claim else ()
    return replace(entry, unsure=tuple(dict.fromkeys((*entry.unsure, *about)))[-MOST_ALERTS:])


def _began_anew(entry: Entry, part: Part) -> bool:
    """Whether the same condition began again after its resolve was sent."""
    over = _sent(entry, part) or 0
    return not part.is_event and over > 0 and part.began > over


def _with(ledger: Ledger, delivery: Delivery, entry: Entry, wall: int) -> Ledger:
    return replace(ledger, entries={**ledger.entries, name_of(delivery): replace(entry, changed_at=wall)})
