"""Why the process of a JobManager that lost its leadership ended: a verdict with the facts it rests on, beside the cause in the store."""

from sidecar.core.cluster.draft import ClusterStep
from sidecar.core.cluster.state import ClusterState
from sidecar.core.observations import EndObservation
from sidecar.core.policy.policy import Policy


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: EndObservation) -> ClusterStep:  # noqa: ARG001  not decided yet
    """The cluster after `observation`, and what is to be recorded of it."""
    return cluster, []
