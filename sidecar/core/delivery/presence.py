"""Which observers watch a cluster, and where each can be asked: a part of the ledger, so that an observer that is cut off from the store
still knows whom to ask.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND

RENEWED: Final = 540 * SECOND
"""An observer publishes itself again after so long, or when it is not as it was published."""
KEPT: Final = 1200 * SECOND
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
        and wall - KEPT <= presence.at <= latest
    }
    return dict(sorted(lately.items(), key=lambda item: (-item[1].at, item[0]))[:MOST_OBSERVERS])


def others(observers: Observers, observer: str) -> Observers:
    """Without this one."""
    return {name: presence for name, presence in observers.items() if name != observer}
