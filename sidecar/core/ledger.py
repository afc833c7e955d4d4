"""The ledger: one document that all sidecars of a cluster share, so that one of them speaks for all.

Whoever has something to tell claims it before it is sent and marks it as told after. A claim that nobody takes back belongs to somebody who
is gone, and whoever has waited long enough for it takes it over: then the message may have arrived already, and says so.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from sidecar.core.alerts import Reason
from sidecar.core.deliveries import Delivery, Part
from sidecar.core.moment import SECOND

TAKE_OVER: Final = 40 * SECOND
"""So long a claim may stand unchanged before whoever waits for it takes it over. Above all that a living holder may need: to reach the
ledger, the time limit of an attempt, and to mark it."""
KEPT: Final = 7 * 24 * 3600 * SECOND
"""What nobody has touched for so long is forgotten."""
MOST_ALERTS: Final = 500
"""Of one group that are remembered as told: the latest. Of a larger notification so many stand for all."""
MOST_BYTES: Final = 256 << 10
"""Of the document. What was told longest ago goes first."""


class Claim(Struct, frozen=True):
    """Somebody is telling it now."""

    by: str
    """The observer."""
    token: str
    """Which attempt of it: another one is another claim."""
    about: tuple[str, ...] = ()
    """The alerts."""


class Entry(Struct, frozen=True):
    """What one destination was told of one group. Times are microseconds since the epoch, by the clock of whoever told."""

    told: Mapping[str, int] = {}
    """By alert: when it was over, if it was told that it is; else 0."""
    at: int = 0
    by: str = ""
    claim: Claim | None = None
    unsure: tuple[str, ...] = ()
    """The alerts of attempts of which nobody knows whether they arrived, until they are told."""
    changed_at: int = 0


class Ledger(Struct, frozen=True):
    """The document."""

    format: int = 1
    entries: Mapping[str, Entry] = {}
    """By destination and group."""
    began: int = 0
    """What was to be told before that, may have been marked in another ledger, which is lost. 0: there is none yet."""


class Standing(StrEnum):
    """What a ledger says of something that is to be told."""

    FREE = "free"
    """Nobody has told it, and nobody is about to."""
    OURS = "ours"
    """We were about to tell it, and it is not known what became of that."""
    HELD = "held"
    """Another observer is about to tell it."""
    TOLD = "told"
    """Another attempt has told all of it."""


def name_of(delivery: Delivery) -> str:
    """Under which name it stands in the ledger: the same for every observer with the same configuration."""
    return f"{delivery.destination} {delivery.fingerprint}"


def standing(ledger: Ledger, delivery: Delivery, observer: str) -> Standing:
    """What the ledger says of `delivery`."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    if not _has_news(entry, delivery):
        return Standing.TOLD
    if entry.claim is None:
        return Standing.FREE
    return Standing.OURS if entry.claim.by == observer else Standing.HELD


def repeats(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether it says, as if it were new, what was told before: by an observer that saw less of it, or saw it before it was over."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    known = [part.alert_id in entry.told and not _began_anew(entry, part) for part in delivery.parts]
    match delivery.reason:
        case Reason.FIRST:
            return any(known)
        case Reason.GREW:
            return all(known)
    return False


def begun(ledger: Ledger, wall: int) -> Ledger:
    """The ledger; where there is none, one that begins now."""
    return ledger if ledger.began else replace(ledger, began=wall)


def may_have_arrived(ledger: Ledger, delivery: Delivery) -> bool:
    """Whether an attempt was made to tell something of it, and nobody knows what became of that."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    unsure = {*entry.unsure, *(entry.claim.about if entry.claim else ())}
    news = [part.alert_id for part in delivery.parts if _is_news(entry, part)]
    return not unsure.isdisjoint(news or [part.alert_id for part in delivery.parts])


def oldest_news(ledger: Ledger, delivery: Delivery) -> int:
    """When the first of it happened that the ledger does not know: whoever could not say since then what was told may have told it."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    news = (part.began for part in delivery.parts if _is_news(entry, part))
    return min((delivery.queued_at.wall, *news))


def claimed(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int) -> Ledger:
    """The ledger in which it is claimed. Whatever was claimed before may have arrived."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    ours = replace(claim, about=tuple(part.alert_id for part in delivery.parts))
    return _with(ledger, delivery, replace(_doubted(entry, entry.claim), claim=ours), wall)


def marked(ledger: Ledger, delivery: Delivery, observer: str, wall: int) -> Ledger:
    """The ledger in which it was told at `wall`. Who else has claimed something of the group meanwhile, still has."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    told = {**entry.told}
    for part in delivery.parts:
        over = told.pop(part.alert_id, 0)  # the latest stand last
        told[part.alert_id] = part.ended or (0 if _began_anew(entry, part) else over)
    latest = dict([*told.items()][-MOST_ALERTS:])
    other = entry.claim if entry.claim and entry.claim.by != observer else None
    parts = {part.alert_id for part in delivery.parts}
    unsure = tuple(alert for alert in entry.unsure if alert not in parts)
    return _with(ledger, delivery, Entry(latest, wall, observer, other, unsure), wall)


def released(ledger: Ledger, delivery: Delivery, claim: Claim, wall: int, *, unsure: bool) -> Ledger:
    """The ledger in which `claim` is given back. The same one, where somebody else has it by now."""
    entry = ledger.entries.get(name_of(delivery), Entry())
    if entry.claim is None or entry.claim.token != claim.token or entry.claim.by != claim.by:
        return ledger
    left = _doubted(entry, entry.claim) if unsure else entry
    return _with(ledger, delivery, replace(left, claim=None), wall)


def read(content: bytes) -> Ledger:
    """The ledger that a document holds. What nobody can read is none: told again is better than never told."""
    if not content:
        return Ledger()
    try:
        return json.decode(content, type=Ledger)
    except (DecodeError, UnicodeDecodeError):
        return Ledger()


def written(ledger: Ledger, wall: int) -> bytes:
    """The document, within bounds: without what was told too long ago."""
    entries = {name: entry for name, entry in ledger.entries.items() if wall - entry.changed_at < KEPT}
    content = json.encode(replace(ledger, entries=entries))
    while len(content) > MOST_BYTES and entries:
        oldest = min(entries, key=lambda name: (entries[name].claim is not None, entries[name].changed_at))
        del entries[oldest]
        content = json.encode(replace(ledger, entries=entries))
    return content


def _has_news(entry: Entry, delivery: Delivery) -> bool:
    if any(_is_news(entry, part) for part in delivery.parts):
        return True
    # All observers say it again at about the same time: half the interval tells this time from the last one, whatever their clocks say.
    again = delivery.reason is Reason.REPEAT_INTERVAL_ELAPSED
    return again and delivery.queued_at.wall - entry.at >= delivery.repeat_interval // 2


def _is_news(entry: Entry, part: Part) -> bool:
    over = entry.told.get(part.alert_id)
    if over is None:
        return True
    if over == 0:
        return part.ended > 0
    return _began_anew(entry, part)


def _doubted(entry: Entry, claim: Claim | None) -> Entry:
    """The entry in which what was claimed may have arrived."""
    if claim is None:
        return entry
    return replace(entry, unsure=tuple(dict.fromkeys((*entry.unsure, *claim.about)))[-MOST_ALERTS:])


def _began_anew(entry: Entry, part: Part) -> bool:
    """Whether the same has begun again since it was told that it is over."""
    over = entry.told.get(part.alert_id, 0)
    return not part.is_event and over > 0 and part.began > over


def _with(ledger: Ledger, delivery: Delivery, entry: Entry, wall: int) -> Ledger:
    return replace(ledger, entries={**ledger.entries, name_of(delivery): replace(entry, changed_at=wall)})
