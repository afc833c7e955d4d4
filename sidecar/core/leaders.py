"""Who leads, as data for people and scripts: `who` and `GET /api/v1/leaders`."""

from msgspec import Struct

from sidecar.core import configmaps, layout
from sidecar.core.leadership import Blindness, Held, Position, Unknown, Vacant, ZNodePosition
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.snapshot import Snapshot
from sidecar.core.state import contending


class Leader(Struct, frozen=True):
    """One leadership. `state` is held, vacant or unknown; `contenders` is null where no latch can be seen."""

    cluster_id: str
    component: str
    job_id: str | None
    state: str
    leader_address: str | None
    leader_session_id: str | None
    since: Timestamp
    """When this was first seen to be so; the leader's own write, where the store tells its time."""
    reason: str | None
    contenders: int | None
    flink: str | None
    """The Flink versions that keep this leader where it is, where that tells."""


def leaders(snapshot: Snapshot) -> list[Leader]:
    """Every leadership of every watched cluster, in order."""
    found = []
    for cluster_id, cluster in sorted(snapshot.state.clusters.items()):
        for component, known in sorted(
            cluster.components.items(), key=lambda item: (item[0].job_id or "", item[0].component)
        ):
            held = known.leadership if isinstance(known.leadership, Held) else None
            written = held.position.mtime * 1000 if held and isinstance(held.position, ZNodePosition) else None
            found.append(
                Leader(
                    cluster_id,
                    component.component.value,
                    component.job_id,
                    {Held: "held", Vacant: "vacant", Unknown: "unknown"}[type(known.leadership)],
                    held.leader.address if held else None,
                    str(held.leader.session_id) if held else None,
                    timestamp(known.since.wall if written is None else written),
                    _reason(known.leadership.reason) if isinstance(known.leadership, Unknown) else None,
                    contending(cluster.contenders),
                    _flink(cluster_id, held.position) if held else None,
                )
            )
    return found


def _flink(cluster_id: str, position: Position) -> str | None:
    """The Flink versions that keep a leader there, or None where several layouts share the place."""
    if isinstance(position, ZNodePosition):
        return layout.layout_of(position.path)
    return configmaps.layout_of(cluster_id, position.name, position.key)


def _reason(blindness: Blindness) -> str:
    return {
        Blindness.UNSEEN: "not seen yet",
        Blindness.VIEW_LOST: "the store is out of sight",
        Blindness.UNREADABLE: "what is written cannot be read",
    }[blindness]
