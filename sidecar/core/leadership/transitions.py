"""The leadership table (previous leadership, observation, what happened), and the transitions that it gives.

Every change of a leadership goes through the table. A transition is the domain event; records are made from it at the very end. Its id is
the same for every observer that saw it.
"""

from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.flink.leadership import (
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.leadership.leases import Vacancy
from sidecar.core.leadership.unobserved import Downtime, Gap, LastLed
from sidecar.core.moment import SECOND, Moment, Steady
from sidecar.core.observations import ConnectionState
from sidecar.core.pods import host_port
from sidecar.core.policy.policy import Store
from sidecar.core.records import record_id


class Sight(StrEnum):
    """An observation of a leadership, compared with its previous state."""

    SAME_LEADER = "same_leader"
    SAME_SESSION_ELSEWHERE = "same_session_elsewhere"
    """The leader has another address."""
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


class Transition(Struct, frozen=True, kw_only=True):
    """A transition of one component: a row of the leadership table. Times are microseconds."""

    id: str
    """The id, equal for all observers, except for transitions of the observer's own view."""
    at: Moment
    """When the change was observed."""
    cluster_id: str
    store: Store
    component: ComponentId
    kind: Kind
    before: Leadership
    after: Leadership
    """RETIRED: vacant."""
    position: Position | None = None
    """The position of what was observed, or of the previous leader."""
    written_at: int | None = None
    """When the observed value was written, by the store's clock (milliseconds since the epoch)."""
    last_known: LeaderInformation | None = None
    """The last observed leader before this."""
    last_position: Position | None = None
    last_led: LastLed | None = None
    """When the lost leader may have worked last."""
    vacancy: Vacancy | None = None
    """Why there is no leader, in Kubernetes."""
    obscured_by: str | None = None
    """Why the leader is unknown, in words."""
    gap: Gap | None = None
    """Unobserved changes between before and after."""
    elections: int | None = None
    contenders: int | None = None
    vacant_for: int | None = None
    """How long no leader was published before this one. None: there was no vacancy, or its beginning was not observed."""
    downtime: Downtime | None = None
    """How long no leader worked before this one. None: not known."""
    returned: bool = False
    """The leader had been replaced, and is back."""
    split: bool = False
    """Leadership is split."""
    plan_vanished: bool = False
    """RETIRED: its plan vanished from the store while nobody led. So it did not end by itself, and Flink does not know it any more."""
    connection: ConnectionState | None = None
    """Our connection to the store."""
    episode_id: str | None = None

    @property
    def leader(self) -> LeaderInformation | None:
        return self.after.leader if isinstance(self.after, Held) else None

    @property
    def same_leader(self) -> bool:
        """Whether the leader is the last known one."""
        after, last = self.after, self.last_known
        return isinstance(after, Held) and last is not None and after.leader.session_id == last.session_id

    @property
    def is_succession(self) -> bool:
        """Whether the leader is another than the last known one."""
        after, last = self.after, self.last_known
        return isinstance(after, Held) and last is not None and after.leader.session_id != last.session_id

    @property
    def same_process(self) -> bool | None:
        """Whether the leader after is the process of the last one, where the facts decide: one ZooKeeper session, and one holder of leases,
        is one process; another holder, or another host, is another.
        """
        leader = self.leader
        if self.last_known is None or leader is None:
            return None
        match self.last_position, self.position:
            case ConfigMapPosition(holder_identity=earlier), ConfigMapPosition(holder_identity=later):
                return earlier == later
            case ZNodePosition(ephemeral_owner=earlier), ZNodePosition(ephemeral_owner=later) if (
                earlier and earlier == later
            ):
                return True
            case ZNodePosition(), ZNodePosition():
                return None if host_port(self.last_known.address) == host_port(leader.address) else False
        return None

    @property
    def store_reelected(self) -> bool | None:
        """Whether ZooKeeper itself elected a leader between the writes of the last leader and of this one; None: not two writes."""
        match self.last_position, self.position:
            case ZNodePosition() as earlier, ZNodePosition() as later if isinstance(self.after, Held):
                return later.epoch != earlier.epoch
        return None


def transition_id(transition: Transition, observer: str) -> str:
    """A UUIDv5 of what happened in the store. What is about our view, and not about Flink, is `observer`'s alone."""
    component = transition.component
    identity = (
        "transition",
        transition.cluster_id,
        transition.store,
        component.component,
        component.job_id,
        transition.kind,
    )
    match transition.kind, transition.before, transition.after:
        case ((Kind.GRANTED | Kind.CHANGED | Kind.READDRESSED), before, Held(leader, position)):
            session = before.leader.session_id if isinstance(before, Held) else None
            return record_id(*identity, session, *_write_key(leader, position))
        case Kind.REVOKED, Held(leader, position), _:
            return record_id(*identity, leader.session_id, *_write_key(leader, position))
        case Kind.RETIRED, _, _ if transition.last_known and transition.last_position:
            # Whether its leader or its graph went first: the job ended once.
            begun = _run_key(transition.last_known, transition.last_position)
            return record_id(*identity, transition.last_known.session_id, *begun)
    return record_id(*identity, observer, transition.at.wall, transition.at.steady)


def _write_key(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one write of a leader. A store that was wiped counts from the beginning again, so its numbers alone
    do not.
    """
    match position:
        case ZNodePosition():
            stat = (position.czxid, position.mzxid, position.mtime, position.returned)
            return leader.session_id, leader.address, *stat
        case ConfigMapPosition():
            term = (position.uid, position.holder_identity, position.acquire_time)
            return leader.session_id, leader.address, *term, position.returned


def _run_key(leader: LeaderInformation, position: Position) -> tuple[object, ...]:
    """Identifies one run of a job among others of the same id."""
    match position:
        case ZNodePosition():
            return position.czxid, position.returned
        case ConfigMapPosition():
            return leader.address, position.uid, position.returned


# -- split leadership --------------------------------------------------------------------------------------------------
#
# Two contenders that both believe they lead, each deleting what the other has published and publishing itself. A leader session id is new
# in each election, so one that comes back after another has led is no election. Once may be a repair (Flink rewrites what was tampered
# with); again and again within seconds it is a split. Real Flink 1.20.5 does so hundreds of times a second.

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


def contest_after(
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


def is_split_over(contest: Contest, seeing_since: int, now: Moment) -> bool:
    """Whether a split is over: no replaced leader has returned for long enough. Time without a view of the store does not count."""
    return contest.since is not None and now.steady - max(contest.returns[-1], seeing_since) >= CALM
