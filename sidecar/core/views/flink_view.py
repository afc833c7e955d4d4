"""Flink's view of the same observations: the calls that Flink's own listener, for example in a TaskManager, would get."""

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct

from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.connection_info import Unreadable, decode_connection_info
from sidecar.core.flink.leadership import ComponentId, LeaderInformation
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.observations import (
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    NodeObserved,
    ViewObserved,
)


class LeaderAddress(Struct, frozen=True):
    """One call of `LeaderRetrievalListener.notifyLeaderAddress`. No leader: address and session id are both null."""

    at: Timestamp
    component: str
    job_id: str | None
    leader_address: str | None
    leader_session_id: UUID | None


class _Cached(Struct, frozen=True):
    """The node at `path` as last observed; `leader` is None if its bytes are unreadable."""

    path: str
    mzxid: int
    leader: LeaderInformation | None


class FlinkView:
    """Mirrors `DefaultLeaderRetrievalService`, one for each component. A call is made only if it differs from the previous one.

    On a `ZooKeeperLeaderRetrievalDriver`, unreadable bytes change nothing. A suspended connection (`tolerate_suspended`: only a lost one)
    means no leader. A reconnect first repeats the last leader observed before, current or not; the current one follows when it is read.

    On a `KubernetesLeaderRetrievalDriver`, the published leader leads, whoever holds the lease: there is no leader only if the key is
    missing. Neither the connection nor a deleted ConfigMap causes a call. Since 1.15 an unreadable value means no leader; before, it
    changed nothing.
    """

    def __init__(self, *, tolerate_suspended: bool = False) -> None:
        self._clearing = {ConnectionState.LOST} | (set() if tolerate_suspended else {ConnectionState.SUSPENDED})
        self._notified: dict[ComponentId, LeaderInformation] = {}
        self._cached: dict[ComponentId, _Cached] = {}  # as Curator's `TreeCache`, which survives an outage
        self._config_maps: dict[ComponentId, str] = {}  # the ConfigMap in which a component's leader was last observed

    def observe(self, observation: ClusterObservation) -> list[LeaderAddress]:
        """The calls that follow from one observation."""
        match observation:
            case ViewObserved(connection=connection) if connection in self._clearing:
                return self._calls(observation, dict.fromkeys(self._cached))
            case ViewObserved(connection=ConnectionState.CONNECTED):
                leaders = {key: cached.leader for key, cached in self._cached.items() if cached.leader}
                return self._calls(observation, leaders)
            case NodeObserved():
                return self._node(observation)
            case ConfigMapObserved() if observation.uid is not None:
                return self._config_map(observation)
        return []

    def _node(self, node: NodeObserved) -> list[LeaderAddress]:
        component = znode_paths.component_of(node.path)
        if component is None:
            return []
        cached = self._cached.get(component, _Cached(node.path, -1, None))
        # The path of another layout counts only if it has a leader that is newer than the known one.
        elsewhere = cached.path != node.path
        if node.position is None or not node.data:
            if elsewhere:
                return []
            self._cached.pop(component, None)
            return self._calls(node, {component: None})
        decoded = decode_connection_info(node.data)
        leader = None if isinstance(decoded, Unreadable) else decoded
        if elsewhere and (leader is None or node.position.mzxid <= cached.mzxid):
            return []
        self._cached[component] = _Cached(node.path, node.position.mzxid, leader)
        return self._calls(node, {component: leader}) if leader else []

    def _config_map(self, observed: ConfigMapObserved) -> list[LeaderAddress]:
        is_old_layout = configmaps.owner_of(observed.cluster_id, observed.name) is not None
        leaders: dict[ComponentId, LeaderInformation | None] = {
            component: None for component, name in self._config_maps.items() if name == observed.name
        }
        values = configmaps.values(observed.cluster_id, observed.name, observed.data)
        for _, (component, value) in sorted(values.items()):  # of a job's two keys the newer layout's comes last
            decoded = configmaps.decode_leader(value)
            self._config_maps[component] = observed.name
            if isinstance(decoded, LeaderInformation):
                leaders[component] = decoded
            elif is_old_layout:
                leaders.pop(component, None)
            else:
                leaders[component] = None
        return self._calls(observed, leaders)

    def _calls(
        self, cause: ClusterObservation, leaders: Mapping[ComponentId, LeaderInformation | None]
    ) -> list[LeaderAddress]:
        """The calls for those of `leaders` that differ from the previous call."""
        calls = []
        for component, leader in leaders.items():
            if self._notified.get(component) != leader:
                address, session_id = (leader.address, leader.session_id) if leader else (None, None)
                at = timestamp(cause.at.wall)
                calls.append(LeaderAddress(at, component.component.value, component.job_id, address, session_id))
                self._notified.pop(component, None)
                if leader:
                    self._notified[component] = leader
        return calls
