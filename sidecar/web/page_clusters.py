"""The content of the status page for each cluster, from one snapshot."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster import rest_server
from sidecar.core.cluster.state import ClusterState, contending
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.views.leader_view import Leader, leaders, web_ui
from sidecar.core.views.snapshot import Snapshot

JOBS_SHOWN: Final = 20
"""Jobs without a leader come first."""


class StoreView(Struct, frozen=True):
    """Whether the store is connected and fully read, and since when. `since` is null until it has been read once."""

    connected: bool
    connection: str
    since: Timestamp | None


class JobCounts(Struct, frozen=True):
    """The number of jobs in each state, and the first jobs."""

    total: int
    held: int
    vacant: int
    unknown: int
    first: Sequence[Leader]


class PageCluster(Struct, frozen=True):
    cluster_id: str
    store: StoreView
    components: Sequence[Leader]
    jobs: JobCounts
    contenders: int | None
    """Null: unknown. No latch was read, or it is empty although there is a leader."""
    missing: str | None
    """Why the cluster was never found: the path that was read, and what exists instead."""
    split: Sequence[str]
    """Leaderships for which two contenders replace each other in turn."""
    ui: str | None
    """The URL of Flink's UI at the leader."""
    alone: bool
    """Whether there was a standby, and is none any more."""
    picture_problem: str | None
    """Why Flink's REST server does not describe the cluster: the next failover cannot be assessed."""


def clusters(snapshot: Snapshot, names: Sequence[str]) -> list[PageCluster]:
    """These watched clusters, in this order."""
    state = replace(snapshot.state, clusters={name: snapshot.state.clusters[name] for name in names})
    leaders_of = {
        name: list(group) for name, group in groupby(leaders(replace(snapshot, state=state)), attrgetter("cluster_id"))
    }
    return [_cluster(name, state.clusters[name], leaders_of.get(name, []), snapshot.at) for name in names]


def _cluster(cluster_id: str, cluster: ClusterState, leaders: list[Leader], at: Moment) -> PageCluster:
    contenders = contending(cluster.contenders) if cluster.in_sight else None
    if contenders == 0 and (cluster.missing or any(leader.state == "held" for leader in leaders)):
        contenders = None  # there is no latch: the number is unknown
    return PageCluster(
        cluster_id,
        _store(cluster, at),
        [leader for leader in leaders if leader.job_id is None],
        _jobs([leader for leader in leaders if leader.job_id is not None]),
        contenders,
        str(cluster.missing) if cluster.missing else None,
        sorted(map(str, cluster.contested)),
        next((web_ui(leader.leader_address) for leader in leaders if leader.component == Component.REST_SERVER), None),
        cluster.standby.alone_since is not None,
        rest_server.failing(cluster, at),
    )


def _store(cluster: ClusterState, at: Moment) -> StoreView:
    view = cluster.view
    connection = view.connection.value if view.connection else "not connected yet"
    if cluster.in_sight:
        return StoreView(True, connection, timestamp(at.wall - (at.steady - view.connected_at)))
    if cluster.stale:
        return StoreView(False, f"{connection}, not answering in time", timestamp(view.turned_at.wall))
    lost = view.loss.began if view.loss and view.loss.ended is None else None
    return StoreView(False, connection, timestamp(lost.wall) if lost else None)


def _jobs(jobs: list[Leader]) -> JobCounts:
    states = Counter(job.state for job in jobs)
    first = sorted(jobs, key=lambda job: job.state == "held")[:JOBS_SHOWN]
    return JobCounts(len(jobs), states["held"], states["vacant"], states["unknown"], first)
