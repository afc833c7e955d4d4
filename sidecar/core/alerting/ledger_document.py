"""The ledger: one document that all sidecars of a cluster share, so that one of them notifies for all. What it says of a notification, and
how an attempt to send it changes it: see `claims`.

It also says which observers watch the cluster, and where each can be asked, so that one that is cut off from the store still knows whom to
ask.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import DecodeError, Struct, json
from msgspec.structs import replace

from sidecar.core.bounds import LEDGER
from sidecar.core.errors import OperatorError
from sidecar.core.moment import SECOND

RENEWED: Final = 540 * SECOND
"""An observer publishes itself again after so long, or when it is not as it was published."""
OBSERVER_KEPT: Final = 1200 * SECOND
"""An observer that has not published anything for so long has ended."""
SENDER_KEPT: Final = 7 * 24 * 3600 * SECOND
"""For so long the answers of an observer count that was found to have sent a notification: as long as the ledger remembers one."""
MOST_OBSERVERS: Final = 16
LONGEST_ADDRESS: Final = 300
"""Characters."""


class Presence(Struct, frozen=True):
    """What one observer published. Times are microseconds since the epoch, by its own clock; 0: never."""

    at: int
    address: str = ""
    """`http://HOST:PORT` of its HTTP server. Empty: other machines cannot reach it."""
    store_seen_at: int = 0
    """When it could last read the store."""
    leader_seen_at: int = 0
    """When it last saw a leader."""


Observers = Mapping[str, Presence]
"""By name."""


class Sender(Struct, frozen=True):
    """An observer that was found to have sent a notification of this one."""

    address: str
    """Where it could be asked then. Another address under its name is another observer's, until it has sent from there."""
    until: int
    """From then on it is no longer lately. Wall microseconds."""


Senders = Mapping[str, Sender]
"""By name."""


def with_sender(senders: Senders, observers: Observers, name: str, sent_at: int, wall: int) -> Senders:
    """The senders once a notification of this observer was found marked as sent by `name` at `sent_at`: the last MOST_OBSERVERS of them.

    Unchanged if `name` is not among the observers.
    """
    if name not in observers:
        return senders
    others = {key: sender for key, sender in senders.items() if key != name and sender.until > wall}
    kept = dict([*others.items()][-(MOST_OBSERVERS - 1) :])
    return {**kept, name: Sender(observers[name].address, min(sent_at, wall) + SENDER_KEPT)}


def voting(observers: Observers, senders: Senders, wall: int) -> Observers:
    """Those whose answers count: what else a document says of an observer, whoever can write it can invent."""
    return {
        name: presence
        for name, presence in observers.items()
        if (sender := senders.get(name)) and sender.until > wall and sender.address == presence.address
    }


def present(observers: Observers, wall: int, latest: int, longest_name: int) -> Observers:
    """Those of an untrusted document that can be: published lately, not after `latest`, the last MOST_OBSERVERS of them."""
    lately = {
        name: presence
        for name, presence in observers.items()
        if len(name) <= longest_name
        and len(presence.address) <= LONGEST_ADDRESS
        and wall - OBSERVER_KEPT <= presence.at <= latest
    }
    return dict(sorted(lately.items(), key=lambda item: (-item[1].at, item[0]))[:MOST_OBSERVERS])


def others(observers: Observers, observer: str) -> Observers:
    """Without this one."""
    return {name: presence for name, presence in observers.items() if name != observer}


LEASE: Final = 10 * SECOND
"""Age at which an unchanged claim may be taken over. Its holder renews it several times in this time, or ends sending before."""
LEASE_UNRENEWED: Final = 40 * SECOND
"""The lease of a claim that is not renewed. Longer than its living holder needs to reach the ledger, to send, and to mark it."""
KEPT: Final = 7 * 24 * 3600 * SECOND
"""Entries that have not changed for this long are dropped."""
DROPPED: Final = 1
"""In place of the time of its end: another configuration does not notify of the alert any more. It is news as soon as it fires again."""
MOST_ALERTS: Final = 500
"""Alerts per group that are remembered as sent, the latest. Of a larger notification this many represent all."""
MOST_ENTRIES: Final = LEDGER.most_items
"""Entries that are read. Those that are written fit in MOST_BYTES."""
LONGEST_ID: Final = 100
"""Characters of an alert's id. Ours have 36."""
LONGEST_NAME: Final = 1000
"""Characters of the name of an entry, an observer or an attempt."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""The largest difference of observers' clocks. A time further in the future is invalid."""
MOST_RENEWALS: Final = 1000
"""The most renewals of a claim: far more than there are in one attempt."""
MOST_BYTES: Final = LEDGER.most_bytes
"""The size of the document. The entry that changed longest ago is dropped first."""


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


class LedgerEntry(Struct, frozen=True, rename={"sent": "told"}):
    """What was sent to one destination about one group. Times are microseconds since the epoch, by the sender's clock."""

    sent: Mapping[str, int] = {}
    """By alert: when it was resolved, if the resolve was sent; else 0, or DROPPED."""
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
    entries: Mapping[str, LedgerEntry] = {}
    """By destination and group."""
    began: int = 0
    """Notifications before this time may have been marked in an earlier ledger, which is lost. 0: there is no ledger yet."""
    observers: Observers = {}
    """Who watches the cluster now."""


FORMAT: Final = 1


class ForeignLedgerError(OperatorError):
    """A newer version has written it. It is left alone."""


class _Header(Struct, frozen=True):
    format: int = FORMAT


_LEDGER: Final = json.Decoder(Ledger)
_HEADER: Final = json.Decoder(_Header)


def begun(ledger: Ledger, wall: int) -> Ledger:
    """The ledger; where there is none, one that begins now."""
    return ledger if ledger.began else replace(ledger, began=wall)


def announced(ledger: Ledger, observer: str, its: Presence) -> Ledger:
    """The ledger in which `observer` has published this: unchanged while what it published lately is true."""
    previous = ledger.observers.get(observer)
    if previous and previous.address == its.address and 0 <= its.at - previous.at < RENEWED:
        return ledger
    return replace(ledger, observers={**ledger.observers, observer: its})


def read(content: bytes) -> Ledger:
    """The ledger in a document, unchecked: see `believed`. An unreadable document is an empty ledger: a duplicate is better than a loss.

    Raises ForeignLedgerError: what it says is not known, and must not be lost.
    """
    try:
        version = _HEADER.decode(content).format if content else FORMAT
        if version > FORMAT:
            raise ForeignLedgerError(
                f"the ledger was written by a newer version (format {version}, this version reads {FORMAT}): update this sidecar, "
                "or delete the ledger"
            )
        return _LEDGER.decode(content) if content and version == FORMAT else Ledger()
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
    observers = present(ledger.observers, wall, wall + CLOCK_SKEW, LONGEST_NAME)
    return Ledger(FORMAT, entries, ledger.began if _is_past(ledger.began, wall) else 0, observers)


def _believed(entry: LedgerEntry, wall: int) -> LedgerEntry:
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
    return LedgerEntry(
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
