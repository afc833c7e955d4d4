"""Conclusions from the list of all makers of JobManagers in Kubernetes: one that is missing was deleted while this observer could not see
it, or has never existed."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import plans
from sidecar.core.failover.plans import Operated
from sidecar.core.flink.deployments import Candidate, Maker
from sidecar.core.flink.leadership import Vacant
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Need, Policy, Store


def listed(cluster: ClusterState, cluster_id: str, there: Iterable[Candidate], at: Moment) -> Operated | None:
    """The state of the cluster's maker if it is one of the candidates `there`."""
    operated, plain = cluster.operated, cluster_id.rpartition("/")[2]
    own = [candidate for candidate in there if candidate.app in {"", plain}]
    if operated is None or operated.kind is Maker.NOTHING:
        return _any(operated, at) if own else _none(cluster, at)
    if operated.deployment is None:
        return operated
    name = operated.name or plain
    is_there = any((candidate.kind, candidate.name) == (operated.kind, name) for candidate in own)
    return operated if is_there else plans.deleted(operated, at)


def _any(operated: Operated | None, at: Moment) -> Operated | None:
    """The state of the cluster's maker if one may exist."""
    if operated is None or operated.unwanted_since is None:
        return operated
    return replace(operated, unwanted_since=None, unread_since=None, wanted_since=at)


def _none(cluster: ClusterState, at: Moment) -> Operated | None:
    """The state of a cluster without a maker: no leader is wanted, unless the cluster is known to have run without a maker that can be
    read."""
    operated = cluster.operated
    if operated and operated.unwanted_since:
        return replace(operated, unread_since=None) if operated.unread_since else operated
    own = [state.leadership for component, state in cluster.components.items() if not component.job_id]
    ran = any(lease.renewed_at is not None for lease in cluster.leases.values())
    if ran or not cluster.in_sight or not all(isinstance(leadership, Vacant) for leadership in own):
        return operated
    return Operated(None, unwanted_since=at, unseen=True, kind=Maker.NOTHING)


def lacks(policy: Policy, cluster_id: str, cluster: ClusterState | None) -> str | None:
    """The missing right without which it is not known whether a leader is wanted: `the right to list deployments.apps`. None: no right is
    known to be missing."""
    if policy.store_of(cluster_id) is not Store.KUBERNETES:
        return None
    return Need.PLANS if Need.PLANS in policy.lacks else rights(cluster) if cluster else None


def rights(cluster: ClusterState) -> str | None:
    """The rights that the API server refuses. None: it refuses none."""
    return f"the right to list {', '.join(sorted(cluster.refused_rights))}" if cluster.refused_rights else None
