"""Losses that are accepted by annotating a failover: those known at that time. A loss found later is not accepted."""

from msgspec.structs import replace

from sidecar.core.cluster.recovery.recovery_state import Assessment
from sidecar.core.cluster.state import ClusterState
from sidecar.core.observations import FailoverAnnotated


def annotated(cluster: ClusterState, note: FailoverAnnotated) -> ClusterState:
    """The cluster after one of its failovers was annotated, also if that is observed again; the same object if nothing is accepted."""
    recovery, assessed = cluster.recovery, cluster.assessed
    if recovery and recovery.episode_id == note.episode_id:
        if recovery.annotated_at is not None and note.noted_at <= recovery.annotated_at:
            return cluster
        return replace(cluster, recovery=replace(recovery, annotated_at=note.noted_at))
    if assessed and assessed.episode_id == note.episode_id and not assessed.accepted:
        cluster = replace(cluster, assessed=replace(assessed, accepted=note.noted_at >= assessed.at.wall))
    return without_losses(cluster, note.episode_id, note.noted_at)


def without_losses(cluster: ClusterState, episode_id: str, until: int) -> ClusterState:
    """The cluster without the jobs whose loss in this failover was known at `until` (wall)."""
    faults = {
        job_id: fault
        for job_id, fault in cluster.job_faults.items()
        if fault.episode_id != episode_id or fault.since.wall > until
    }
    return cluster if len(faults) == len(cluster.job_faults) else replace(cluster, job_faults=faults)


def is_accepted(cluster: ClusterState, recovery: Assessment) -> bool:
    """Whether everything that is known to be lost in the failover whose recovery is assessed is accepted: something is."""
    losses = [fault.since.wall for fault in cluster.job_faults.values() if fault.episode_id == recovery.episode_id]
    if recovery.reported_at is not None:
        losses.append(recovery.reported_at)
    return recovery.annotated_at is not None and bool(losses) and recovery.annotated_at >= max(losses)
