"""Applies an observation of one component: the leadership table gives the transition, which the failover machine follows at once."""

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ComponentState, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import failover_machine
from sidecar.core.flink.leadership import (
    Blindness,
    ComponentId,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.leadership import transitions, unobserved
from sidecar.core.leadership.leases import Vacancy
from sidecar.core.leadership.transitions import Contest, Kind, Sight, Transition, kind_of, transition_id
from sidecar.core.leadership.unobserved import NOT_KNOWABLE, Gap


class Reading(Struct, frozen=True):
    """One leadership as one read of the store shows it."""

    sight: Sight
    leader: LeaderInformation | None = None
    position: Position | None = None
    path: str | None = None
    vacancy: Vacancy | None = None
    obscured_by: str | None = None

    @property
    def leadership(self) -> Leadership:
        match self.sight:
            case Sight.NO_VIEW:
                return Unknown(Blindness.UNREADABLE if self.path else Blindness.VIEW_LOST, self.path)
            case Sight.NO_LEADER | Sight.JOB_ENDED:
                return Vacant()
        assert self.leader is not None  # noqa: S101  the remaining sights have a leader
        assert self.position is not None  # noqa: S101  and a position
        return Held(self.leader, self.position)


def apply(draft: Draft, component: ComponentId, state: ComponentState, reading: Reading) -> None:
    """Update `component` by a `reading`, and record the transition that the table gives, if any."""
    kind = kind_of(state.leadership, reading.sight)
    if kind is None:
        _refresh(draft, component, state, reading)
        return
    contest = transitions.contest_after(state.contest, state.last_known, reading.leader, draft.at)
    transition = _transition(draft, component, state, reading, kind, contest)
    transition, absence = failover_machine.follow(draft, state, transition)
    if kind is Kind.RETIRED:
        draft.remove(component)
        return
    lasts = kind is Kind.READDRESSED
    state = replace(
        state if kind is Kind.OBSCURED else _with_nothing_missed(state),
        leadership=transition.after,
        since=state.since if lasts else draft.at,
        discovered=state.discovered if lasts else kind is Kind.DISCOVERED,
        contest=contest,
        absence=absence,
    )
    draft.keep(component, _with_leadership(state, transition, complete=draft.state.view.complete))
    if contest.since and component not in draft.state.contested:
        draft.update(contested=draft.state.contested | {component})


def _refresh(draft: Draft, component: ComponentId, state: ComponentState, reading: Reading) -> None:
    """Update positions without a transition."""
    match after := reading.leadership:
        case Held(leader, position):
            state = replace(
                state, leadership=after, last_known=leader, last_position=position, vacated_at=None, last_led=None
            )
        case Vacant():
            state = replace(state, leadership=after, published_at=None)
        case Unknown() if reading.path:
            state = replace(state, leadership=after, vacated_at=None, last_led=None, published_at=None)
        case Unknown():
            return
    draft.keep(component, state)


def _with_leadership(state: ComponentState, transition: Transition, *, complete: bool) -> ComponentState:
    """The component with what its new leadership says of leaders. `complete`: the view of the store was, when it was observed."""
    at, kind = transition.at, transition.kind
    match transition.after:
        case Held(leader, position):
            published_at = at.steady if complete and kind is not Kind.DISCOVERED else None
            return replace(
                state,
                last_known=leader,
                last_position=position,
                vacated_at=None,
                last_led=None,
                published_at=published_at,
            )
        case Vacant():
            left_now = kind is Kind.REVOKED  # else it was vacant already when it was first observed
            last_led = transition.last_led if kind in {Kind.REVOKED, Kind.DISCOVERED} else None
            if last_led and last_led.latest is None:
                last_led = replace(last_led, latest=at.steady)
            return replace(state, vacated_at=at if left_now else None, last_led=last_led, published_at=None)
        case Unknown():
            return replace(state, vacated_at=None, last_led=None, published_at=None)


def _with_nothing_missed(state: ComponentState) -> ComponentState:
    """`state` without the unobserved changes, which this transition reports."""
    if state.look:
        state = replace(state, look=replace(state.look, gap=unobserved.NO_GAP))
    if state.elections:
        state = replace(state, elections=replace(state.elections, gap=unobserved.NO_GAP))
    return state


def _transition(
    draft: Draft, component: ComponentId, state: ComponentState, reading: Reading, kind: Kind, contest: Contest
) -> Transition:
    """The transition, as far as the store shows it."""
    held = state.leadership if isinstance(state.leadership, Held) else None
    gap, elections = _missed_changes(state) if kind is not Kind.OBSCURED else (None, None)
    transition = Transition(
        id="",
        at=draft.at,
        cluster_id=draft.cluster_id,
        store=draft.policy.store_of(draft.cluster_id),
        component=component,
        kind=kind,
        before=state.leadership,
        after=reading.leadership,
        position=reading.position or (held.position if held and kind is not Kind.OBSCURED else None),
        written_at=reading.position.mtime if isinstance(reading.position, ZNodePosition) else None,
        last_known=state.last_known,
        last_position=state.last_position,
        vacancy=reading.vacancy,
        obscured_by=reading.obscured_by,
        gap=gap,
        elections=elections,
        contenders=contending(draft.state.contenders),
        vacant_for=draft.at.steady - state.vacated_at.steady if reading.leader and state.vacated_at else None,
        returned=reading.leader is not None and reading.leader.session_id in state.contest.earlier,
        split=contest.since is not None,
        connection=draft.state.view.connection,
    )
    return replace(transition, id=transition_id(transition, draft.policy.observer))


def sight_of_nobody(state: ComponentState) -> Sight:
    """Why there is no leader: the job may have ended."""
    return Sight.JOB_ENDED if state.registered is False else Sight.NO_LEADER


def _missed_changes(state: ComponentState) -> tuple[Gap | None, int | None]:
    """Unobserved changes since the last transition, and elections, as far as the store counts them."""
    if state.look:
        return state.look.gap, state.look.births.count if state.look.births else None
    if state.elections and state.elections.sure:
        return state.elections.gap, state.elections.count
    return (NOT_KNOWABLE if state.elections else None), None
