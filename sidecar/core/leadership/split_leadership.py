"""Split leadership: two contenders that both believe they lead, each deleting what the other has published and publishing itself.

A leader session id is new in each election, so one that comes back after another has led is no election. Once may be a repair (Flink
rewrites what was tampered with); again and again within seconds it is a split. Real Flink 1.20.5 does so hundreds of times a second.
"""

from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.leadership import LeaderInformation
from sidecar.core.moment import SECOND, Moment

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
    returns: tuple[int, ...] = ()
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
    earlier = (before, *(session for session in contest.earlier if session != after))[:_REMEMBERED]
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
