"""One cluster: observations and time in, the next state and its records out.

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
    Drilled,
    Sighting,
)
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.failover import failover_machine
from sidecar.core.flink.leadership import Held
from sidecar.core.ha.results import Checked, KnownCheck, known
from sidecar.core.leadership import leadership_machine
from sidecar.core.leadership.store_view import COVERAGE_INTERVAL, cover
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
