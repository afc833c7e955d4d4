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
    clusters = {name: snapshot.state.clusters[name] for name in cluster_ids or sorted(snapshot.state.clusters)}
    return [
        HaCheckView(
            name,
            check.result.check,
            check.result.verdict.value,
            timestamp(check.since.wall),
            timestamp(cluster.readiness.at.wall),
            check.result.text,
            check.result.advice or None,
        )
        for name, cluster in clusters.items()
        if cluster.readiness
        for check in sorted(
            cluster.readiness.checks.values(), key=lambda check: WORST_FIRST.index(check.result.verdict)
        )
    ]
