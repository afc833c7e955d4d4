"""What to do first while a cluster has no leader: before anybody asks why."""

from sidecar.core.cluster.failover import plans
from sidecar.core.cluster.state import ClusterState, contending
from sidecar.core.flink.leadership import Vacant


def first_step(cluster: ClusterState) -> str | None:
    """One sentence; None: each of the cluster's own components has a leader, or none is wanted, or it cannot be seen now."""
    vacant = any(
        isinstance(state.leadership, Vacant) for component, state in cluster.components.items() if not component.job_id
    )
    if not vacant or not cluster.leaders_in_sight or plans.is_unwanted(cluster.operated):
        return None
    number = contending(cluster.contenders)
    if number is None:
        return "Check whether a JobManager runs and can reach the store; start one if none does."
    if number == 0:
        return "No JobManager contends: start one."
    return (
        f"{number} JobManager{' contends' if number == 1 else 's contend'}: if none leads within a minute, restart one."
    )
