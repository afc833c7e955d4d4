"""Those who contend: whether two of them both lead, and whether a leader has a standby that can be relied on.

Split leadership: two contenders that both believe they lead, each deleting what the other has published and publishing itself.

A leader session id is new in each election, so one that comes back after another has led is no election. Once may be a repair (Flink
rewrites what was tampered with); again and again within seconds it is a split. Real Flink 1.20.5 does so hundreds of times a second.

A standby that has left is lacked until it has contended for two minutes, and then for as long as it was lacked: one that crashes again and
again comes back each time, and none of these times makes up for the one before. The state has a fixed size, whatever happens.
"""

from typing import Annotated, Final
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import replace

from sidecar.core.flink.leadership import LeaderInformation
from sidecar.core.moment import SECOND, Moment, Steady

RETURNS: Final = 3
WITHIN: Final = 10 * SECOND
"""The time within which enough returns of earlier leaders are a split: see `RETURNS`."""
CALM: Final = 60 * SECOND
"""How long no replaced leader may return until a split is over."""
_REMEMBERED: Final = 4


class Contest(Struct, frozen=True, gc=False):
    """The earlier leaders of one component, and whether they keep coming back."""

    earlier: tuple[UUID, ...] = ()
    """Session ids of leaders before the one last known, the latest first."""
    returns: tuple[Steady, ...] = ()
    """When (steady) earlier leaders came back: the latest few times."""
    since: Moment | None = None
    """Since when leadership is split; None: it is not."""


def succeeded(
    contest: Contest, last_known: LeaderInformation | None, leader: LeaderInformation | None, at: Moment
) -> Contest:
    """The contest when `leader` leads and `last_known` was the last known leader; None: there is none."""
    if leader is None or last_known is None or leader.session_id == last_known.session_id:
        return contest
    before, after = last_known.session_id, leader.session_id
    earlier = (before, *[session for session in contest.earlier if session != after])[:_REMEMBERED]
    if after not in contest.earlier:
        return replace(contest, earlier=earlier)
    returns = (*contest.returns, at.steady)[-RETURNS:]
    split = len(returns) == RETURNS and at.steady - returns[0] <= WITHIN
    return Contest(earlier, returns, contest.since or (at if split else None))


def is_calm(contest: Contest, seeing_since: int, now: Moment) -> bool:
    """Whether a split is over: no replaced leader has returned for long enough. Time without a view of the store does not count."""
    return contest.since is not None and now.steady - max(contest.returns[-1], seeing_since) >= CALM


def ended(contest: Contest) -> Contest:
    """The contest, with the split over."""
    return Contest(contest.earlier)


STANDBY_AGE: Final = 120 * SECOND
"""How long several must have contended before one of them counts as a standby: a restarted JobManager contends beside the latch of its
predecessor until that session expires."""
MOST_LACKED: Final = 600 * SECOND
"""The most time without a standby that has to be made up for."""
MOST_LEFT: Final = 1_000_000


class Standby(Struct, frozen=True):
    """Whether a leader has had a standby, as far as is known."""

    several_since: Moment | None = None
    """Since when several JobManagers contend, or contended until one was left."""
    alone_since: Moment | None = None
    """Since when one JobManager contends after there was a standby."""
    lacking_since: Moment | None = None
    """Since when the standby is unreliable: when it left, as long as the time without it is not made up for."""
    left: Annotated[int, Meta(ge=0, le=MOST_LEFT)] = 0
    """How often the standby has left since `lacking_since`."""
    lacked: Annotated[int, Meta(ge=0, le=MOST_LACKED)] = 0
    """Microseconds still to be made up for when several, or one, began to contend: see `counted_at`."""
    counted_at: Moment | None = None

    @property
    def loops(self) -> bool:
        """Whether the standby comes back and leaves again."""
        return self.left > 1

    def with_contenders(self, number: int, at: Moment) -> "Standby":
        """The standby after `number` contend."""
        if number > 1:
            if self.several_since and not self.alone_since:
                return self
            lacked = self.lacked_at(at) if self.lacking_since else 0
            return Standby(at, None, self.lacking_since, self.left, lacked, at)
        if number == 0 or self.alone_since or self.several_since is None:
            return self
        now = self.settled(at)
        if now.lacking_since is None and at.steady - self.several_since.steady < STANDBY_AGE:
            return Standby()
        lacked = now.lacked_at(at) if now.lacking_since else 0
        left = min(now.left + 1, MOST_LEFT)
        return Standby(now.several_since, at, now.lacking_since or at, left, lacked, at)

    def settled(self, at: Moment) -> "Standby":
        """The standby at this time: all that was lacked may be made up for."""
        if self.lacking_since is None or self.alone_since or self.lacked_at(at):
            return self
        return Standby(several_since=self.several_since)

    def lacked_at(self, at: Moment) -> int:
        """The time without a standby that is still to be made up for at `at`. A standby that has just come back does not count yet."""
        elapsed = max(0, at.steady - self.counted_at.steady) if self.counted_at else 0
        unproven = elapsed if self.alone_since else min(elapsed, STANDBY_AGE)
        return max(0, min(self.lacked + unproven, MOST_LACKED) - (elapsed - unproven))
