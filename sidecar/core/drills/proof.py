"""Whether it is known that a drill's failover began after the sidecar had read the drill.

A store notices late that a leader has died: ZooKeeper when its session ends, Kubernetes when its lease is not renewed any more. So a drill
that is written after a crash, and read before the store notices, must hide nothing.
"""

from typing import Final

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover.deaths import death_of
from sidecar.core.failover.episodes import Episode
from sidecar.core.leadership.unobserved import TICK
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Store

FLINKS_TIMEOUT: Final = 60 * SECOND
"""`high-availability.zookeeper.client.session-timeout`, if it is not configured."""


def lived(cluster: ClusterState, since: Moment) -> bool:
    """Whether the present leader has lived after `since`, where no loss was observed since then: its REST server has answered a later
    request, or it has renewed its lease. What is read after a reconnection may have happened before it.
    """
    if cluster.episode is not None or not cluster.leaders_in_sight or cluster.view.connected_at > since.steady:
        return False
    asked = cluster.picture_request
    answered = asked and asked.leader == cluster.rest_leader and asked.at > since.steady
    if asked and answered and not asked.waiting and not asked.failures:
        return True
    return any(lease.renewed_at is not None and lease.renewed_at > since.steady for lease in cluster.leases.values())


def began_after(policy: Policy, cluster_id: str, cluster: ClusterState, episode: Episode, since: Moment) -> bool:
    """Whether the failover began after `since`: the leader withdrew in order, its process ended later, or the store cannot be so late."""
    parts = [state.absence for state in cluster.components.values() if state.absence]
    if any(part.withdrew and part.left_at > since.steady for part in parts if part.episode_id == episode.id):
        return True
    death = death_of(cluster, episode)
    if death and death.ended_at is not None and death.ended_at > since.wall:
        return True
    if policy.store_of(cluster_id) is not Store.ZOOKEEPER:
        return False
    loss = cluster.view.loss
    if loss and loss.ended is None:
        return False
    # After an outage ZooKeeper restarts the timeout of all sessions.
    counted_from = max(since.steady, loss.ended.steady) if loss and loss.ended else since.steady
    timeout = policy.session_timeouts.get(cluster_id, FLINKS_TIMEOUT)
    return episode.opened_at.steady - counted_from > max(timeout, 2 * TICK) + TICK
