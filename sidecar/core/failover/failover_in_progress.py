"""Opens and closes the failover in progress, and decides what belongs to it."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import ends, episodes, plans
from sidecar.core.failover.causes import Facts, Verdict, verdict
from sidecar.core.failover.death_facts import NO_STATE
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.leader_process import AFTER, end_of_pod, failed_successors, lost_leader, process_of
from sidecar.core.flink.leadership import (
    Component,
    ComponentId,
    LeaderInformation,
)
from sidecar.core.leadership.transitions import Transition
from sidecar.core.moment import Moment
from sidecar.core.overlay import without_items


def episode_id(draft: Draft, state: ComponentState, transition: Transition) -> str | None:
    """The episode that the transition belongs to or opens, if any."""
    if draft.state.episode:
        is_part = episodes.belongs(transition, state.absence, draft.state.episode)
        return draft.state.episode.id if is_part else None
    if transition.component.job_id or not episodes.leaves(transition, state.absence):
        return None
    own = [state for component, state in draft.all_states() if component.job_id is None]
    led = [state.last_known for state in own if state.last_known]
    places = [state.last_position for state in own if state.last_position]
    return episodes.key(draft.cluster_id, transition.store, led, places)


def open_episode(draft: Draft, transition: Transition) -> None:
    """Open an episode with `transition`. Jobs that left shortly before belong to it."""
    led = {
        component: state.last_known
        for component, state in draft.all_states()
        if state.last_known and component.job_id is None
    }
    first = next(iter(led.values()), transition.last_known) or LeaderInformation("", UUID(int=0))
    loss = draft.state.view.loss
    facts = episodes.facts_at_opening(transition, loss, [*led.values()], _contended(draft))
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
    consider_plans(draft, opening=True)
    record_departed(draft, *draft.state.departed)
    if facts.loss and loss:
        draft.update(view=replace(draft.state.view, loss=replace(loss, obscured=False)))


def _with_earlier_jobs(draft: Draft, episode: Episode) -> Episode:
    """The new episode with the jobs that left shortly before it, whose loss is recorded now."""
    for component, state in [*draft.all_states()]:
        absence = state.absence
        recent = absence and draft.at.steady - absence.left_at <= episodes.LOOK_BACK
        if component.job_id and absence and absence.episode_id is None and recent:
            draft.keep(component, replace(state, absence=replace(absence, episode_id=episode.id)))
            episode = replace(episode, jobs_away=episode.jobs_away + episodes.is_away(absence))
            record_departed(draft, component, episode_id=episode.id)
    return episode


def consider_plans(draft: Draft, *, opening: bool = False) -> None:
    """Whether the failover in progress was planned, as far as is known now."""
    episode, operated = draft.state.episode, draft.state.operated
    if episode is None:
        return
    facts, at = episode.facts, episode.opened_at
    intent = plans.revised(facts.intent, operated, at) or plans.intent(operated, at, unseen=facts.unseen)
    intent = intent or plans.drain(draft.state.disruptions, episode.before.address, at)
    is_read = operated is not None and operated.is_read and (opening or facts.operated)
    restart = facts.restart or ends.restart_near(draft.state.ends, at)
    if (intent, is_read, restart) != (facts.intent, facts.operated, facts.restart):
        facts = replace(facts, intent=intent, operated=is_read, restart=restart)
        draft.update(episode=replace(episode, facts=facts))


def record_departed(draft: Draft, *components: ComponentId, episode_id: str | None = None) -> None:
    """Record the loss of these jobs' leaders, unless it is recorded already."""
    departed = draft.state.departed
    for component in components:
        if transition := departed.get(component):
            draft.happened.append(replace(transition, episode_id=episode_id))
    if (remaining := without_items(departed, components)) is not departed:
        draft.update(departed=remaining)


def _contended(draft: Draft) -> int | None:
    """How many JobManagers contended before the failover: a lost one may have left its latch shortly before its address."""
    fewer = draft.state.fewer
    if fewer and draft.at.steady - fewer.at <= episodes.LOOK_BACK:
        return fewer.contended
    return contending(draft.state.contenders)


def close_episode(draft: Draft) -> None:
    """Close and record the open episode."""
    episode = draft.state.episode
    assert episode  # noqa: S101  the caller checked
    operated = draft.state.operated
    closed = replace(episode, facts=facts_of(draft.state, episode), closed_at=draft.at)
    parts = {component: state for component, state in draft.all_states() if episodes.has_part(state.absence, episode)}
    draft.happened.append(draft.writer.episode(closed, parts, draft.state.pods))
    disruptions, ends_before, last = draft.state.disruptions, draft.state.ends, draft.state.last_episode
    draft.update(
        episode=None,
        last_episode=closed,
        operated=plans.used_up(operated),
        disruptions=plans.other_disruptions(disruptions, episode.before.address),
        ends=ends.without_past(ends_before, last.moved_at) if last else ends_before,
    )


def close_blindness(draft: Draft) -> None:
    """Record that the store could not be read, and that no leader changed meanwhile."""
    loss = draft.state.view.loss
    assert loss  # noqa: S101  the caller checked
    dispatcher = draft.state_of(ComponentId(Component.DISPATCHER))
    draft.happened.append(draft.writer.blindness(loss, dispatcher.last_known if dispatcher else None))
    draft.update(view=replace(draft.state.view, loss=replace(loss, obscured=False)))


def facts_of(cluster: ClusterState, episode: Episode) -> Facts:
    """The facts of one of the cluster's failovers. Of the one in progress: as if it were closed now."""
    if cluster.episode is None or cluster.episode.id != episode.id:
        return episode.facts
    operated = episode.facts.operated and plans.expected_until(cluster.operated, episode.opened_at) is None
    facts = replace(episode.facts, contend=contending(cluster.contenders), operated=operated)
    return _with_process(facts, cluster, episode)


def _with_process(facts: Facts, cluster: ClusterState, episode: Episode) -> Facts:
    """`facts` with what is known of the leader's process: that it ended, or that it runs."""
    if cluster.ends == ends.NOTHING:
        return facts
    facts = replace(facts, failed=tuple(failed_successors(cluster.ends, episode)))
    lost = lost_leader(cluster, episode, AFTER)
    process, (_, container) = process_of(cluster.ends, lost), end_of_pod(cluster.ends, lost)
    if end := process.end:
        return replace(facts, exit_code=end.end.exit_code, exited_at=end.at.steady)
    if container and container.reason not in NO_STATE:
        return replace(facts, exit_code=container.exit_code, exited_at=container.at.steady)
    if (running := process.running) is None:
        return facts
    since, until = running.stood_still or (None, None)
    relevant = since is not None and (until is None or until.steady >= lost.since)
    return replace(
        facts,
        lives=True,
        is_stopped=relevant and running.process.is_stopped,
        stood_still=until.steady - since.steady if relevant and since and until else None,
    )


def cause_of(cluster: ClusterState, episode: Episode) -> Verdict:
    """Why it happened, as far as is known."""
    return verdict(facts_of(cluster, episode))


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
