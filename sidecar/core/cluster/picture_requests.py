"""When Flink's REST server is asked for a picture of a cluster, and which answers are of use."""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster import recovery
from sidecar.core.cluster.state import ClusterState, PictureRequested
from sidecar.core.flink.leadership import Component, ComponentId, Held, LeaderInformation
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import ENDED, Picture, PictureRequest
from sidecar.core.policy.policy import Policy

ASSESSED: Final = SECOND
"""The interval while a failover is assessed."""
PATIENT: Final = 30
"""While a failover is assessed, so many failures in a row are elections and starting jobs; then the interval doubles with each."""
LONGEST: Final = 300 * SECOND
"""The interval doubles with each failure, up to this one."""
LIMIT: Final = 300 * SECOND
"""A request older than this is not answered any more."""
_MOST_DOUBLED: Final = 10
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)


def due(
    policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment
) -> tuple[ClusterState, PictureRequest | None]:
    """The cluster, and the request that is due. One at a time; none unless a leading REST server is known."""
    last = cluster.picture_request
    if last and last.waiting and now.steady - last.at < LIMIT:
        return cluster, None
    first = recovery.asked_first(cluster)
    leader = _leader(cluster)
    if leader is None:
        return cluster, None
    if last is None or last.leader != leader:
        failures = 0
    elif now.steady - last.at >= _pause(policy, last.failures, assessed=first is not None):
        failures = last.failures + last.waiting
    else:
        return cluster, None
    asked = replace(cluster, picture_request=PictureRequested(leader, now.steady, failures=failures))
    return asked, PictureRequest(cluster_id, leader.address, first or (), thorough=first is not None)


def answered(cluster: ClusterState, taken: PictureTaken) -> tuple[ClusterState, PictureTaken | None]:
    """The cluster, and the answer as far as it is of use: None if another leads by now than when it was asked."""
    last, leader = cluster.picture_request, _leader(cluster)
    if last is None or not last.waiting:  # nobody asked: it counts if it is an answer of the leader
        return cluster, taken if leader and leader.address == taken.address else None
    if last.leader.address != taken.address:
        return cluster, None
    if taken.picture and _is_of_another(cluster, taken.picture):
        taken = replace(
            taken,
            picture=None,
            problem="the REST server describes another cluster: all of its jobs are unknown in the store",
        )
    failures = 0 if taken.picture else last.failures + 1
    after = replace(cluster, picture_request=replace(last, waiting=False, failures=failures))
    return after, taken if leader == last.leader else None


def _leader(cluster: ClusterState) -> LeaderInformation | None:
    if not cluster.leaders_in_sight:
        return None
    known = cluster.components[_REST_SERVER].leadership
    return known.leader if isinstance(known, Held) else None


def _pause(policy: Policy, failures: int, *, assessed: bool) -> int:
    """From one request to the next."""
    interval = ASSESSED if assessed else policy.picture_interval
    doubled = max(0, failures - PATIENT) if assessed else failures
    return max(interval, min(interval << min(doubled, _MOST_DOUBLED), LONGEST))


def _is_of_another(cluster: ClusterState, picture: Picture) -> bool:
    """Whether the store knows jobs, and none of those that the picture shows: an address may belong to another cluster by now."""
    shown = {job.id for job in picture.jobs if job.state not in ENDED}
    stored = {component.job_id for component in cluster.components if component.job_id}.union(*cluster.jobs.values())
    return bool(shown and stored) and shown.isdisjoint(stored)
