"""The HTML pages. Importing this module loads jinja2.

All text from a cluster or a person is untrusted: it is made printable and bounded (`clean`) and escaped by the templates, and no page may
run or load anything but its own style and script (`POLICY`).
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.cluster import advice
from sidecar.core.cluster.cluster_state import ClusterState, contending
from sidecar.core.failover import rest_server
from sidecar.core.failover.causes import Cause
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.pods import process
from sidecar.core.policy.triggers import TRIGGERS, Trigger
from sidecar.core.records import TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.alert_view import grouped, problems, silences
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.explain import Explanation, facts
from sidecar.core.views.leader_view import Leader, leaders, web_ui
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import ClusterVerdict, ha_checks, verdicts
from sidecar.web import stage_picture, templating
from sidecar.web.api_paths import RANGES, PageQuery
from sidecar.web.queries import LastDay
from sidecar.web.templating import POLICY, render
from sidecar.web.timeline_picture import cluster_picture, episode_picture

__all__ = ["POLICY", "episode", "status", "troubleshooting"]

EVERY_SECONDS: Final = 3
"""The time between two updates of the status page, and of the page of a failover that is not over."""
VERDICTS_SHOWN: Final = 100
STEPS_SHOWN: Final = 10
"""Verdicts with a next step: the worst."""
DETAILED: Final = 3
"""Clusters with leaders, jobs and picture on the page of all clusters: the worst."""
LEADERS_SHOWN: Final = 20
"""Jobs of a cluster; those without a leader come first."""
ALERTS_SHOWN: Final = 20
EPISODES_SHOWN: Final = 10
DELIVERIES_SHOWN: Final = 20
SILENCES_SHOWN: Final = 20
TRANSITIONS_SHOWN: Final = 100
"""Transitions of the cluster's components."""
JOBS_SHOWN: Final = 20
"""Transitions of jobs."""
MESSAGES_SHOWN: Final = 50
EVIDENCE_SHOWN: Final = 50

_STEPS: Final = {
    trigger.value: {"next": TRIGGERS[trigger].next, "anchor": advice.anchor(trigger)} for trigger in Trigger
}


class StoreView(Struct, frozen=True):
    """The store's connection: connected and fully read, and since when. `since` is null until it has been read once."""

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
    """The part of the status page about one cluster."""

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
    """True if there was a standby, and is none any more."""
    picture_problem: str | None
    """Why Flink's REST server does not describe the cluster: the next failover cannot be assessed."""


def status(
    snapshot: Snapshot, day: LastDay, now: Moment, problem: str | None, stale: str | None, query: PageQuery
) -> str:
    """The status page, of all clusters or of one that is watched.

    `problem`: why the last `day` is missing; `stale`: why the snapshot is out of date.
    """
    only, hours = query
    judged = [verdict for verdict in verdicts(snapshot) if only in {None, verdict.cluster_id}]
    watched = [verdict.cluster_id for verdict in judged if verdict.cluster_id is not None]
    detailed = watched[:DETAILED]
    firing = [alert for alert in grouped(snapshot) if only in {None, alert.first.cluster_id}]
    outbox = [delivery for delivery in snapshot.state.outbox.values() if not delivery.is_scheduled]
    silenced = [silence for silence in silences(snapshot) if silence.state != "expired"]
    return render(
        "status.html.j2",
        every=EVERY_SECONDS,
        now=now.wall,
        at=timestamp(snapshot.at.wall),
        stale=stale,
        only=only,
        hours=hours,
        ranges=RANGES,
        counts="cannot be seen: out of date" if stale else _counts(judged),
        judged=judged[:VERDICTS_SHOWN],
        steps_shown=STEPS_SHOWN,
        unjudged=len(judged[VERDICTS_SHOWN:]),
        detailed=detailed,
        steps=_STEPS,
        clusters=[
            (view, cluster_picture(snapshot, day, view.cluster_id, hours)) for view in _clusters(snapshot, detailed)
        ],
        watched=len(watched),
        finder=snapshot.state.finder,
        job_names=day.job_names,
        episodes=_latest(snapshot, day, only),
        problem=problem,
        health=snapshot.health,
        idle_rules=snapshot.policy.idle_rules(),
        checks={name: ha_checks(snapshot, name) for name in detailed},
        alerts=firing[:ALERTS_SHOWN],
        alert_count=len(firing),
        deliveries=outbox[:DELIVERIES_SHOWN],
        pending=len(outbox),
        services=snapshot.policy.services(),
        silences=silenced[:SILENCES_SHOWN],
        silenced=len(silenced),
        unread_silences=problems(snapshot),
    )


def _clusters(snapshot: Snapshot, names: Sequence[str]) -> list[PageCluster]:
    """These watched clusters, in this order."""
    state = replace(snapshot.state, clusters={name: snapshot.state.clusters[name] for name in names})
    leaders_of = {
        name: list(group) for name, group in groupby(leaders(replace(snapshot, state=state)), attrgetter("cluster_id"))
    }
    return [_cluster(name, state.clusters[name], leaders_of.get(name, []), snapshot.at) for name in names]


def _cluster(cluster_id: str, cluster: ClusterState, leaders: list[Leader], at: Moment) -> PageCluster:
    contenders = contending(cluster.contenders) if cluster.is_in_sight else None
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
    if cluster.is_in_sight:
        return StoreView(True, connection, timestamp(at.wall - (at.steady - view.connected_at)))
    if cluster.stale:
        return StoreView(False, f"{connection}, not answering in time", timestamp(view.turned_at.wall))
    lost = view.loss.began if view.loss and view.loss.ended is None else None
    return StoreView(False, connection, timestamp(lost.wall) if lost else None)


def _jobs(jobs: list[Leader]) -> JobCounts:
    states = Counter(job.state for job in jobs)
    first = sorted(jobs, key=lambda job: job.state == "held")[:LEADERS_SHOWN]
    return JobCounts(len(jobs), states["held"], states["vacant"], states["unknown"], first)


def episode(explained: Explanation, snapshot: Snapshot, now: Moment) -> str:
    """The page of one failover: explanation, picture, notes, transitions, evidence and notifications."""
    failover = explained.episode
    in_progress = failover is not None and failover.phase != "CLOSED"
    return render(
        "episode.html.j2",
        every=EVERY_SECONDS if in_progress else 0,
        now=now.wall,
        explained=explained,
        failover=failover,
        drawn=episode_picture(explained, snapshot),
        facts=list(facts(explained)),
        stages=stage_picture.drawn(explained.stages),
        next=_next_step(failover),
        cause=failover.cause if failover else None,
        transitions=_first_transitions(explained.transitions),
        job_names=explained.job_names,
        messages=explained.notifications[:MESSAGES_SHOWN],
        services=snapshot.policy.services(),
        jobs_shown=JOBS_SHOWN,
        evidence=explained.evidence[:EVIDENCE_SHOWN],
    )


@cache
def troubleshooting() -> str:
    """The page that says of each alert and each cause what it means, what to check and what to do."""
    return render("troubleshooting.html.j2", every=0, prose=templating.html(templating.troubleshooting()))


def _counts(judged: Sequence[ClusterVerdict]) -> str:
    """The numbers of clusters by status: text that changes only when something happened."""
    numbers = Counter(verdict.status for verdict in judged)
    return ", ".join(f"{number} {status}" for status, number in numbers.items())


def _latest(snapshot: Snapshot, day: LastDay, only: str | None) -> list[EpisodeView]:
    """The latest failovers, those in progress first."""
    closed = [record for record in day.episodes.values() if only in {None, record.cluster_id}]
    views = episode_view.latest(closed[:EPISODES_SHOWN], day.outcomes, snapshot)
    return [view for view in views if only in {None, view.cluster_id}][:EPISODES_SHOWN]


def _next_step(failover: EpisodeView | None) -> str | None:
    if failover is None or failover.cause not in set(Cause):
        return None
    before = process(failover.before_address, failover.before_pod)
    return advice.step_for_cause(Cause(failover.cause), before, failover.death_reason)


def _first_transitions(transitions: Sequence[TransitionRecord]) -> list[TransitionRecord]:
    """The first transitions of the cluster's components and the first of jobs, in order."""
    room = {True: JOBS_SHOWN, False: TRANSITIONS_SHOWN}
    first = []
    for transition in transitions:
        of_job = transition.job_id is not None
        if room[of_job]:
            room[of_job] -= 1
            first.append(transition)
    return first
