"""Checks of high availability as the page and the API show them."""

from collections.abc import Sequence

from msgspec import Struct

from sidecar.core.ha.finding import WORST_FIRST
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.views.snapshot import Snapshot


class HaCheckView(Struct, frozen=True):
    """What one check found last."""

    cluster_id: str
    check: str
    verdict: str
    """`RISK`, `UNKNOWN` or `PASS`."""
    since: Timestamp
    """Since when it has this verdict, as far as this sidecar knows."""
    checked_at: Timestamp
    finding: str
    """The facts it rests on, or what is missing."""
    advice: str | None
    """RISK: what to do. Null: all others."""


def ha_checks(snapshot: Snapshot, *cluster_ids: str) -> Sequence[HaCheckView]:
    """The checks of these clusters, without any of all, cluster by cluster: risks first, then what is unknown."""
    named = {name: snapshot.state.clusters[name] for name in cluster_ids or sorted(snapshot.state.clusters)}
    return [
        HaCheckView(
            name,
            known.result.check,
            known.result.verdict.value,
            timestamp(known.since.wall),
            timestamp(cluster.readiness.at.wall),
            known.result.text,
            known.result.advice or None,
        )
        for name, cluster in named.items()
        if cluster.readiness
        for known in sorted(
            cluster.readiness.checks.values(), key=lambda known: WORST_FIRST.index(known.result.verdict)
        )
    ]
