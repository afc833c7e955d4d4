"""One cluster: observations and time in, the next state and its records out; and what it leaves to the next sidecar.

Here the two machines are called, in order. The leadership machine acts first, the failover machine follows. Only what that has held back
is recorded before: the loss of job leaders, in a tick, at a restart and at the end.

A found cluster that was removed: its leaderships are retired, and nothing is expected of it any more. A removal on purpose: the leaders
withdraw, then the cluster's place in the store is deleted (by Flink when its application ends, by the operator when its resource is
deleted). If the place is deleted while a leader is published there, its JobManager exits and another one creates the place again: that is
a failover. Only if nothing returns for REMOVED_AFTER, the cluster counts as removed.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.agreement import Peers
from sidecar.core.cluster.cluster_state import (
    ClusterState,
    ComponentState,
    Drilled,
    Sighting,
    View,
    fresh_cluster,
    last_known_state,
)
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.failover import assessment, failover_machine, plans
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import Held, Vacant
from sidecar.core.ha.results import Checked, KnownCheck, known
from sidecar.core.leadership import leadership_machine, unobserved
from sidecar.core.leadership.leadership_account import Standing, changed, opened
from sidecar.core.leadership.store_view import COVERAGE_INTERVAL, cover
from sidecar.core.leadership.unobserved import Downtime, Gone, LastLed
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ClusterObservation, HaChecked, NotProcessed, PeersAsked
from sidecar.core.policy.policy import Policy

REMOVED_AFTER: Final = 600 * SECOND


def leaders_observed(
    policy: Policy, cluster_id: str, cluster: ClusterState, observation: ClusterObservation | NotProcessed
) -> ClusterStep:
    """The cluster after `observation` of its store, and what is to be recorded of it."""
    draft = Draft(policy, cluster_id, cluster, observation.at)
    if leadership_machine.observe(draft, observation):
        failover_machine.leaders_read(draft)
    return draft.outcome()


def facts_observed(
    policy: Policy,
    cluster_id: str,
    cluster: ClusterState,
    observation: failover_machine.FailoverObservation | HaChecked | PeersAsked,
) -> ClusterStep:
    """The cluster after `observation` from outside of the leaders, also while these cannot be read."""
    draft = Draft(policy, cluster_id, cluster, observation.at)
    if isinstance(observation, HaChecked):
        _checks_observed(draft, observation)
    elif isinstance(observation, PeersAsked):
        draft.update(peers=Peers(observation.known, observation.opinions, observation.at.steady))
    else:
        failover_machine.observe(draft, observation)
        after = draft.state
        is_plan = after.operated is not cluster.operated or after.disruptions is not cluster.disruptions
        if is_plan and after.wants_no_leader is not cluster.view.suspended:
            cover(draft, cluster.view.sighting, observation.at)
    return draft.outcome()


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster when nothing but time has passed."""
    draft = Draft(policy, cluster_id, cluster, now)
    if cluster.peers.is_old(now):
        draft.update(peers=replace(cluster.peers, opinions=()))
    if cluster.departed:
        failover_machine.record_alone(draft)
    leadership_machine.tick(draft)
    failover_machine.tick(draft)
    if draft.state is not cluster or now.steady - cluster.view.since.steady >= COVERAGE_INTERVAL:
        cover(draft, draft.state.view.sighting, now)
    return draft.outcome()


def restart(policy: Policy, cluster_id: str, cluster: ClusterState, alive: Moment, now: Moment) -> ClusterStep:
    """The cluster as a new process finds it in the journal, to be read anew. `alive`: until when the earlier process ran."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_machine.record_departed(draft, *cluster.departed)
    leadership_machine.restart(draft, alive)
    failover_machine.restart(draft, alive)
    if not cluster.drilled.since:
        draft.update(drilled=Drilled(since=now.wall))
    return draft.outcome()


def stop(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster at an orderly end: what was covered until now is recorded."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_machine.record_departed(draft, *cluster.departed)
    cover(draft, Sighting.BLIND, now)
    return draft.outcome()


def removed(policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> ClusterStep:
    """The records of the removal, and the cluster as it ends: without any component."""
    draft = Draft(policy, cluster_id, cluster, at)
    failover_machine.record_departed(draft, *cluster.departed)
    leadership_machine.removed(draft)
    failover_machine.removed(draft)
    cover(draft, Sighting.BLIND, at)
    return draft.outcome()


def has_leader(cluster: ClusterState) -> bool:
    """Whether one of the cluster's own components is known to have a leader now."""
    return any(isinstance(state.leadership, Held) for state in cluster.own.values())


def is_forgotten(cluster: ClusterState, now: Moment) -> bool:
    """Whether nothing of the cluster has existed for so long that it counts as removed."""
    return cluster.is_in_sight and cluster.gone is not None and now.steady - cluster.gone.steady >= REMOVED_AFTER


def _checks_observed(draft: Draft, observation: HaChecked) -> None:
    before = draft.before.readiness.checks if draft.before.readiness else {}
    checks: dict[str, KnownCheck] = {}
    for result in observation.results:
        last = before.get(result.check)
        check = checks[result.check] = known(last, result, observation.at)
        if last is None or check.recorded_at != last.recorded_at:
            draft.happened.append(draft.writer.ha_check(check, last))
    draft.update(readiness=Checked(observation.at, checks))


_DEPARTURE: Final = (
    *("orderly", "left", "withdrawn", "released", "not_renewed_for", "deleted"),
    *("unseen", "opened", "loss", "contended", "quiet_end"),
)
"""The facts about how a failover began."""


def hand_over(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterState:
    """The state that the next sidecar needs: the last leaders, until when at the earliest they led, and the failover in progress. The view
    is left out: each sidecar has its own.
    """
    last = cluster.last_episode
    if last and last.death:  # it is recorded
        last = replace(last, closed_at=None)
    return replace(
        fresh_cluster(now),
        components={
            component: _handed_over(policy, cluster_id, cluster, state, now)
            for component, state in cluster.components.items()
        },
        leases={name: lease for name, lease in cluster.leases.items() if lease.lapsed},
        episode=cluster.episode,
        last_episode=last,
        standby=cluster.standby,
        contested=cluster.contested,
        pods=cluster.pods,
        operated=plans.unread(cluster.operated, now),
        disruptions=cluster.disruptions,
        picture=assessment.expected(cluster),
        assessed=assessment.handed_over(cluster, now),
        job_faults=cluster.job_faults,
        rest_server=cluster.rest_server,
        drilled=cluster.drilled,
        account=changed(cluster.account or opened(now.steady), Standing.UNOBSERVED, now.steady, now.steady),
    )


def _handed_over(
    policy: Policy, cluster_id: str, cluster: ClusterState, state: ComponentState, now: Moment
) -> ComponentState:
    last_led, absence = state.last_led, state.absence
    match state.leadership:
        case Held(_, position):
            gone = Gone(position, now.steady, state.published_at, None, in_sight=cluster.is_in_sight)
            timeout = policy.session_timeouts.get(cluster_id)
            last_led = LastLed(unobserved.last_led(gone, timeout, cluster.view.loss, cluster.leases).earliest, None)
        case Vacant() if absence and last_led and last_led.latest is not None:
            # What was observed of the vacancy counts; another leader may follow before the next sidecar looks.
            observed = Downtime(now.steady - last_led.latest, 0)
            absence = replace(absence, downtime=absence.downtime + observed)
            last_led = LastLed(last_led.earliest, None)
    return replace(last_known_state(state, now), last_led=last_led, absence=absence, seen_at=0)


def take_over(cluster: ClusterState, observer: str, now: Moment) -> ClusterState:
    """The cluster as `observer` handed it over: nothing has been read yet."""
    episode = cluster.episode
    if episode:
        episode = replace(episode, facts=replace(episode.facts, handed_over_by=observer))
    return replace(cluster, view=View(since=now, turned_at=now), episode=episode, handed_over_by=observer)


def informed(cluster: ClusterState, theirs: Episode | None, observer: str) -> ClusterState:
    """The cluster with what `observer` knows of the failover in progress, whose beginning was not observed here."""
    ours = cluster.episode
    if ours is None or theirs is None or ours.id != theirs.id or not ours.facts.unseen or theirs.facts.unseen:
        return cluster
    how_it_began = {name: getattr(theirs.facts, name) for name in _DEPARTURE}
    facts = replace(ours.facts, **how_it_began, handed_over_by=observer)
    return replace(cluster, episode=replace(ours, facts=facts))
