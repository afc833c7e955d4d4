"""Whether the JobManager beside this sidecar leads, for load balancers: `/leader` and `/standby`; who leads one cluster; and what this
observer sees of each cluster, as other observers ask for it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, contending
from sidecar.core.failover import rest_server
from sidecar.core.flink.leadership import Blindness, Component, ComponentId, Held, LeaderInformation, Unknown, Vacant
from sidecar.core.moment import SECOND, Moment, Timestamp
from sidecar.core.observations import ConnectionState
from sidecar.core.pods import LOCAL_NAMES, host_of, is_address, is_at, is_own_host
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.policy.triggers import Trigger
from sidecar.core.reach import Reach
from sidecar.core.views.leader_view import leaders, web_ui
from sidecar.core.views.snapshot import Snapshot

_OLDEST: Final = 5 * SECOND
"""A snapshot that is older is out of date: the owner publishes one at least each second, unless it is stuck."""


class Decision(StrEnum):
    """What is known of the JobManager beside this sidecar."""

    LEADS = "leads"
    ANOTHER_LEADS = "another_leads"
    NONE_LEADS = "none_leads"
    NONE_STANDS_BY = "none_stands_by"
    """It does not lead, and no JobManager but the leader contends."""
    NO_SINGLE_HOST = "no_single_host"
    """The leader's address may be that of several machines or pods."""
    NO_JOB_MANAGER = "no_job_manager"
    """Whether one of this cluster is beside the sidecar is not known."""
    BLIND = "blind"
    UNREADABLE = "unreadable"
    MISSING = "missing"
    """Nothing of the cluster was ever found."""
    NOT_WATCHED = "not_watched"
    NOT_NAMED = "not_named"
    """There are several clusters, and none was asked for."""


class LeaderHere(Struct, frozen=True):
    """The decision, and its reason in one line. It names no address: the paths answer to any Host header."""

    decision: Decision
    reason: str

    @property
    def leads(self) -> bool:
        return self.decision is Decision.LEADS

    @property
    def stands_by(self) -> bool:
        """It does not lead, and may take over."""
        return self.decision in {Decision.ANOTHER_LEADS, Decision.NONE_LEADS}


class ClusterLeader(Struct, frozen=True):
    """Who leads one component of one cluster. `state` is held, vacant or unknown; while `blind` it is unknown, and there is no address."""

    cluster_id: str
    component: str
    state: str
    blind: bool
    leader_address: str | None = None
    leader_session_id: str | None = None
    rest_url: str | None = None
    """The address of the leading REST server, if it is a plain http or https URL."""
    pod: str | None = None
    since: Timestamp | None = None
    """When this state began; null: not known."""
    reason: str | None = "it has not been read yet"
    """Why the state is unknown."""
    last_known_address: str | None = None


def leader_here(snapshot: Snapshot, component: ComponentId, cluster_id: str | None, now: Moment) -> LeaderHere:
    """Whether the JobManager beside this sidecar leads `component`. `cluster_id`: None is the only one."""
    policy, clusters = snapshot.policy, snapshot.state.clusters
    if cluster_id is None:
        if policy.finds or len(policy.stores.keys() | clusters.keys()) > 1:
            return LeaderHere(Decision.NOT_NAMED, "unknown: several clusters may be watched, add cluster_id=ID")
        cluster_id = next(iter(policy.stores), "")
    cluster = clusters.get(cluster_id)
    if cluster is None:
        if cluster_id in policy.stores:
            return LeaderHere(Decision.BLIND, "blind: nothing has been read yet")
        return LeaderHere(Decision.NOT_WATCHED, "unknown: no such cluster is watched")
    if why := blind_because(snapshot, cluster, now):
        return LeaderHere(Decision.BLIND, f"blind: {why}")
    if cluster.missing:
        return LeaderHere(Decision.MISSING, "unknown: nothing of this cluster was ever found, or its Flink is too old")
    return _here(policy, cluster_id, cluster, component)


def cluster_leader(snapshot: Snapshot, cluster_id: str, component: ComponentId, now: Moment) -> ClusterLeader:
    """Who leads `component` of a watched cluster."""
    cluster = snapshot.state.clusters[cluster_id]
    alone = replace(snapshot.state, clusters={cluster_id: replace(cluster, components=cluster.own)})
    by_name = {leader.component: leader for leader in leaders(replace(snapshot, state=alone))}
    leader, rest_server = by_name.get(component.component), by_name.get(Component.REST_SERVER)
    if leader is None:
        return ClusterLeader(cluster_id, component.component.value, state="unknown", blind=True)
    last_known = leader.last_known_address
    if why := blind_because(snapshot, cluster, now):
        return ClusterLeader(cluster_id, leader.component, "unknown", True, reason=why, last_known_address=last_known)
    return ClusterLeader(
        cluster_id,
        leader.component,
        leader.state,
        blind=False,
        leader_address=leader.leader_address,
        leader_session_id=leader.leader_session_id,
        rest_url=web_ui(rest_server.leader_address) if rest_server else None,
        pod=leader.pod,
        since=leader.since,
        reason=leader.reason,
        last_known_address=last_known,
    )


def _here(policy: Policy, cluster_id: str, cluster: ClusterState, component: ComponentId) -> LeaderHere:
    """The leader of a cluster that can be seen."""
    state = cluster.components.get(component)
    match state.leadership if state else Unknown():
        case Unknown(reason=Blindness.UNREADABLE):
            return LeaderHere(Decision.UNREADABLE, "unknown: the leader data is unreadable")
        case Unknown():
            return LeaderHere(Decision.BLIND, f"blind: the leader of {component} has not been read yet")
        case Held(leader=leader):
            is_here = _is_here(policy, leader, in_kubernetes=policy.store_of(cluster_id) is Store.KUBERNETES)
            if is_here:
                return LeaderHere(Decision.LEADS, f"this JobManager leads {component}")
            if is_here is None:
                line = "unknown: the leader's address may be that of several machines or pods"
                return LeaderHere(Decision.NO_SINGLE_HOST, line)
            otherwise = LeaderHere(Decision.ANOTHER_LEADS, f"another JobManager leads {component}")
            return _elsewhere(policy, cluster, otherwise)
        case Vacant():
            return _elsewhere(policy, cluster, LeaderHere(Decision.NONE_LEADS, f"no JobManager leads {component}"))


def _elsewhere(policy: Policy, cluster: ClusterState, otherwise: LeaderHere) -> LeaderHere:
    """The decision where the leader is not here: whether a standby may be."""
    if policy.finds or not policy.own_hosts:
        line = f"{otherwise.reason}, and no JobManager of this cluster is known to be here"
        return LeaderHere(Decision.NO_JOB_MANAGER, line)
    leading = int(otherwise.decision is Decision.ANOTHER_LEADS)
    if contending(cluster.contenders) == leading:
        return LeaderHere(Decision.NONE_STANDS_BY, f"{otherwise.reason}, and none stands by")
    return otherwise


def _is_here(policy: Policy, leader: LeaderInformation, *, in_kubernetes: bool) -> bool | None:
    """Whether the leader's address is ours. None: it may be that of several machines or pods."""
    if is_own_host(leader.address, in_kubernetes=in_kubernetes):
        return is_at(leader.address, policy.own_hosts)
    host = host_of(leader.address)
    if is_address(host) or host.lower().partition(".")[0] in LOCAL_NAMES:  # every machine has it
        return None
    # A name that may be a Service's is ours if it begins with the name of our pod: that of a pod of a StatefulSet.
    return is_at(leader.address, policy.own_hosts) or None


def blind_because(snapshot: Snapshot, cluster: ClusterState, now: Moment) -> str | None:
    """Why the cluster cannot be seen at `now`: a busy owner may not have noticed it yet."""
    age = now.steady - snapshot.at.steady
    if age > _OLDEST:
        return f"the owner's thread has been stuck for {age // SECOND} s"
    if cluster.is_overdue(now):
        return "the store does not answer in time"
    if cluster.is_in_sight:
        return None
    connection = cluster.view.connection
    if connection is None:
        return "not connected to the store yet"
    if connection is ConnectionState.CONNECTED:
        return "not everything has been read yet" if not cluster.stale else "the store does not answer in time"
    return f"the connection to the store is {connection}"


_SHARED: Final = frozenset({Trigger.BLIND, Trigger.VACANT, Trigger.LEADER_SILENT})
"""Triggers of what every observer of a cluster should see alike."""


class ObservationView(Struct, frozen=True):
    """What one observer sees of one cluster now."""

    cluster_id: str
    observer: str
    sees: bool
    """Whether it can read the store, and the cluster is there."""
    vacant: tuple[Component, ...] = ()
    """The components that it sees without a leader. `job`: at least one job."""
    rest_server: Reach | None = None
    """How far its last request to the leading REST server got. Null: it does not ask, or nothing has ever answered it."""


def observations(snapshot: Snapshot, now: Moment) -> Sequence[ObservationView]:
    """What this observer sees of all clusters."""
    return [
        _observation(snapshot.policy.observer, name, cluster, sees=blind_because(snapshot, cluster, now) is None)
        for name, cluster in sorted(snapshot.state.clusters.items())
    ]


def _observation(observer: str, name: str, cluster: ClusterState, *, sees: bool) -> ObservationView:
    if not sees or cluster.missing:
        return ObservationView(name, observer, sees=False)
    components = cluster.components.items()
    vacant = {component.component for component, state in components if isinstance(state.leadership, Vacant)}
    return ObservationView(name, observer, True, tuple(sorted(vacant)), rest_server.reach(cluster))


def disputable(snapshot: Snapshot) -> set[str]:
    """The clusters with an alert that fires, or will soon, and that other observers may not share."""
    alerts = snapshot.state.alerts
    rules = {rule.alert for rule in snapshot.policy.rules if rule.on in _SHARED}
    return {cluster_id for rule, cluster_id, _ in (*alerts.pending, *alerts.active()) if rule in rules}
