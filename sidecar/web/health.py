"""`/livez` and `/readyz`, for the kubelet, `/leader` and `/standby`, for load balancers: 200 or 503, and one line why."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from sidecar.core.moment import SECOND, Moment
from sidecar.core.views.leader_here import leader_here
from sidecar.core.views.snapshot import Snapshot
from sidecar.web import api_paths
from sidecar.web.answers import Answer, one_line

LEADER: Final = "/leader"
STANDBY: Final = "/standby"
HEALTH: Final = frozenset({"/livez", "/readyz", LEADER, STANDBY})
STALE_SECONDS: Final = 30
"""A snapshot older than this means that the owner's thread is stuck."""
MOST_NAMED: Final = 20
"""Clusters that `/readyz` names."""


def livez(dead: Sequence[str], snapshot: Snapshot, now: Moment) -> Answer:
    """Whether the process works. `dead`: the required threads that have ended."""
    problem = f"these threads have ended: {', '.join(dead)}" if dead else stuck(snapshot, now)
    return one_line(HTTPStatus.SERVICE_UNAVAILABLE, problem) if problem else one_line(HTTPStatus.OK, "ok")


def stuck(snapshot: Snapshot, now: Moment) -> str | None:
    """Why the snapshot is out of date."""
    age = (now.steady - snapshot.at.steady) / SECOND
    return f"the owner's thread has been stuck for {age:.0f} s" if age > STALE_SECONDS else None


def readyz(snapshot: Snapshot, now: Moment) -> Answer:
    """Whether each store is connected and fully read."""
    if problem := _not_ready(snapshot, now):
        return one_line(HTTPStatus.SERVICE_UNAVAILABLE, problem)
    clusters, finder = snapshot.state.clusters, snapshot.state.finder
    problems = [f"{name}: {cluster.missing}" for name, cluster in clusters.items() if cluster.missing]
    problems += [f"{name}: {cluster.beyond}" for name, cluster in clusters.items() if cluster.beyond][:MOST_NAMED]
    if finder and (problem := finder.problem(len(clusters))):
        problems.append(problem)
    problems += (f"left out because of an error in the sidecar: {name}" for name in snapshot.health.quarantined)
    return one_line(HTTPStatus.OK, "; ".join(["ok", *problems]))


def _not_ready(snapshot: Snapshot, now: Moment) -> str | None:
    blind = []
    for name, cluster in snapshot.state.clusters.items():
        # By the current time: a busy owner may not have noticed yet that its view is old.
        overdue = cluster.view.complete and cluster.is_overdue(now)
        if overdue or not cluster.in_sight:
            late = ", not answering in time" if overdue else ""
            blind.append(f"{name}: {cluster.view.connection or 'not connected yet'}{late}")
    if blind:
        more = f", and {len(blind) - MOST_NAMED} more" if len(blind) > MOST_NAMED else ""
        return f"the view of the store is incomplete: {', '.join(blind[:MOST_NAMED])}{more}"
    finder = snapshot.state.finder
    if finder and finder.leaves_out and not snapshot.state.clusters:
        return finder.problem(0)
    if snapshot.ready:
        return None
    place = snapshot.state.finder and snapshot.state.finder.place
    return f"the clusters in {place} cannot be listed" if place else "starting"


def leads(path: str, query: str, snapshot: Snapshot, now: Moment) -> Answer:
    """Whether the JobManager beside this sidecar leads, or stands by. Raises ParameterError."""
    component, cluster_id = api_paths.leader_query(path, query)
    here = leader_here(snapshot, component, cluster_id, now)
    is_so = here.leads if path == LEADER else here.stands_by
    return one_line(HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE, here.reason)
