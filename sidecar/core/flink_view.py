"""Flink's view of the same observations: the calls that Flink's own listener would get, and a TaskManager would have acted on."""

from uuid import UUID

from msgspec import Struct

from sidecar.core import layout
from sidecar.core.leadership import ComponentId, LeaderInformation
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.observations import ClusterObservation, ConnectionState, NodeObserved, ViewObserved
from sidecar.core.wire import Unreadable, decode_connection_info


class LeaderAddress(Struct, frozen=True):
    """One call of `LeaderRetrievalListener.notifyLeaderAddress`. Address and session id are null together: no leader, as Flink says it."""

    at: Timestamp
    component: str
    job_id: str | None
    leader_address: str | None
    leader_session_id: UUID | None


class FlinkView:
    """Mirrors `DefaultLeaderRetrievalService` on a ZooKeeper driver: only what differs from the last call is told, bytes that cannot be
    read change nothing, and a suspended connection (`tolerate_suspended`: only a lost one) means no leader.
    """

    def __init__(self, *, tolerate_suspended: bool = False) -> None:
        self._clearing = (
            {ConnectionState.LOST} if tolerate_suspended else {ConnectionState.LOST, ConnectionState.SUSPENDED}
        )
        self._told: dict[ComponentId, LeaderInformation] = {}
        self._held_at: dict[ComponentId, tuple[str, int]] = {}

    def observe(self, observation: ClusterObservation) -> list[LeaderAddress]:
        """The calls that follow from one observation."""
        match observation:
            case ViewObserved(connection=connection) if connection in self._clearing:
                return [self._tell(observation, component, None) for component in tuple(self._told)]
            case NodeObserved():
                return self._node(observation)
        return []

    def _node(self, node: NodeObserved) -> list[LeaderAddress]:
        component = layout.component_of(node.path)
        if component is None:
            return []
        path, mzxid = self._held_at.get(component, (node.path, -1))
        if node.position is None or not node.data:
            leader = None
        else:
            decoded = decode_connection_info(node.data)
            if isinstance(decoded, Unreadable):
                return []
            leader = decoded
        if path != node.path and (leader is None or node.position is None or node.position.mzxid <= mzxid):
            return []  # another layout's place, older than the leader that we know
        if leader is not None and node.position is not None:
            self._held_at[component] = (node.path, node.position.mzxid)
        if self._told.get(component) == leader:
            return []
        return [self._tell(node, component, leader)]

    def _tell(
        self, cause: ClusterObservation, component: ComponentId, leader: LeaderInformation | None
    ) -> LeaderAddress:
        if leader is None:
            self._told.pop(component, None)
            self._held_at.pop(component, None)
        else:
            self._told[component] = leader
        return LeaderAddress(
            timestamp(cause.at.wall),
            component.component.value,
            component.job_id,
            leader.address if leader else None,
            leader.session_id if leader else None,
        )
