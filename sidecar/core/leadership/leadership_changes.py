"""Applies an observation of one component: the leadership table gives the transition."""

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ComponentState, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import ends, episodes, failover_in_progress, plans, recovery_state, rest_server
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.leader_process import BEFORE, Lost, process_of
from sidecar.core.flink.leadership import (
    Blindness,
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
    is_own_host,
)
from sidecar.core.leadership import downtime, split_leadership, unobserved
from sidecar.core.leadership.downtime import Gone, LastLed
from sidecar.core.leadership.leadership_table import Kind, Sight, kind_of
from sidecar.core.leadership.leases import Vacancy
from sidecar.core.leadership.split_leadership import Contest
from sidecar.core.leadership.transitions import Transition, transition_id
from sidecar.core.leadership.unobserved import NOT_KNOWABLE, Gap
from sidecar.core.overlay import with_items
from sidecar.core.policy.policy import Store
from sidecar.core.sanitize import clean


class Reading(Struct, frozen=True):
    """One leadership as one read of the store shows it."""

    sight: Sight
    leader: LeaderInformation | None = None
    position: Position | None = None
    path: str | None = None
    vacancy: Vacancy | None = None
    obscured_by: str | None = None


def reconciled(draft: Draft, component: ComponentId) -> None:
    """End the split leadership of `component`."""
    state = draft.before.components[component]
    draft.keep(component, replace(state, contest=split_leadership.ended(state.contest)))
    draft.update(contested=draft.state.contested - {component})


def apply(draft: Draft, component: ComponentId, state: ComponentState, reading: Reading) -> None:
    """Update `component` by a `reading`, and record the transition that the table gives, if any."""
    kind = kind_of(state.leadership, reading.sight)
    if kind is None:
        _refresh(draft, component, state, reading)
        return
    transition = _transition(draft, component, state, reading, kind)
    take(draft, state, transition)
    failover_in_progress.record_departed(draft, component)
    if component.job_id and kind is Kind.REVOKED and draft.state.episode is None:
        draft.update(departed=with_items(draft.state.departed, {component: transition}))
    else:
        draft.happened.append(transition)


def _refresh(draft: Draft, component: ComponentId, state: ComponentState, reading: Reading) -> None:
    """Update positions without a transition."""
    match after := _leadership(reading):
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


def take(draft: Draft, state: ComponentState, transition: Transition) -> None:
    """Update the draft after `transition` of a component. `state`: the component before it."""
    component, episode = transition.component, draft.state.episode
    begins = transition.episode_id is not None and (episode is None or episode.id != transition.episode_id)
    if begins and component.job_id is None:
        failover_in_progress.open_episode(draft, transition)
    state, episode = evolve(state, draft.state.episode, transition, complete=draft.state.view.complete)
    if episode is not draft.state.episode:
        draft.update(episode=episode)
    if component.component is Component.REST_SERVER:
        draft.update(rest_server=rest_server.after_transition(draft.state.rest_server, transition))
    if transition.kind is Kind.RETIRED:
        _lose(draft, transition, episode)
        draft.remove(component)
        return
    draft.keep(component, state)
    if state.contest.since and component not in draft.state.contested:
        draft.update(contested=draft.state.contested | {component})


def _lose(draft: Draft, transition: Transition, episode: Episode | None) -> None:
    """Note that a job is missing, if this failover has lost it."""
    job_id, fault = transition.component.job_id, episodes.lost_by(transition)
    if fault and job_id and episode and not recovery_state.is_left_out(episode.facts):
        jobs = draft.state.picture.jobs if draft.state.picture else ()
        name = next((clean(job.name) for job in jobs if job.id == job_id), None)
        lost = recovery_state.JobFault(fault, draft.at, episode.id, name)
        draft.update(job_faults=recovery_state.with_missing(draft.state.job_faults, job_id, lost))


def evolve(
    state: ComponentState, episode: Episode | None, transition: Transition, *, complete: bool
) -> tuple[ComponentState, Episode | None]:
    """The component and the failover in progress behind `transition`. `complete`: the view of the store was, when it was observed."""
    at, kind = transition.at, transition.kind
    episode, absence = episodes.after_transition(episode, state.absence, transition)
    if kind is not Kind.OBSCURED:
        state = _with_nothing_missed(state)
    lasts = kind is Kind.READDRESSED
    state = replace(
        state,
        leadership=transition.after,
        since=state.since if lasts else at,
        discovered=state.discovered if lasts else kind is Kind.DISCOVERED,
        last_known=transition.last_known or state.last_known,
        contest=_contest(state.contest, transition),
        absence=absence,
    )
    match transition.after:
        case Held(leader, position):
            published_at = at.steady if complete and kind is not Kind.DISCOVERED else None
            state = replace(
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
            state = replace(state, vacated_at=at if left_now else None, last_led=last_led, published_at=None)
        case Unknown():
            state = replace(state, vacated_at=None, last_led=None, published_at=None)
    return state, episode


def _with_nothing_missed(state: ComponentState) -> ComponentState:
    """`state` without the unobserved changes, which this transition reports."""
    if state.look:
        state = replace(state, look=replace(state.look, gap=unobserved.NO_GAP))
    if state.elections:
        state = replace(state, elections=replace(state.elections, gap=unobserved.NO_GAP))
    return state


def _contest(contest: Contest, transition: Transition) -> Contest:
    contest = split_leadership.succeeded(contest, transition.last_known, transition.leader, transition.at)
    if transition.split and contest.since is None:  # records may begin in the middle of a split
        contest = replace(contest, since=transition.at, returns=contest.returns or (transition.at.steady,))
    return contest


def _transition(
    draft: Draft, component: ComponentId, state: ComponentState, reading: Reading, kind: Kind
) -> Transition:
    held = state.leadership if isinstance(state.leadership, Held) else None
    gap, elections = _missed_changes(state) if kind is not Kind.OBSCURED else (None, None)
    last = _last_led(draft, state, reading) if kind in {Kind.REVOKED, Kind.CHANGED} else state.last_led
    contest = split_leadership.succeeded(state.contest, state.last_known, reading.leader, draft.at)
    transition = Transition(
        id="",
        at=draft.at,
        cluster_id=draft.cluster_id,
        store=draft.policy.store_of(draft.cluster_id),
        component=component,
        kind=kind,
        before=state.leadership,
        after=Vacant() if kind is Kind.RETIRED else _leadership(reading),
        position=reading.position or (held.position if held and kind is not Kind.OBSCURED else None),
        written_at=reading.position.mtime if isinstance(reading.position, ZNodePosition) else None,
        last_known=state.last_known,
        last_position=state.last_position,
        last_led=last,
        vacancy=reading.vacancy,
        obscured_by=reading.obscured_by,
        gap=gap,
        elections=elections,
        contenders=contending(draft.state.contenders),
        vacant_for=draft.at.steady - state.vacated_at.steady if reading.leader and state.vacated_at else None,
        returned=reading.leader is not None and reading.leader.session_id in state.contest.earlier,
        split=contest.since is not None,
        plan_vanished=kind is Kind.RETIRED and _plan_vanished(draft, state, _last_led(draft, state, reading)),
        connection=draft.state.view.connection,
    )
    if reading.leader and last:
        down = downtime.downtime_since(last, draft.at.steady, same_leader=transition.same_leader)
        transition = replace(transition, downtime=down)
    return replace(
        transition,
        id=transition_id(transition, draft.policy.observer),
        episode_id=failover_in_progress.episode_id(draft, state, transition),
    )


def _last_led(draft: Draft, state: ComponentState, reading: Reading) -> LastLed | None:
    """When the lost leader may have worked last."""
    if not isinstance(state.leadership, Held):
        return None
    view = draft.state.view
    gone = Gone(state.leadership.position, draft.at.steady, state.published_at, reading.vacancy, in_sight=view.complete)
    timeout = draft.policy.session_timeouts.get(draft.cluster_id)
    led = downtime.last_led(gone, timeout, view.loss, draft.before.leases)
    ended = _known_end(draft, state, state.leadership.leader.address)
    return led if ended is None else downtime.ended_at(led, ended)


def _known_end(draft: Draft, state: ComponentState, address: str) -> int | None:
    """When the process of the leader at this address ended (steady), to the millisecond. None: not known, or it may be another one's."""
    if draft.state.ends == ends.NOTHING:
        return None  # of thousands of jobs that move at once, each asks
    is_own = is_own_host(address, in_kubernetes=draft.policy.store_of(draft.cluster_id) is Store.KUBERNETES)
    since = max(draft.at.steady - BEFORE, state.published_at or 0)
    process = process_of(draft.state.ends, Lost(address, draft.at, since, draft.at.steady, is_own))
    return process.end.at.steady if process.end and (is_own or process.is_identified) else None


def _plan_vanished(draft: Draft, state: ComponentState, led: LastLed | None) -> bool:
    """Whether nobody led when the plan of a job vanished. `led`: when the job's leader worked last. One that ends removes the plan before
    it withdraws, but both may be observed in the other order, and what has withdrawn lives on for a moment.
    """
    at, dispatcher = state.unregistered_at, draft.state_of(ComponentId(Component.DISPATCHER))
    if at is None or dispatcher is None or plans.is_unwanted(draft.state.operated):
        return False
    if isinstance(state.leadership, Held) and isinstance(state.leadership.position, ZNodePosition):
        return draft.at.steady > at + episodes.LOOK_BACK  # a job that ends removes its leader's address before its plan
    match dispatcher.leadership:
        case Vacant() if dispatcher.vacated_at:
            led = dispatcher.last_led
        case Held() if dispatcher.published_at is None or dispatcher.published_at <= at:
            return False
        case Unknown() | Vacant():
            return False
    withdrew = dispatcher.absence is not None and dispatcher.absence.withdrew
    is_ordered = isinstance(dispatcher.last_position, ConfigMapPosition) and not withdrew
    return led is not None and led.latest is not None and at > led.latest + (0 if is_ordered else episodes.LOOK_BACK)


def without_leader(state: ComponentState) -> Sight:
    """Why there is no leader: the job may have ended."""
    return Sight.JOB_ENDED if state.registered is False else Sight.NO_LEADER


def _leadership(reading: Reading) -> Leadership:
    match reading.sight:
        case Sight.NO_VIEW:
            return Unknown(Blindness.UNREADABLE if reading.path else Blindness.VIEW_LOST, reading.path)
        case Sight.NO_LEADER | Sight.JOB_ENDED:
            return Vacant()
    assert reading.leader is not None  # noqa: S101  the remaining sights have a leader
    assert reading.position is not None  # noqa: S101  and a position
    return Held(reading.leader, reading.position)


def _missed_changes(state: ComponentState) -> tuple[Gap | None, int | None]:
    """Unobserved changes since the last transition, and elections, as far as the store counts them."""
    if state.look:
        return state.look.gap, state.look.births.count if state.look.births else None
    if state.elections and state.elections.sure:
        return state.elections.gap, state.elections.count
    return (NOT_KNOWABLE if state.elections else None), None
