"""One cluster after an observation of what is meant to happen to it."""

from sidecar.core.cluster import failover_in_progress, plans, store_view
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.cluster.plans import Disruption
from sidecar.core.cluster.state import ClusterState
from sidecar.core.observations import DeploymentObserved, DeploymentUnreadable, PlanObservation, PodDisrupted
from sidecar.core.policy.policy import Policy


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: PlanObservation) -> ClusterStep:
    """The cluster after `observation`, also while its leaders cannot be read."""
    operated, disruptions, at = cluster.operated, cluster.disruptions, observation.at
    match observation:
        case DeploymentObserved(deployment=deployment):
            operated = plans.observed(operated, deployment, at)
        case DeploymentUnreadable():
            operated = plans.unread(operated, at)
        case PodDisrupted():
            found = Disruption(at, observation.pod, observation.address, observation.node)
            disruptions = plans.disrupted(disruptions, observation.uid, found)
    if operated is cluster.operated and disruptions is cluster.disruptions:
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, at)
    draft.update(operated=operated, disruptions=disruptions)
    if plans.is_unwanted(operated) is not cluster.view.suspended:
        store_view.cover(draft, cluster.view.sighting, at)
    failover_in_progress.consider_plans(draft)
    return draft.outcome()
