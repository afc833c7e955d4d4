"""The status of each cluster, the worst first, and what is wrong with the sidecar itself, for page and API; the checks of high
availability; and all of it for the command `status`: what was just read, and what the journal of a sidecar knows besides.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from sidecar.core.cluster.advice import next_step
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, Sighting, contending
from sidecar.core.cluster.status import LED, SHOWN, WORST_FIRST, ClusterStatus, Stated, Status
from sidecar.core.cluster.status_of import status_of
from sidecar.core.flink.leadership import ComponentId, ConfigMapPosition, Held, Vacant
from sidecar.core.ha import finding
from sidecar.core.moment import SECOND, Moment, Timestamp, parsed, timestamp
from sidecar.core.pods import merged
from sidecar.core.sanitize import clean
from sidecar.core.state import State
from sidecar.core.views.alert_view import AlertView, alerts
from sidecar.core.views.leader_view import Leader, leaders
from sidecar.core.views.snapshot import Snapshot


class LeaderStatus(Leader, frozen=True, kw_only=True):
    """A leadership, as `who` and the API have it, and its age."""

    age_seconds: float
    """How long it has been in this state: since `since`, or at least since `observed_since` where that is null."""


class ShownCluster(Struct, frozen=True):
    """One cluster, as on the page."""

    cluster_id: str
    status: str
    sentence: str
    status_since: Timestamp | None
    standbys: int | None
    """JobManagers that contend and do not lead. Null: not known, as always in Kubernetes."""
    leaders: Sequence[LeaderStatus]
    """Components, then jobs, those without a leader first."""
    alerts: Sequence[AlertView]
    """Those that fire or are pending, as of the journal."""


class JournalStatus(Struct, frozen=True):
    """The journal that alerts, names of pods, and the beginning of vacancies are from."""

    running: bool
    """Whether its sidecar has written to it lately."""
    written_at: Timestamp | None
    """When that sidecar was last known to run."""


class ShownStatus(Struct, frozen=True):
    """All clusters of a configuration at one moment, the worst first."""

    at: Timestamp
    status: str
    """The worst of them that is seen, or `BLIND` if nothing worse than that is."""
    clusters: Sequence[ShownCluster]
    problems: Sequence[str]
    """What is wrong with the search for clusters."""
    journal: JournalStatus | None
    """Null: it cannot be read."""
    journal_problem: str | None = None
    """Why not."""


def joined(live: State, remembered: State, *, running: bool) -> State:
    """`live`, which was just read, with what a sidecar knows besides: since when, alerts, pods. `remembered`: its state, on the same clock;
    `running`: whether it observed everything until now. A found cluster of which nothing is there any more is as the sidecar has it.
    """
    clusters = {
        name: _with_remembered(cluster, remembered.clusters.get(name), running=running)
        for name, cluster in live.clusters.items()
    }
    if running and live.finder and live.finder.connected:
        gone = {name: cluster for name, cluster in remembered.clusters.items() if cluster.gone}
        clusters = {**gone, **clusters}
    return replace(live, clusters=clusters, alerts=remembered.alerts, silences=remembered.silences)


def _with_remembered(live: ClusterState, remembered: ClusterState | None, *, running: bool) -> ClusterState:
    if remembered is None:
        return live
    components = {
        component: _longest(state, remembered.components.get(component), running=running)
        for component, state in live.components.items()
    }
    unseen = running and not live.view.complete and remembered.view.sighting is Sighting.BLIND
    return replace(
        live,
        view=remembered.view if unseen else live.view,
        components=components,
        pods=merged(remembered.pods, live.pods),
        operated=remembered.operated,
        episode=remembered.episode if running else None,
        stated=remembered.stated if running else None,
    )


def _longest(live: ComponentState, remembered: ComponentState | None, *, running: bool) -> ComponentState:
    """The component with the older beginning of its present state, if it is known that it lasted."""
    if remembered is None:
        return live
    match live.leadership, remembered.leadership:
        case Held(leader=now), Held(leader=before) if now == before and not remembered.discovered:
            return replace(live, since=remembered.since, discovered=False)
        case Held(leader=now), Held(leader=before) if now == before and remembered.since.wall < live.since.wall:
            # It led already then. If its lease says that it did not, its clock is ahead.
            return replace(live, since=remembered.since, discovered=True)
        case Vacant(), Vacant() if running:
            return replace(
                live, since=remembered.since, discovered=remembered.discovered, last_known=remembered.last_known
            )
    return replace(live, last_known=live.last_known or remembered.last_known)


def with_beginnings(live: State) -> State:
    """`live`, of which everything was just read, with the beginnings that the store has, and without those that it does not have.

    In Kubernetes a leader of the cluster itself leads since its holder has acquired the lease, by that holder's clock. If a lease expires
    that was never observed to be renewed, its holder died before.
    """
    clusters = {}
    for name, cluster in live.clusters.items():
        components = {
            component: _with_beginning(component, state, cluster) for component, state in cluster.components.items()
        }
        clusters[name] = replace(cluster, components=components)
    return replace(live, clusters=clusters)


def _with_beginning(component: ComponentId, state: ComponentState, cluster: ClusterState) -> ComponentState:
    place = state.last_position
    if not isinstance(place, ConfigMapPosition):
        return state
    if isinstance(state.leadership, Held) and state.discovered and component.job_id is None:
        with suppress(ValueError):
            wall = parsed(place.acquire_time)
            if wall <= state.since.wall:  # else that clock is ahead of ours, and says nothing
                since = Moment(state.since.steady - state.since.wall + wall, wall)
                return replace(state, since=since, discovered=False)
    lease = cluster.leases.get(place.name)
    if isinstance(state.leadership, Vacant) and lease and lease.lapsed and lease.renewed_at is None:
        return replace(state, discovered=True)
    return state


def status(snapshot: Snapshot, journal: JournalStatus | None, problem: str | None = None) -> ShownStatus:
    """The status of all clusters in `snapshot`. `problem`: why the journal cannot be read."""
    leaderships, firing = leaders(snapshot), alerts(snapshot)
    clusters, problems = [], []
    judged = verdicts(snapshot, asks_rest=False)
    for verdict in judged:
        name = verdict.cluster_id
        if name is None:
            problems.append(verdict.sentence)
            continue
        own = [_with_age(leader, snapshot.at) for leader in leaderships if leader.cluster_id == name]
        own.sort(key=lambda leader: (leader.job_id is not None, leader.state == "held"))
        cluster = snapshot.state.clusters[name]
        contenders = contending(cluster.contenders) if cluster.is_in_sight else None
        standbys = contenders - any(leader.state == "held" for leader in own) if contenders else None
        about = [alert for alert in firing if alert.cluster_id == name]
        clusters.append(
            ShownCluster(name, verdict.status, verdict.sentence, verdict.status_since, standbys, own, about)
        )
    of_clusters = (v.status for v in judged if v.cluster_id is not None or v.status == Status.BLIND)
    worst = next(of_clusters, Status.OK.value)
    return ShownStatus(timestamp(snapshot.at.wall), worst, clusters, problems, journal, problem)


def _with_age(leader: Leader, now: Moment) -> LeaderStatus:
    began = parsed(leader.since or leader.observed_since)
    return LeaderStatus(**asdict(leader), age_seconds=round(max(0, now.wall - began) / SECOND, 1))


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
    of_clusters = (_cluster_verdict(snapshot, name, cluster, asks_rest=asks_rest) for name, cluster in clusters)
    verdicts = [*of_clusters, *_sidecar_verdicts(snapshot)]
    return sorted(verdicts, key=lambda one: (WORST_FIRST.index(Status(one.status)), one.cluster_id or ""))


def stated(snapshot: Snapshot) -> Mapping[str, ClusterVerdict]:
    """How the clusters are, as was decided last, by the ids of their last failovers. Of a sidecar that does not run they say so."""
    verdicts, alive = {}, snapshot.state.alive
    ended = f" (as of {timestamp(alive.wall)}: the sidecar has not run since)" if alive else ""
    until = "" if is_running(alive, snapshot.at) else ended
    for name, cluster in snapshot.state.clusters.items():
        if (last := cluster.episode or cluster.last_episode) and (current := cluster.stated):
            verdicts[last.id] = _verdict(name, cluster, current, until)
    return verdicts


def _cluster_verdict(snapshot: Snapshot, name: str, cluster: ClusterState, *, asks_rest: bool) -> ClusterVerdict:
    current, stated = status_of(snapshot.policy, name, cluster, snapshot.at), cluster.stated
    is_repeated = not asks_rest and stated and {stated.status, current.status} <= LED
    return _verdict(name, cluster, stated if stated and is_repeated else current)


def _verdict(name: str, cluster: ClusterState, current: ClusterStatus | Stated, until: str = "") -> ClusterVerdict:
    sentence, since = current.sentence + until, timestamp(current.since.wall)
    return ClusterVerdict(name, current.status.value, sentence, since, *(next_step(cluster, current.status) or ()))


def _sidecar_verdicts(snapshot: Snapshot) -> Iterator[ClusterVerdict]:
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
            cluster.readiness.checks.values(), key=lambda check: finding.WORST_FIRST.index(check.result.verdict)
        )
    ]
