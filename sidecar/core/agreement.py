"""How many of the observers of a cluster share what one of them sees, or that it sees nothing.

Several sidecars watch one cluster. Where one of them cannot read the store, or sees no leader, the others are asked. Only an answer counts:
an observer that does not answer may be as cut off as this one.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.counted import Count
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import SECOND, Moment
from sidecar.core.reach import Reach

FRESH: Final = 30 * SECOND
"""How long an answer counts. The others are asked again several times in this time."""


class Opinion(Struct, frozen=True):
    """The state of the cluster as another observer sees it now."""

    observer: str
    sees: bool
    """Whether it can read the store, and the cluster is there."""
    vacant: tuple[Component, ...] = ()
    """The components that it sees without a leader. `JOB`: at least one job."""
    reach: Reach | None = None
    """How far its last request to the leading REST server got. None: it does not ask, or nothing has ever answered it."""


class Peers(Struct, frozen=True):
    """The other observers of the cluster."""

    known: int = 0
    """The number of other observers that have published recently that they observe the cluster."""
    opinions: tuple[Opinion, ...] = ()
    """The answers, one of each observer that answered."""
    answered_at: int = 0
    """Steady."""

    def is_old(self, now: Moment) -> bool:
        """Whether the answers no longer count."""
        return bool(self.opinions) and now.steady - self.answered_at > FRESH


class Agreement(Struct, frozen=True):
    """How many observers share one observation. The recording observer is always among them."""

    sharing: Count
    connected: Count
    """The number of observers that can judge it, this one included."""
    known: Count
    """All that observe the cluster."""

    @property
    def is_outvoted(self) -> bool:
        """Whether no majority shares it."""
        return 2 * self.sharing <= self.connected


def agreed_blindness(peers: Peers) -> Agreement | None:
    """How many observers cannot read the store. None: no other observer is known."""
    return _agreement(peers, [not opinion.sees for opinion in peers.opinions])


def agreed_vacancy(peers: Peers, component: Component) -> Agreement | None:
    """How many of the observers that can read the store see no leader. None: no other observer is known."""
    return _agreement(peers, [component in opinion.vacant for opinion in peers.opinions if opinion.sees])


def agreed_silence(peers: Peers) -> Agreement | None:
    """How many of the observers that ask the leader get no answer from it. None: no other observer is known."""
    asking = (opinion.reach for opinion in peers.opinions if opinion.sees and opinion.reach)
    return _agreement(peers, [reach is not Reach.ANSWERS for reach in asking])


def _agreement(peers: Peers, shares: Sequence[bool]) -> Agreement | None:
    return Agreement(1 + sum(shares), 1 + len(shares), 1 + peers.known) if peers.known else None
