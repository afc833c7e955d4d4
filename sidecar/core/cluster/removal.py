"""A found cluster that was removed: its leaderships are retired, and nothing is expected of it any more.

A removal on purpose: the leaders withdraw, then the cluster's place in the store is deleted (by Flink when its application ends, by the
operator when its resource is deleted). If the place is deleted while a leader is published there, its JobManager exits and another one
creates the place again: that is a failover. Only if nothing returns for REMOVED_AFTER, the cluster counts as removed.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.cluster.failover import episodes, failover_in_progress
from sidecar.core.cluster.leadership_changes import Reading, apply
from sidecar.core.cluster.leadership_table import Sight
from sidecar.core.cluster.state import ClusterState, Sighting
from sidecar.core.cluster.store import store_view
from sidecar.core.flink.leadership import Held, Unknown
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy

REMOVED_AFTER: Final = 600 * SECOND


def has_leader(cluster: ClusterState) -> bool:
    """Whether one of the cluster's own components is known to have a leader now."""
    return any(
        isinstance(state.leadership, Held) for component, state in cluster.components.items() if not component.job_id
    )


def is_forgotten(cluster: ClusterState, now: Moment) -> bool:
    """Whether nothing of the cluster has existed for so long that it counts as removed."""
    return cluster.in_sight and cluster.gone is not None and now.steady - cluster.gone.steady >= REMOVED_AFTER


def removed(policy: Policy, cluster_id: str, cluster: ClusterState, at: Moment) -> ClusterStep:
    """The records of the removal, and the cluster as it ends: without any component."""
    draft = Draft(policy, cluster_id, cluster, at)
    failover_in_progress.record_departed(draft, *cluster.departed)
    episode = cluster.episode
    parts = {
        component: state
        for component, state in cluster.components.items()
        if not component.job_id and episode and episodes.has_part(state.absence, episode)
    }
    for component, state in cluster.components.items():
        if state.last_known or not isinstance(state.leadership, Unknown):
            apply(draft, component, state, Reading(Sight.JOB_ENDED))
        else:
            draft.remove(component)
    if episode and draft.state.episode:
        facts = replace(draft.state.episode.facts, removed=episode.away > 0)
        draft.happened.append(draft.writer.episode(replace(draft.state.episode, facts=facts), parts, cluster.pods))
        draft.update(episode=None)
    store_view.cover(draft, Sighting.BLIND, at)
    return draft.outcome()
