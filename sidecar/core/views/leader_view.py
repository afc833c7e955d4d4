"""Who leads, as data for people and scripts: `who` and `GET /api/v1/leaders`; and the calls that Flink's own listener would get of it."""

import re
from collections.abc import Mapping
from typing import Final, assert_never
from uuid import UUID

from msgspec import Struct

from sidecar.core.cluster.cluster_state import ClusterState, TooOld, contending
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import (
    Blindness,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Leadership,
    Position,
    Unknown,
    Unreadable,
    Vacant,
    ZNodePosition,
    decode_connection_info,
)
from sidecar.core.moment import Timestamp, stored_at, timestamp
from sidecar.core.observations import ClusterObservation, ConfigMapObserved, ConnectionState, NodeObserved, ViewObserved
from sidecar.core.pods import name_at
from sidecar.core.views.snapshot import Snapshot

_URL: Final = re.compile(r"https?://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(:[0-9]{1,5})?/?")


class Leader(Struct, frozen=True):
    """One leadership. `state` is held, vacant or unknown; `contenders` is null if no latch can be read."""

    cluster_id: str
    component: str
    job_id: str | None
    state: str
    leader_address: str | None
    leader_session_id: str | None
    since: Timestamp | None
    """When this state began: the leader's own write if the store has its time, else when it was observed. Null: began unobserved."""
    observed_since: Timestamp
    reason: str | None
    contenders: int | None
    flink: str | None
    """The Flink versions that write a leader at this path, if the path identifies them."""
    pod: str | None
    """The name of the leader's pod. Null: not known."""
    last_known_address: str | None = None
    """The leader's, or without one that of the last known leader. Null: there never was one, as far as is known."""


def leaders(snapshot: Snapshot) -> list[Leader]:
    """Every leadership of every watched cluster, sorted by cluster, job and component."""
    rows = []
    for cluster_id, cluster in sorted(snapshot.state.clusters.items()):
        for component, state in sorted(
            cluster.components.items(), key=lambda item: (item[0].job_id or "", item[0].component)
        ):
            held = state.leadership if isinstance(state.leadership, Held) else None
            written = stored_at(held.position.mtime) if held and isinstance(held.position, ZNodePosition) else None
            rows.append(
                Leader(
                    cluster_id,
                    component.component.value,
                    component.job_id,
                    state_of(cluster, state.leadership),
                    held.leader.address if held else None,
                    str(held.leader.session_id) if held else None,
                    written or (None if state.discovered else timestamp(state.since.wall)),
                    timestamp(state.since.wall),
                    _reason(cluster, state.leadership),
                    contending(cluster.contenders),
                    _flink(cluster_id, held.position) if held else None,
                    name_at(cluster.pods, held.leader.address) if held else None,
                    state.last_known.address if state.last_known else None,
                )
            )
    return rows


def web_ui(address: str | None) -> str | None:
    """The URL of Flink's UI at a leading REST server's address, which is untrusted; None: it is no plain http or https URL."""
    return address if address is not None and _URL.fullmatch(address) else None


def _flink(cluster_id: str, position: Position) -> str | None:
    """The Flink versions that write a leader there; None if several layouts share the place."""
    match position:
        case ZNodePosition():
            return znode_paths.layout_of(position.path)
        case ConfigMapPosition():
            return configmaps.layout_of(cluster_id, position.name, position.key)
        case _:
            assert_never(position)


def state_of(cluster: ClusterState, leadership: Leadership) -> str:
    """`held`, `vacant` or `unknown`; of a cluster that was never found, unknown."""
    if cluster.missing:
        return "unknown"
    return {Held: "held", Vacant: "vacant", Unknown: "unknown"}[type(leadership)]


def _reason(cluster: ClusterState, leadership: Leadership) -> str | None:
    if cluster.missing:
        return "not supported" if isinstance(cluster.missing, TooOld) else "nothing of this cluster was ever found"
    if not isinstance(leadership, Unknown):
        return None
    return {
        Blindness.UNSEEN: "not read yet",
        Blindness.VIEW_LOST: "the store cannot be read",
        Blindness.UNREADABLE: "the leader data is unreadable",
    }[leadership.reason]


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
