"""The failover machine: transitions, ends of processes, plans and pictures in; episodes with cause, death and recovery out.

Transitions come one by one from the leadership machine (`follow`), everything else through `observe`; time through `tick`. `cluster_step`
calls both machines in order. Inside: `episodes` (what belongs to one failover), `plans` and `planned` (whether it was meant), `ends` and
`deaths` (why the process of the old leader ended), `causes` (THE verdict), and `assessment` with `recovery_judge` (what came back). The
recovery has a tick of its own, before pictures are requested: `assessment.tick`.

For each transition, in this order: what it means is added to it (when the lost leader worked last, whether its plan vanished, to which
episode it belongs); if it is the first one away from a term, an episode opens; the component's absence and the episode's counts and facts
follow; a lost job is noted; then it is recorded.

1. Transitions are followed at once, not at the end of the step: an episode's id is that of the term that ended, with the leaders of all
   components before this transition. One ConfigMap may replace three leaders in one step, and the next transition overwrites them.
2. A job that loses its leader is not recorded at once (`departed`): if one of the cluster's own components leaves within LOOK_BACK, it is
   the first of that failover, and its record says so. It is recorded before anything else happens to the job, with the tick that finds it
   alone, and when the sidecar stops.
3. The episode stays open until each component has a leader and nothing changes for SETTLED; a leader lost meanwhile belongs to it.
4. In ZooKeeper it is observed after the loss that the leader removed its own address: `withdrew` corrects the absence and the facts.
5. A time of blindness explains one failover at most: the one that opens takes it (`loss.obscured`). One that none takes is recorded
   as an episode of this observer alone.
6. Facts come late. The cause is judged anew whenever it is asked for, until the episode closes; the death until it is recorded, up to
   RECORDED_AFTER later, before another failover takes the place of `last_episode`.
7. A removed cluster closes its episode without a successor, after its leaderships are retired.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, contending, parts_of
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import assessment, deaths, ends, episodes, planned, plans, recovery_state, rest_server
from sidecar.core.failover.causes import RELATED
from sidecar.core.failover.deaths import BEFORE, Lost, process_of
from sidecar.core.failover.episodes import Absence, Episode
from sidecar.core.flink.leadership import (
    Component,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.leadership import unobserved
from sidecar.core.leadership.transitions import Kind, Transition
from sidecar.core.leadership.unobserved import Gone, LastLed
from sidecar.core.moment import Moment
from sidecar.core.observations import EndObservation, FailoverAnnotated, PictureTaken, PlanObservation
from sidecar.core.overlay import with_items, without_items
from sidecar.core.pods import is_own_host
from sidecar.core.policy.policy import Store
from sidecar.core.sanitize import clean

FailoverObservation = PlanObservation | EndObservation | PictureTaken | FailoverAnnotated


# -- transitions -------------------------------------------------------------------------------------------------------


def follow(draft: Draft, state: ComponentState, transition: Transition) -> tuple[Transition, Absence | None]:
    """Record a transition of the component that was in `state`, and note what it means: the transition with that, and the component's
    absence after it.
    """
    component = transition.component
    transition = _explained(draft, state, transition)
    is_departure = episodes.leaves(transition, state.absence)
    before = draft.state.episode
    if before is None and is_departure and component.job_id is None:
        transition = replace(transition, episode_id=_new_id(draft, transition))
        _open(draft, transition)
        before = draft.state.episode
    elif before and (is_departure or episodes.has_part(state.absence, before)) and transition.kind is not Kind.OBSCURED:
        transition = replace(transition, episode_id=before.id)
    episode, absence = episodes.episode_after(before, state.absence, transition, is_departure=is_departure)
    if episode is not before:
        draft.update(episode=episode)
    if component.component is Component.REST_SERVER and draft.state.rest_server:
        draft.update(rest_server=rest_server.server_after(draft.state.rest_server, transition))
    if transition.kind is Kind.RETIRED:
        _lose(draft, transition, episode)
    if draft.state.departed:
        record_departed(draft, component)
    if component.job_id and transition.kind is Kind.REVOKED and draft.state.episode is None:
        draft.update(departed=with_items(draft.state.departed, {component: transition}))
    else:
        draft.happened.append(transition)
    return transition, absence


def withdrew(draft: Draft, component: ComponentId, state: ComponentState) -> ComponentState:
    """The component, whose leader is found to have removed its address itself."""
    led, episode, absence = state.last_led, draft.state.episode, state.absence
    if absence is None or absence.withdrew:
        return state
    if led and led.latest is not None:
        led = LastLed(led.latest, led.latest)
    if episode and component.job_id is None:
        facts = replace(episode.facts, orderly=True, withdrawn=episode.facts.withdrawn + 1)
        draft.update(episode=replace(episode, facts=facts))
    return replace(state, absence=replace(absence, withdrew=True), last_led=led)


def ended_for_good(draft: Draft) -> None:
    """Note that Flink has deleted the ConfigMap of its leaders, if they had removed their addresses: it ended for good."""
    own = draft.own.values()
    gone = [state.absence for state in own if state.absence]
    vacant = all(isinstance(state.leadership, Vacant) for state in own)
    if gone and vacant and all(absence.withdrew for absence in gone):
        draft.update(operated=plans.ended(draft.state.operated, draft.at))
        planned.consider(draft)


def _explained(draft: Draft, state: ComponentState, transition: Transition) -> Transition:
    """The transition with when the lost leader worked last, how long none has worked, and whether a job's plan vanished."""
    held = transition.before if isinstance(transition.before, Held) else None
    led = state.last_led
    if held and transition.kind in {Kind.REVOKED, Kind.CHANGED, Kind.RETIRED}:
        led = _last_led(draft, state, transition, held)
    if transition.kind is Kind.RETIRED:
        vanished = _plan_vanished(draft, state, led if held else None)
        return replace(transition, last_led=state.last_led, plan_vanished=vanished)
    if led is None:
        return transition
    is_same = transition.same_leader
    down = unobserved.downtime_since(led, draft.at.steady, same_leader=is_same) if transition.leader else None
    return replace(transition, last_led=led, downtime=down)


def _new_id(draft: Draft, transition: Transition) -> str:
    """The id of the episode that the transition opens."""
    own = draft.own.values()
    led = [state.last_known for state in own if state.last_known]
    places = [state.last_position for state in own if state.last_position]
    return episodes.key(draft.cluster_id, transition.store, led, places)


def _last_led(draft: Draft, state: ComponentState, transition: Transition, held: Held) -> LastLed:
    """When the leader that was `held` may have worked last. When its process ended is known to the millisecond, or not."""
    view, at = draft.state.view, draft.at
    gone = Gone(held.position, at.steady, state.published_at, transition.vacancy, in_sight=view.complete)
    timeout = draft.policy.session_timeouts.get(draft.cluster_id)
    led = unobserved.last_led(gone, timeout, view.loss, draft.before.leases)
    if draft.state.ends == ends.NOTHING:
        return led  # of thousands of jobs that move at once, each asks
    is_own = is_own_host(held.leader.address, in_kubernetes=transition.store is Store.KUBERNETES)
    since = max(at.steady - BEFORE, state.published_at or 0)
    process = process_of(draft.state.ends, Lost(held.leader.address, at, since, at.steady, is_own))
    is_its_own = is_own or process.is_identified
    return unobserved.ended_at(led, process.end.at.steady) if process.end and is_its_own else led


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
    has_withdrawn = dispatcher.absence is not None and dispatcher.absence.withdrew
    is_ordered = isinstance(dispatcher.last_position, ConfigMapPosition) and not has_withdrawn
    return led is not None and led.latest is not None and at > led.latest + (0 if is_ordered else episodes.LOOK_BACK)


def _lose(draft: Draft, transition: Transition, episode: Episode | None) -> None:
    """Note that a job is missing, if this failover has lost it."""
    job_id, fault = transition.component.job_id, episodes.lost_by(transition)
    faults = draft.state.job_faults
    if fault and job_id and job_id not in faults and episode and not recovery_state.is_left_out(episode.facts):
        jobs = draft.state.picture.jobs if draft.state.picture else ()
        name = next((clean(job.name) for job in jobs if job.id == job_id), None)
        lost = recovery_state.JobFault(fault, draft.at, episode.id, name)
        draft.update(job_faults={**faults, job_id: lost})


# -- the episode -------------------------------------------------------------------------------------------------------


def _open(draft: Draft, transition: Transition) -> None:
    """Open an episode with `transition`. Jobs that left shortly before belong to it."""
    led = {component: state.last_known for component, state in draft.own.items() if state.last_known}
    first = next(iter(led.values()), transition.last_known) or LeaderInformation("", UUID(int=0))
    loss, fewer = draft.state.view.loss, draft.state.fewer
    # One that was lost may have left its latch shortly before its address.
    has_left = fewer and draft.at.steady - fewer.at <= episodes.LOOK_BACK
    contended = fewer.contended if fewer and has_left else contending(draft.state.contenders)
    facts = episodes.facts_at_opening(transition, loss, [*led.values()], contended)
    facts = replace(facts, handed_over_by=draft.state.handed_over_by)
    episode = Episode(
        id=transition.episode_id or "",
        opened_at=draft.at,
        moved_at=draft.at,
        facts=facts,
        before=led.get(ComponentId(Component.DISPATCHER)) or first,
        jobs_total=sum(1 for component, _ in draft.all_states() if component.job_id),
    )
    draft.update(episode=_with_earlier_jobs(draft, episode))
    planned.consider(draft, opening=True)
    record_departed(draft, *draft.state.departed)
    if facts.loss and loss:
        draft.update(view=replace(draft.state.view, loss=replace(loss, obscured=False)))


def _with_earlier_jobs(draft: Draft, episode: Episode) -> Episode:
    """The new episode with the jobs that left shortly before it, whose loss is recorded now."""
    for component, state in draft.all_states():
        absence = state.absence
        recent = absence and draft.at.steady - absence.left_at <= episodes.LOOK_BACK
        if component.job_id and absence and absence.episode_id is None and recent:
            draft.keep(component, replace(state, absence=replace(absence, episode_id=episode.id)))
            episode = replace(episode, jobs_away=episode.jobs_away + episodes.is_away(absence))
            record_departed(draft, component, episode_id=episode.id)
    return episode


def record_departed(draft: Draft, *components: ComponentId, episode_id: str | None = None) -> None:
    """Record the loss of these jobs' leaders, unless it is recorded already."""
    departed = draft.state.departed
    if lost := [transition for component in components if (transition := departed.get(component))]:
        draft.happened += (replace(transition, episode_id=episode_id) for transition in lost)
        draft.update(departed=without_items(departed, components))


def _close(draft: Draft) -> None:
    """Close and record the open episode."""
    episode = draft.state.episode
    assert episode  # noqa: S101  the caller checked
    operated = draft.state.operated
    closed = replace(episode, facts=deaths.facts_of(draft.state, episode), closed_at=draft.at)
    parts = parts_of(draft.all_states(), episode)
    draft.happened.append(draft.writer.episode(closed, parts, draft.state.pods))
    disruptions, ends_before, last = draft.state.disruptions, draft.state.ends, draft.state.last_episode
    draft.update(
        episode=None,
        last_episode=closed,
        operated=plans.used_up(operated),
        disruptions=plans.other_disruptions(disruptions, episode.before.address),
        ends=ends.without_past(ends_before, last.moved_at) if last else ends_before,
    )


def _close_blindness(draft: Draft) -> None:
    """Record that the store could not be read, and that no leader changed meanwhile."""
    loss = draft.state.view.loss
    assert loss  # noqa: S101  the caller checked
    dispatcher = draft.state_of(ComponentId(Component.DISPATCHER))
    draft.happened.append(draft.writer.blindness(loss, dispatcher.last_known if dispatcher else None))
    draft.update(view=replace(draft.state.view, loss=replace(loss, obscured=False)))


# -- everything else ---------------------------------------------------------------------------------------------------


def observe(draft: Draft, observation: FailoverObservation) -> None:
    """Update the cluster by an observation of plans, ends of processes, Flink's REST server, or what people say of a failover."""
    if isinstance(observation, PictureTaken):
        draft.state, answer = rest_server.answered(draft.state, observation)
        if answer is not None:
            cluster = rest_server.observed(draft.policy, draft.state, answer)
            draft.state, records = assessment.observe(draft.policy, draft.cluster_id, cluster, answer)
            draft.happened += records
    elif isinstance(observation, FailoverAnnotated):
        draft.state = assessment.annotated(draft.state, observation)
    elif isinstance(observation, EndObservation):
        deaths.observe(draft, observation)
    else:
        planned.observe(draft, observation)


def leaders_read(draft: Draft) -> None:
    """Note what follows when the leadership machine has applied an observation."""
    before, loss, episode = draft.before.view.loss, draft.state.view.loss, draft.state.episode
    if episode and episode.facts.loss and before and before.ended is None and loss and loss.ended:
        draft.update(episode=replace(episode, facts=replace(episode.facts, loss=loss)))
    if draft.state.operated:
        planned.forget_earlier_stop(draft)


def record_alone(draft: Draft) -> None:
    """Record the loss of job leaders that is too old to be the first of a failover."""
    cluster, since = draft.before, draft.at.steady - episodes.LOOK_BACK
    absences = {component: cluster.components[component].absence for component in cluster.departed}
    record_departed(
        draft, *[component for component, absence in absences.items() if not absence or absence.left_at < since]
    )


def tick(draft: Draft) -> None:
    """Record what time has decided: why a leader ended, that a failover is over, or that nothing happened in a time of blindness."""
    cluster, now = draft.before, draft.at
    episode, loss = cluster.episode, cluster.view.loss
    in_sight = cluster.view.complete and not cluster.is_overdue(now)
    is_over = in_sight and episode is not None and _is_over(cluster, episode, now)
    was_blind = loss and loss.obscured and loss.ended and now.steady - loss.ended.steady > RELATED
    if is_over or deaths.is_due(cluster, now):  # of the last failover, before another one takes its place
        deaths.record(draft)
    if is_over:
        _close(draft)
    elif in_sight and episode is None and was_blind:
        _close_blindness(draft)


def restart(draft: Draft, alive: Moment) -> None:
    """Begin with what an earlier process knew, which ran until `alive`: plans and processes are observed anew."""
    draft.update(operated=plans.unread(draft.state.operated, alive), ends=ends.restarted(draft.state.ends))


def removed(draft: Draft) -> None:
    """Record the failover in progress of a cluster that was removed, after its leaderships were retired."""
    episode, episode_before = draft.state.episode, draft.before.episode
    if episode and episode_before:
        parts = parts_of(draft.before.own.items(), episode_before)
        facts = replace(episode.facts, removed=episode_before.away > 0)
        draft.happened.append(draft.writer.episode(replace(episode, facts=facts), parts, draft.state.pods))
        draft.update(episode=None)


def _is_over(cluster: ClusterState, episode: Episode, now: Moment) -> bool:
    if not episodes.is_over(episode, now):  # who leads is asked last: in most ticks of a failover it has no say
        return False
    divided = episodes.is_divided([(component, state.leadership) for component, state in cluster.own.items()])
    return episodes.is_over(episode, now, divided=divided)


def decided_at(clusters: Iterable[ClusterState]) -> dict[str, int]:
    """When (steady) a failover in progress is closed, and its cause decided, by its id. 0: as soon as its jobs have leaders. Without those
    in which a component of the cluster has none.
    """
    episodes_now = (cluster.episode for cluster in clusters)
    return {
        episode.id: 0 if episode.jobs_away else episode.moved_at.steady + episodes.SETTLED
        for episode in episodes_now
        if episode and not episode.away
    }


def planned_ends(clusters: Mapping[str, ClusterState], now: Moment) -> set[str]:
    """The clusters that have leaders again after a planned failover which is recorded in a moment, if nothing else changes."""
    return {
        name
        for name, cluster in clusters.items()
        if (episode := cluster.episode)
        and episode.facts.intent
        and not (episode.away or episode.jobs_away)
        and now.steady < episode.moved_at.steady + episodes.SETTLED
    }
