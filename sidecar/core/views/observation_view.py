"""What this observer sees of each cluster, as other observers ask for it."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import rest_server
from sidecar.core.flink.leadership import Component, Vacant
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Trigger
from sidecar.core.reach import Reach
from sidecar.core.views.leader_here import blind_because
from sidecar.core.views.snapshot import Snapshot

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
