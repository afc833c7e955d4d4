"""The HTML pages. Importing this module loads jinja2.

All text from a cluster or a person is untrusted: it is made printable and bounded (`clean`) and escaped by the templates, and no page may
run or load anything but its own style and script (`POLICY`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from sidecar.core.cluster import advice
from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.moment import Moment, timestamp
from sidecar.core.pods import process
from sidecar.core.policy.policy import Trigger
from sidecar.core.records import TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.alert_view import grouped
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.episode_words import facts
from sidecar.core.views.explain import Explanation
from sidecar.core.views.ha_check_view import ha_checks
from sidecar.core.views.silence_view import problems, silences
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.verdict import ClusterVerdict, verdicts
from sidecar.web import prose, stage_picture
from sidecar.web.api_paths import RANGES, PageQuery
from sidecar.web.last_day import LastDay
from sidecar.web.page_clusters import clusters
from sidecar.web.page_pictures import of_cluster, of_episode
from sidecar.web.templating import POLICY, render

__all__ = ["POLICY", "episode", "status", "troubleshooting"]

EVERY_SECONDS: Final = 3
"""How often the status page, and the page of a failover that is not over, are updated."""
VERDICTS_SHOWN: Final = 100
STEPS_SHOWN: Final = 10
"""Verdicts with a next step: the worst."""
DETAILED: Final = 3
"""Clusters with leaders, jobs and picture on the page of all clusters: the worst."""
ALERTS_SHOWN: Final = 20
EPISODES_SHOWN: Final = 10
DELIVERIES_SHOWN: Final = 20
SILENCES_SHOWN: Final = 20
TRANSITIONS_SHOWN: Final = 100
"""Of the cluster's components."""
JOBS_SHOWN: Final = 20
"""Transitions of jobs."""
MESSAGES_SHOWN: Final = 50
EVIDENCE_SHOWN: Final = 50

_STEPS: Final = {
    trigger.value: {"next": advice.TRIGGERS[trigger], "anchor": advice.anchor(trigger)} for trigger in Trigger
}


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
        clusters=[(view, of_cluster(snapshot, day, view.cluster_id, hours)) for view in clusters(snapshot, detailed)],
        watched=len(watched),
        finder=snapshot.state.finder,
        job_names=day.job_names,
        episodes=_latest(snapshot, day, only),
        problem=problem,
        health=snapshot.health,
        idle_rules=snapshot.policy.idle_rules(),
        checks={name: ha_checks(snapshot, name) for name in detailed},
        **_alerts(snapshot, only),
        **_deliveries(snapshot),
        **_silences(snapshot),
    )


def _alerts(snapshot: Snapshot, only: str | None) -> dict[str, object]:
    firing = [alert for alert in grouped(snapshot) if only in {None, alert.first.cluster_id}]
    return {"alerts": firing[:ALERTS_SHOWN], "alert_count": len(firing)}


def _deliveries(snapshot: Snapshot) -> dict[str, object]:
    outbox = [delivery for delivery in snapshot.state.outbox.values() if not delivery.is_scheduled]
    services = snapshot.policy.services()
    return {"deliveries": outbox[:DELIVERIES_SHOWN], "pending": len(outbox), "services": services}


def _silences(snapshot: Snapshot) -> dict[str, object]:
    active = [silence for silence in silences(snapshot) if silence.state != "expired"]
    return {"silences": active[:SILENCES_SHOWN], "silenced": len(active), "unread_silences": problems(snapshot)}


def episode(explained: Explanation, failover: EpisodeView | None, snapshot: Snapshot, now: Moment) -> str:
    """The page of one failover: explanation, picture, notes, transitions, evidence and notifications."""
    in_progress = failover is not None and failover.phase != "CLOSED"
    return render(
        "episode.html.j2",
        every=EVERY_SECONDS if in_progress else 0,
        now=now.wall,
        explained=explained,
        failover=failover,
        drawn=of_episode(explained, failover, snapshot),
        facts=list(facts(explained)),
        stages=stage_picture.drawn(explained.stages),
        next=_next_step(failover),
        cause=failover.cause if failover else None,
        transitions=_first_transitions(explained.transitions),
        job_names=_job_names(explained),
        messages=explained.notifications[:MESSAGES_SHOWN],
        services=snapshot.policy.services(),
        jobs_shown=JOBS_SHOWN,
        evidence=explained.evidence[:EVIDENCE_SHOWN],
    )


@cache
def troubleshooting() -> str:
    """The page that says of each alert and each cause what it means, what to check and what to do."""
    return render("troubleshooting.html.j2", every=0, prose=prose.html(prose.troubleshooting()))


def _counts(judged: Sequence[ClusterVerdict]) -> str:
    """How many there are of each status: text that changes only when something happened."""
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
    return advice.next_step(Cause(failover.cause), before, failover.death_reason)


def _job_names(explained: Explanation) -> Mapping[str, str]:
    """By job id: the names that Flink's REST API reported. Untrusted text."""
    jobs = (evidence for evidence in explained.evidence if evidence.kind == "job")
    return {job.subject: job.attributes["name"] for job in jobs if job.attributes.get("name")}


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
