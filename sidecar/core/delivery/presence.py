"""Which observers watch a cluster, and where each can be asked: a part of the ledger, so that an observer that is cut off from the store
still knows whom to ask.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND

KEPT: Final = 600 * SECOND
"""An observer that has not published anything for so long has ended."""
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
