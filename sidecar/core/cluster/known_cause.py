"""What is known of a failover now: the one place from which message, page, commands and record have its cause."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster import episodes, plans
from sidecar.core.cluster.causes import Facts, Verdict, verdict
from sidecar.core.cluster.episodes import Episode
from sidecar.core.cluster.state import ClusterState, contending


def facts_of(cluster: ClusterState, episode: Episode) -> Facts:
    """The facts of one of the cluster's failovers. Of the one in progress: as if it were closed now."""
    if cluster.episode is None or cluster.episode.id != episode.id:
        return episode.facts
    operated = episode.facts.operated and plans.expected_until(cluster.operated, episode.opened_at) is None
    return replace(episode.facts, contend=contending(cluster.contenders), operated=operated)


def cause_of(cluster: ClusterState, episode: Episode) -> Verdict:
    """Why it happened, as far as is known."""
    return episode.recorded or verdict(facts_of(cluster, episode))


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
