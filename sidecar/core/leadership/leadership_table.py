"""The leadership table: previous leadership, observation, what happened. Every change of a leadership goes through it."""

from enum import StrEnum
from typing import Final

from sidecar.core.flink.leadership import Held, LeaderInformation, Leadership, Unknown, Vacant


class Sight(StrEnum):
    """An observation of a leadership, compared with its previous state."""

    SAME_LEADER = "same_leader"
    SAME_SESSION_ELSEWHERE = "same_session_elsewhere"
    """The same leader has another address."""
    ANOTHER_LEADER = "another_leader"
    """A leader where none was known, or one with another session id."""
    NO_LEADER = "no_leader"
    JOB_ENDED = "job_ended"
    """No leader, and Flink has forgotten the job itself; or the whole cluster was removed."""
    NO_VIEW = "no_view"
    """The store cannot be read, or holds unreadable bytes."""


class Kind(StrEnum):
    """The kind of change of one leadership."""

    DISCOVERED = "DISCOVERED"
    """First sight, or sight regained. Compare with what was last known to learn what happened meanwhile."""
    GRANTED = "GRANTED"
    CHANGED = "CHANGED"
    """Replaced without a visible vacancy."""
    READDRESSED = "READDRESSED"
    REVOKED = "REVOKED"
    RETIRED = "RETIRED"
    """The job ended and took its leadership with it; or the cluster was removed."""
    OBSCURED = "OBSCURED"


QUIET: Final = None
"""Nothing happened."""


class Unreachable(StrEnum):
    """A cell that `compare` cannot lead to."""

    NO_LEADER_TO_COMPARE_WITH = "there was no leader to be the same as"


_NEVER: Final = Unreachable.NO_LEADER_TO_COMPARE_WITH

TABLE: Final[dict[tuple[type[Leadership], Sight], Kind | Unreachable | None]] = {
    (Unknown, Sight.SAME_LEADER): _NEVER,
    (Unknown, Sight.SAME_SESSION_ELSEWHERE): _NEVER,
    (Unknown, Sight.ANOTHER_LEADER): Kind.DISCOVERED,
    (Unknown, Sight.NO_LEADER): Kind.DISCOVERED,
    (Unknown, Sight.JOB_ENDED): Kind.RETIRED,
    (Unknown, Sight.NO_VIEW): QUIET,
    (Vacant, Sight.SAME_LEADER): _NEVER,
    (Vacant, Sight.SAME_SESSION_ELSEWHERE): _NEVER,
    (Vacant, Sight.ANOTHER_LEADER): Kind.GRANTED,
    (Vacant, Sight.NO_LEADER): QUIET,
    (Vacant, Sight.JOB_ENDED): Kind.RETIRED,
    (Vacant, Sight.NO_VIEW): Kind.OBSCURED,
    (Held, Sight.SAME_LEADER): QUIET,
    (Held, Sight.SAME_SESSION_ELSEWHERE): Kind.READDRESSED,
    (Held, Sight.ANOTHER_LEADER): Kind.CHANGED,
    (Held, Sight.NO_LEADER): Kind.REVOKED,
    (Held, Sight.JOB_ENDED): Kind.RETIRED,
    (Held, Sight.NO_VIEW): Kind.OBSCURED,
}
"""Every cell, the quiet ones too. A leadership that is retired is forgotten: should its job come back, it begins anew."""


def compare(before: Leadership, leader: LeaderInformation) -> Sight:
    """How an observed leader relates to the previous state."""
    if not isinstance(before, Held) or leader.session_id != before.leader.session_id:
        return Sight.ANOTHER_LEADER
    if leader.address != before.leader.address:
        return Sight.SAME_SESSION_ELSEWHERE
    return Sight.SAME_LEADER


def kind_of(before: Leadership, sight: Sight) -> Kind | None:
    """What happened, or None where nothing did.

    Raises `AssertionError` for a cell that cannot be reached: the caller compared with something else than `before`.
    """
    kind = TABLE[type(before), sight]
    assert not isinstance(kind, Unreachable), (before, sight, kind)  # noqa: S101  a broken table must not go on
    return kind


def pattern(before: Leadership, kind: Kind, *, held_after: bool) -> str:
    """The transition in the letters people use: `A->null`, `null->B`, `A->B`, `A->A'`, `?->A`, `A->?`, `A->gone`."""
    left = {Unknown: "?", Vacant: "null", Held: "A"}[type(before)]
    match kind:
        case Kind.READDRESSED:
            right = "A'"
        case Kind.OBSCURED:
            right = "?"
        case Kind.RETIRED:
            right = "gone"
        case Kind.DISCOVERED:
            right = "A" if held_after else "null"
        case Kind.GRANTED | Kind.CHANGED:
            right = "B"
        case Kind.REVOKED:
            right = "null"
    return f"{left}->{right}"
