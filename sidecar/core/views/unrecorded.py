"""What is known of failovers and not recorded yet, as it would be recorded now: of those in progress, and for a while after their end."""

from collections.abc import Iterator

from sidecar.core.cluster.death.deaths import death_of
from sidecar.core.cluster.death.ends import KEPT
from sidecar.core.cluster.records.record_writer import RecordWriter
from sidecar.core.cluster.recovery.assessment import current_rows
from sidecar.core.records import Death, Recovery
from sidecar.core.views.snapshot import Snapshot


def records(snapshot: Snapshot) -> Iterator[Death | Recovery]:
    """Of each cluster's current failover, and of the last one until that is recorded: why the previous leader ended, and what is back."""
    for cluster_id, cluster in snapshot.state.clusters.items():
        writer = RecordWriter(snapshot.policy, cluster_id, snapshot.at)
        for episode in filter(None, (cluster.last_episode, cluster.episode)):
            is_kept = episode.closed_at is None or snapshot.at.steady - episode.closed_at.steady < KEPT
            if is_kept and episode.death is None and (death := death_of(cluster, episode)):
                yield writer.death(episode.id, death)
        if cluster.recovery:
            yield from current_rows(snapshot.policy, cluster_id, cluster, snapshot.at)
