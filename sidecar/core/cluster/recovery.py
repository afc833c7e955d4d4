"""Whether everything came back after a failover: jobs, their state and the TaskManagers, compared with the last picture before it."""

from sidecar.core.cluster.draft import ClusterStep
from sidecar.core.cluster.state import ClusterState
from sidecar.core.observations import PictureTaken
from sidecar.core.policy.policy import Policy


def asked_first(cluster: ClusterState) -> tuple[str, ...] | None:  # noqa: ARG001  not decided yet
    """The jobs whose checkpoints the assessment in progress needs; None: no failover is assessed."""
    return None


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: PictureTaken) -> ClusterStep:  # noqa: ARG001  not decided yet
    """The cluster after `observation`, and what is to be recorded of it."""
    return cluster, []
