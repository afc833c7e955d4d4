"""Applies an observation of one component: the leadership table gives the transition."""

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster import downtime, rest_server, split_leadership
from sidecar.core.cluster.downtime import Gone, LastLed
from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.failover import episodes, failover_in_progress, plans
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.leadership_table import Kind, Sight, kind_of
from sidecar.core.cluster.recovery import recovery_state
from sidecar.core.cluster.split_leadership import Contest
from sidecar.core.cluster.state import ComponentState, contending
from sidecar.core.cluster.store import unobserved
from sidecar.core.cluster.store.leases import Vacancy
from sidecar.core.cluster.store.unobserved import NOT_KNOWABLE, Gap
from sidecar.core.cluster.transitions import Transition, transition_id
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
)
from sidecar.core.overlay import with_items
from sidecar.core.sanitize import clean


class Seen(Struct, frozen=True):
    """One observation of one component."""

    sight: Sight
    leader: LeaderInformation | None = None
    position: Position | None = None
    path: str | None = None
    vacancy: Vacancy | None = None
    obscured_by: str | None = None


def reconciled(draft: Draft, component: ComponentId) -> None:
    """End the split leadership of `component`."""
    known = draft.before.components[component]
    draft.keep(component, replace(known, contest=split_leadership.ended(known.contest)))
    draft.update(contested=draft.state.contested - {component})


def apply(draft: Draft, component: ComponentId, known: ComponentState, seen: Seen) -> None:
    """Update `component` to what is `seen`, and record the transition that the table gives, if any."""
    kind = kind_of(known.leadership, seen.sight)
    if kind is None:
        _refresh(draft, component, known, seen)
        return
    transition = _transition(draft, component, known, seen, kind)
    take(draft, known, transition)
    failover_in_progress.record_departed(draft, component)
    if component.job_id and kind is Kind.REVOKED and draft.state.episode is None:
        draft.update(departed=with_items(draft.state.departed, {component: transition}))
    else:
        draft.happened.append(transition)


def _refresh(draft: Draft, component: ComponentId, known: ComponentState, seen: Seen) -> None:
    """Update positions without a transition."""
    match after := _leadership(seen):
        case Held(leader, position):
            known = replace(
                known, leadership=after, last_known=leader, last_position=position, vacated_at=None, last_led=None
            )
        case Vacant():
            known = replace(known, leadership=after, published_at=None)
        case Unknown() if seen.path:
            known = replace(known, leadership=after, vacated_at=None, last_led=None, published_at=None)
        case Unknown():
            return
    draft.keep(component, known)


def take(draft: Draft, known: ComponentState, transition: Transition) -> None:
    """Update the state after `transition` of the component whose state was `known`."""
    component, episode = transition.component, draft.state.episode
    begins = transition.episode_id is not None and (episode is None or episode.id != transition.episode_id)
    if begins and component.job_id is None:
        failover_in_progress.open_episode(draft, transition)
    known, episode = evolve(known, draft.state.episode, transition, complete=draft.state.view.complete)
    if episode is not draft.state.episode:
        draft.update(episode=episode)
    if component.component is Component.REST_SERVER:
        draft.update(rest_server=rest_server.after_transition(draft.state.rest_server, transition))
    if transition.kind is Kind.RETIRED:
        _lose(draft, transition, episode)
        draft.remove(component)
        return
    draft.keep(component, known)
    if known.contest.since and component not in draft.state.contested:
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
    known: ComponentState, episode: Episode | None, transition: Transition, *, complete: bool
) -> tuple[ComponentState, Episode | None]:
    """The component and the failover in progress behind `transition`. `complete`: the view of the store was, when it was observed."""
    at, kind = transition.at, transition.kind
    episode, absence = episodes.moved(episode, known.absence, transition)
    if kind is not Kind.OBSCURED:
        known = _with_nothing_missed(known)
    lasts = kind is Kind.READDRESSED
    known = replace(
        known,
        leadership=transition.after,
        since=known.since if lasts else at,
        discovered=known.discovered if lasts else kind is Kind.DISCOVERED,
        last_known=transition.last_known or known.last_known,
        contest=_contest(known.contest, transition),
        absence=absence,
    )
    match transition.after:
        case Held(leader, position):
            published_at = at.steady if complete and kind is not Kind.DISCOVERED else None
            known = replace(
                known,
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
            known = replace(known, vacated_at=at if left_now else None, last_led=last_led, published_at=None)
        case Unknown():
            known = replace(known, vacated_at=None, last_led=None, published_at=None)
    return known, episode


def _with_nothing_missed(known: ComponentState) -> ComponentState:
    """`known` without the unobserved changes, which this transition reports."""
    if known.look:
        known = replace(known, look=replace(known.look, gap=unobserved.NO_GAP))
    if known.elections:
        known = replace(known, elections=replace(known.elections, gap=unobserved.NO_GAP))
    return known


def _contest(contest: Contest, transition: Transition) -> Contest:
    contest = split_leadership.succeeded(contest, transition.last_known, transition.leader, transition.at)
    if transition.split and contest.since is None:  # records may begin in the middle of a split
        contest = replace(contest, since=transition.at, returns=contest.returns or (transition.at.steady,))
    return contest


def _transition(draft: Draft, component: ComponentId, known: ComponentState, seen: Seen, kind: Kind) -> Transition:
    held = known.leadership if isinstance(known.leadership, Held) else None
    gap, elections = _counted(known) if kind is not Kind.OBSCURED else (None, None)
    last = _last_led(draft, known, seen) if kind in {Kind.REVOKED, Kind.CHANGED} else known.last_led
    contest = split_leadership.succeeded(known.contest, known.last_known, seen.leader, draft.at)
    vanished = kind is Kind.RETIRED and _plan_vanished(draft, known, _last_led(draft, known, seen))
    transition = Transition(
        id="",
        at=draft.at,
        cluster_id=draft.cluster_id,
        store=draft.policy.store_of(draft.cluster_id),
        component=component,
        kind=kind,
        before=known.leadership,
        after=Vacant() if kind is Kind.RETIRED else _leadership(seen),
        position=seen.position or (held.position if held and kind is not Kind.OBSCURED else None),
        written_at=seen.position.mtime if isinstance(seen.position, ZNodePosition) else None,
        last_known=known.last_known,
        last_position=known.last_position,
        last_led=last,
        vacancy=seen.vacancy,
        obscured_by=seen.obscured_by,
        gap=gap,
        elections=elections,
        contenders=contending(draft.state.contenders),
        vacant_for=draft.at.steady - known.vacated_at.steady if seen.leader and known.vacated_at else None,
        returned=seen.leader is not None and seen.leader.session_id in known.contest.earlier,
        split=contest.since is not None,
        plan_vanished=vanished,
        connection=draft.state.view.connection,
    )
    if seen.leader and last:
        down = downtime.until(last, draft.at.steady, same_leader=transition.same_leader)
        transition = replace(transition, downtime=down)
    return replace(
        transition,
        id=transition_id(transition, draft.policy.observer),
        episode_id=failover_in_progress.episode_id(draft, known, transition),
    )


def _last_led(draft: Draft, known: ComponentState, seen: Seen) -> LastLed | None:
    """When the lost leader may have worked last."""
    if not isinstance(known.leadership, Held):
        return None
    view = draft.state.view
    gone = Gone(known.leadership.position, draft.at.steady, known.published_at, seen.vacancy, in_sight=view.complete)
    timeout = draft.policy.session_timeouts.get(draft.cluster_id)
    return downtime.last_led(gone, timeout, view.loss, draft.before.leases)


def _plan_vanished(draft: Draft, known: ComponentState, led: LastLed | None) -> bool:
    """Whether nobody led when the plan of a job vanished. `led`: when the job's leader worked last. One that ends removes the plan before
    it withdraws, but both may be observed in the other order, and what has withdrawn lives on for a moment.
    """
    at, dispatcher = known.unregistered_at, draft.known(ComponentId(Component.DISPATCHER))
    if at is None or dispatcher is None or plans.is_unwanted(draft.state.operated):
        return False
    if isinstance(known.leadership, Held) and isinstance(known.leadership.position, ZNodePosition):
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


def without_leader(known: ComponentState) -> Sight:
    """Why there is no leader: the job may have ended."""
    return Sight.JOB_ENDED if known.registered is False else Sight.NO_LEADER


def _leadership(seen: Seen) -> Leadership:
    match seen.sight:
        case Sight.NO_VIEW:
            return Unknown(Blindness.UNREADABLE if seen.path else Blindness.VIEW_LOST, seen.path)
        case Sight.NO_LEADER | Sight.JOB_ENDED:
            return Vacant()
    assert seen.leader is not None  # noqa: S101  the remaining sights have a leader
    assert seen.position is not None  # noqa: S101  and a position
    return Held(seen.leader, seen.position)


def _counted(known: ComponentState) -> tuple[Gap | None, int | None]:
    """Unobserved changes since the last transition, and elections, as far as the store counts them."""
    if known.look:
        return known.look.gap, known.look.births.count if known.look.births else None
    if known.elections and known.elections.sure:
        return known.elections.gap, known.elections.count
    return (NOT_KNOWABLE if known.elections else None), None
