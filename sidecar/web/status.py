"""What the status page tells of each cluster, from one snapshot."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.state import ClusterState, contending
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.views.leader_view import Leader, leaders
from sidecar.core.views.snapshot import Snapshot

JOBS_SHOWN: Final = 20
"""Those without a leader first."""


class StoreView(Struct, frozen=True):
    """Whether the store is seen whole, and since when. `since` is null where it has not been seen yet."""

    seeing: bool
    connection: str
    since: Timestamp | None


class JobCounts(Struct, frozen=True):
    """How many there are in each state, and some of them."""

    total: int
    held: int
    vacant: int
    unknown: int
    shown: Sequence[Leader]


class ClusterStatus(Struct, frozen=True):
    """One cluster."""

    cluster_id: str
    sight: StoreView
    components: Sequence[Leader]
    jobs: JobCounts
    contenders: int | None
    """Null: no latch can be seen, or nobody stands at it although somebody leads."""
    missing: str | None
    """Nothing of the cluster was ever there: where it was looked for, and what is there instead."""
    split: Sequence[str]
    """Whose leadership two contenders take turns at."""


def clusters(snapshot: Snapshot) -> list[ClusterStatus]:
    """Every watched cluster, in order."""
    found = {name: list(each) for name, each in groupby(leaders(snapshot), attrgetter("cluster_id"))}
    return [
        _cluster(name, cluster, found.get(name, []), snapshot.at)
        for name, cluster in sorted(snapshot.state.clusters.items())
    ]


def _cluster(cluster_id: str, cluster: ClusterState, found: list[Leader], at: Moment) -> ClusterStatus:
    contenders = contending(cluster.contenders) if cluster.in_sight else None
    if contenders == 0 and cluster.missing:
        contenders = None
    if contenders == 0 and any(leader.state == "held" for leader in found):
        contenders = None  # there is no latch: that many is not what it says
    return ClusterStatus(
        cluster_id,
        _sight(cluster, at),
        [leader for leader in found if leader.job_id is None],
        _jobs([leader for leader in found if leader.job_id is not None]),
        contenders,
        str(cluster.missing) if cluster.missing else None,
        sorted(map(str, cluster.contested)),
    )


def _sight(cluster: ClusterState, at: Moment) -> StoreView:
    view = cluster.view
    connection = view.connection.value if view.connection else "not connected yet"
    if cluster.in_sight:
        return StoreView(seeing=True, connection=connection, since=timestamp(at.wall - (at.steady - view.connected_at)))
    if cluster.stale:
        return StoreView(
            seeing=False, connection=f"{connection}, not answering in time", since=timestamp(view.turned_at.wall)
        )
    lost = view.loss.began if view.loss and view.loss.ended is None else None
    return StoreView(seeing=False, connection=connection, since=timestamp(lost.wall) if lost else None)


def _jobs(jobs: list[Leader]) -> JobCounts:
    states = Counter(job.state for job in jobs)
    shown = sorted(jobs, key=lambda job: job.state == "held")[:JOBS_SHOWN]
    return JobCounts(len(jobs), states["held"], states["vacant"], states["unknown"], shown)
