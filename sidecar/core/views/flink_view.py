"""Flink's view of the same observations: the calls that Flink's own listener would get, and a TaskManager would have acted on."""

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
    """One call of `LeaderRetrievalListener.notifyLeaderAddress`. Address and session id are null together: no leader, as Flink says it."""

    at: Timestamp
    component: str
    job_id: str | None
    leader_address: str | None
    leader_session_id: UUID | None


class _Cached(Struct, frozen=True):
    """What stood at `path` when it was last seen; `leader` is None where the bytes cannot be read."""

    path: str
    mzxid: int
    leader: LeaderInformation | None


class FlinkView:
    """Mirrors `DefaultLeaderRetrievalService`, one of them for each component. A call is made only if it differs from the last one.

    On a `ZooKeeperLeaderRetrievalDriver`, bytes that cannot be read change nothing. A suspended connection (`tolerate_suspended`: only a
    lost one) means no leader; one that is back brings up again what was seen before it went, whether that still stands or not. What
    stands now is told behind it, when it has been read.

    On a `KubernetesLeaderRetrievalDriver`, what is written leads, whoever holds the lease: there is no leader only where the key is gone.
    Neither the connection nor a deleted ConfigMap are told. Since 1.15 a value that cannot be read is none, before it changes nothing.
    """

    def __init__(self, *, tolerate_suspended: bool = False) -> None:
        self._clearing = (
            {ConnectionState.LOST} if tolerate_suspended else {ConnectionState.LOST, ConnectionState.SUSPENDED}
        )
        self._told: dict[ComponentId, LeaderInformation] = {}
        self._cached: dict[ComponentId, _Cached] = {}  # what Curator's `TreeCache` holds: no outage empties it
        self._config_maps: dict[ComponentId, str] = {}  # whose leader was last seen in which ConfigMap

    def observe(self, observation: ClusterObservation) -> list[LeaderAddress]:
        """The calls that follow from one observation."""
        match observation:
            case ViewObserved(connection=connection) if connection in self._clearing:
                return [call for component in tuple(self._cached) for call in self._tell(observation, component, None)]
            case ViewObserved(connection=ConnectionState.CONNECTED):
                return [
                    call
                    for component, cached in self._cached.items()
                    if cached.leader
                    for call in self._tell(observation, component, cached.leader)
                ]
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
        # Another layout's place counts only with a leader, and one that is newer than the leader that we know.
        elsewhere = cached.path != node.path
        if node.position is None or not node.data:
            if elsewhere:
                return []
            self._cached.pop(component, None)
            return self._tell(node, component, None)
        decoded = decode_connection_info(node.data)
        leader = None if isinstance(decoded, Unreadable) else decoded
        if elsewhere and (leader is None or node.position.mzxid <= cached.mzxid):
            return []
        self._cached[component] = _Cached(node.path, node.position.mzxid, leader)
        return self._tell(node, component, leader) if leader else []

    def _config_map(self, told: ConfigMapObserved) -> list[LeaderAddress]:
        keeps_the_unreadable = configmaps.owner_of(told.cluster_id, told.name) is not None
        leaders: dict[ComponentId, LeaderInformation | None] = {
            component: None for component, name in self._config_maps.items() if name == told.name
        }
        values = configmaps.values(told.cluster_id, told.name, told.data)
        for _, (component, value) in sorted(values.items()):  # of a job's two keys the newer layout's is the last
            decoded = configmaps.decode_leader(value)
            self._config_maps[component] = told.name
            if isinstance(decoded, LeaderInformation):
                leaders[component] = decoded
            elif keeps_the_unreadable:
                leaders.pop(component, None)
            else:
                leaders[component] = None
        return [call for component, leader in leaders.items() for call in self._tell(told, component, leader)]

    def _tell(
        self, cause: ClusterObservation, component: ComponentId, leader: LeaderInformation | None
    ) -> list[LeaderAddress]:
        if self._told.get(component) == leader:
            return []
        if leader is None:
            del self._told[component]
        else:
            self._told[component] = leader
        return [
            LeaderAddress(
                timestamp(cause.at.wall),
                component.component.value,
                component.job_id,
                leader.address if leader else None,
                leader.session_id if leader else None,
            )
        ]
