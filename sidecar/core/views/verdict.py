"""How each cluster is, the worst first, and what is wrong with the sidecar itself: for the page, the API and the command `status`."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from sidecar.core.cluster.advice import next_step
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.status import LED, SHOWN, WORST_FIRST, ClusterStatus, Stated, Status
from sidecar.core.cluster.status_of import status_of
from sidecar.core.moment import SECOND, Moment, Timestamp, timestamp
from sidecar.core.sanitize import clean
from sidecar.core.views.snapshot import Snapshot


class ClusterVerdict(Struct, frozen=True):
    """How one cluster is. `sentence` is printable and bounded, without the cluster's name."""

    cluster_id: str | None
    """Null: the sidecar itself, or its search for clusters: `BLIND` or `DEGRADED`."""
    status: str
    """`DOWN`, `SPLIT`, `LOST`, `NOT_RUNNING`, `SILENT`, `RECOVERING`, `DEGRADED`, `BLIND`, `UNCHECKED`, `STOPPED` or `OK`."""
    sentence: str
    status_since: Timestamp | None
    """When it began, as far as this observer knows. Null: of the sidecar itself."""
    next_step: str | None = None
    """What to do: in one sentence, or first and then."""
    topic: str | None = None
    """The section of docs/how-to/troubleshooting.md about it."""

    @property
    def colour(self) -> str:
        return SHOWN[Status(self.status)].colour

    def __str__(self) -> str:
        return f"{clean(self.cluster_id or 'this sidecar')}: {self.sentence}"


_LONGEST_REASON: Final = 500
"""Characters of what the store says about a refusal."""
_RUNNING_WITHIN: Final = 90 * SECOND
"""A sidecar that runs has written to its journal no longer ago: it does so every 30 s."""


def is_running(alive: Moment | None, now: Moment) -> bool:
    """Whether the sidecar that was last known to be alive then still runs."""
    return alive is not None and now.wall - alive.wall < _RUNNING_WITHIN


def verdicts(snapshot: Snapshot, *, asks_rest: bool = True) -> list[ClusterVerdict]:
    """How each watched cluster is, and what is wrong with the sidecar itself: the worst first, then by name. Never empty.

    `asks_rest`: False in a command, which asks no REST server: of a cluster that has a leader it repeats what the sidecar has decided.
    """
    clusters = snapshot.state.clusters.items()
    of_clusters = (_of_cluster(snapshot, name, cluster, asks_rest=asks_rest) for name, cluster in clusters)
    return sorted([*of_clusters, *_of_sidecar(snapshot)], key=_worst_first)


def stated(snapshot: Snapshot) -> Mapping[str, ClusterVerdict]:
    """How the clusters are, as was decided last, by the ids of their last failovers. Of a sidecar that does not run they say so."""
    verdicts, alive = {}, snapshot.state.alive
    ended = f" (as of {timestamp(alive.wall)}: the sidecar has not run since)" if alive else ""
    until = "" if is_running(alive, snapshot.at) else ended
    for name, cluster in snapshot.state.clusters.items():
        if (last := cluster.episode or cluster.last_episode) and (current := cluster.stated):
            verdicts[last.id] = _verdict(name, cluster, current, until)
    return verdicts


def _worst_first(verdict: ClusterVerdict) -> tuple[int, str]:
    return WORST_FIRST.index(Status(verdict.status)), verdict.cluster_id or ""


def _of_cluster(snapshot: Snapshot, name: str, cluster: ClusterState, *, asks_rest: bool) -> ClusterVerdict:
    current, stated = status_of(snapshot.policy, name, cluster, snapshot.at), cluster.stated
    is_repeated = not asks_rest and stated and {stated.status, current.status} <= LED
    return _verdict(name, cluster, stated if stated and is_repeated else current)


def _verdict(name: str, cluster: ClusterState, current: ClusterStatus | Stated, until: str = "") -> ClusterVerdict:
    sentence, since = current.sentence + until, timestamp(current.since.wall)
    return ClusterVerdict(name, current.status.value, sentence, since, *(next_step(cluster, current.status) or ()))


def _of_sidecar(snapshot: Snapshot) -> Iterator[ClusterVerdict]:
    """What is wrong with the sidecar, and with its search for clusters."""
    finder, health, watched = snapshot.state.finder, snapshot.health, len(snapshot.state.clusters)
    if finder and not finder.connected:
        why = clean(finder.refused, _LONGEST_REASON) or "it cannot be read"
        yield _own(Status.BLIND, f"cannot see which clusters are in {clean(finder.place)}: {why}")
    elif finder and (problem := finder.problem(watched)):
        status = Status.BLIND if finder.leaves_out else Status.DEGRADED
        yield _own(status, clean(problem))
    elif not watched:
        yield _own(Status.BLIND, "no cluster is watched yet")
    if health.journal_problem:
        yield _own(Status.DEGRADED, f"the journal cannot be written: {clean(health.journal_problem)}")
    if health.lost_records:
        yield _own(Status.DEGRADED, f"{health.lost_records} records were lost: neither disk nor memory had room")
    if health.unprocessed:
        sentence = f"{health.unprocessed} observations could not be processed because of an error in the sidecar"
        yield _own(Status.DEGRADED, sentence)
    for line in health.quarantined:
        yield _own(Status.DEGRADED, f"left out because of an error in the sidecar: {clean(line)}")
    if health.rules_problem:
        yield _own(Status.DEGRADED, f"the rules on disk cannot be loaded: {clean(health.rules_problem)}")


def _own(status: Status, sentence: str) -> ClusterVerdict:
    return ClusterVerdict(None, status.value, sentence, None)
