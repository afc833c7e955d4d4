"""Observations of what is meant to happen to a cluster: whether a leader is wanted, and whether the failover in progress was planned.

From the list of all makers of JobManagers in Kubernetes follows that one which is missing was deleted while this observer could not see
it, or has never existed.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import ends, plans
from sidecar.core.failover.plans import Disruption, Operated
from sidecar.core.flink.deployments import Candidate, Maker
from sidecar.core.flink.leadership import Held, Vacant
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    DeploymentObserved,
    DeploymentUnreadable,
    MakerObserved,
    MakersListed,
    PlanObservation,
    PodDisrupted,
    RightRefused,
)
from sidecar.core.pods import host_of
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.policy.triggers import Need


def observe(draft: Draft, observation: PlanObservation) -> None:
    """Update what is known of plans by `observation`, also while the leaders cannot be read."""
    cluster, cluster_id, at = draft.state, draft.cluster_id, draft.at
    operated, disruptions = cluster.operated, cluster.disruptions
    match observation:
        case DeploymentObserved(deployment=deployment, namespace=namespace):
            operated = plans.observed(operated, deployment, at, namespace=namespace)
        case MakerObserved(seen=seen) if plans.makes(operated, cluster_id, seen, *_hosts(draft)):
            operated = plans.observed(operated, seen.deployment, at, seen.kind, seen.name, seen.namespace)
        case MakersListed(there=there):
            operated = _listed(cluster, cluster_id, there.get(cluster_id.rpartition("/")[0], ()), at)
        case RightRefused(right=right, refused=refused) if (right in cluster.refused_rights) is not refused:
            draft.update(refused_rights=cluster.refused_rights ^ {right})
        case DeploymentUnreadable(kind=kind) if operated and operated.kind is kind:
            operated = plans.unread(operated, at)
        case PodDisrupted():
            pod, address, node = observation.pod, observation.address, observation.node
            disruption = Disruption(at, pod, address, node, observation.evicted)
            disruptions = plans.disrupted(disruptions, observation.uid, disruption)
    if operated is not cluster.operated or disruptions is not cluster.disruptions:
        draft.update(operated=operated, disruptions=disruptions)
        consider(draft)


def consider(draft: Draft, *, opening: bool = False) -> None:
    """Whether the failover in progress was planned, as far as is known now."""
    episode, operated = draft.state.episode, draft.state.operated
    if episode is None:
        return
    facts, at = episode.facts, episode.opened_at
    intent = plans.revised(facts.intent, operated, at) or plans.intent(operated, at, unseen=facts.unseen)
    intent = intent or plans.drain(draft.state.disruptions, episode.before.address, at)
    is_read = operated is not None and operated.is_read and (opening or facts.operated)
    restart = facts.restart or ends.restart_near(draft.state.ends, at)
    if (intent, is_read, restart) != (facts.intent, facts.operated, facts.restart):
        facts = replace(facts, intent=intent, operated=is_read, restart=restart)
        draft.update(episode=replace(episode, facts=facts))


def forget_earlier_stop(draft: Draft) -> None:
    """Once a leader is published again, an earlier stop no longer explains the next loss."""
    operated = draft.state.operated
    began = [state.since for state in draft.own.values() if isinstance(state.leadership, Held)]
    if began and (after := plans.led(operated, max(began, key=lambda at: at.steady))) is not operated:
        draft.update(operated=after)


def _hosts(draft: Draft) -> tuple[set[str], set[str]]:
    """The hosts of the cluster's current leaders, and the hosts of its last known leaders."""
    own = draft.own.values()
    last = {host_of(state.last_known.address) for state in own if state.last_known}
    return {host_of(state.leadership.leader.address) for state in own if isinstance(state.leadership, Held)}, last


def _listed(cluster: ClusterState, cluster_id: str, there: Iterable[Candidate], at: Moment) -> Operated | None:
    """The state of the cluster's maker if it is one of the candidates `there`."""
    operated, plain = cluster.operated, cluster_id.rpartition("/")[2]
    own = [candidate for candidate in there if candidate.app in {"", plain}]
    if operated is None or operated.kind is Maker.NOTHING:
        if own and operated and operated.unwanted_since:  # one may exist
            return replace(operated, unwanted_since=None, unread_since=None, wanted_since=at)
        return operated if own else _none(cluster, at)
    if operated.deployment is None:
        return operated
    name = operated.name or plain
    is_there = any((candidate.kind, candidate.name) == (operated.kind, name) for candidate in own)
    return operated if is_there else plans.deleted(operated, at)


def _none(cluster: ClusterState, at: Moment) -> Operated | None:
    """The state of a cluster without a maker: no leader is wanted, unless the cluster is known to have run without a maker that can be
    read."""
    operated = cluster.operated
    if operated and operated.unwanted_since:
        return replace(operated, unread_since=None) if operated.unread_since else operated
    ran = any(lease.renewed_at is not None for lease in cluster.leases.values())
    is_led = not all(isinstance(state.leadership, Vacant) for state in cluster.own.values())
    if ran or is_led or not cluster.is_in_sight:
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
