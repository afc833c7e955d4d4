"""Who leads, as data for people and scripts: `who` and `GET /api/v1/leaders`."""

import re
from typing import Final, assert_never

from msgspec import Struct

from sidecar.core.cluster.cluster_state import ClusterState, TooOld, contending
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import (
    Blindness,
    ConfigMapPosition,
    Held,
    Leadership,
    Position,
    Unknown,
    Vacant,
    ZNodePosition,
)
from sidecar.core.moment import Timestamp, stored_at, timestamp
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
