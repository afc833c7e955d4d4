"""Failovers as data for people and scripts: closed ones and those in progress, what became of them, and the stages of one.

What became of a failover is told by the records that follow it, of one observer or of several: what is proven is preferred, and of that
the worst. A stage that no record has is left out, never guessed: of a vacancy that nobody observed neither begin nor end is known.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, convert, json
from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import RecordWriter
from sidecar.core.failover import episodes
from sidecar.core.failover.assessment import current_rows
from sidecar.core.failover.causes import Cause
from sidecar.core.failover.deaths import death_of, facts_of
from sidecar.core.failover.ends import KEPT
from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import SECOND, Timestamp, in_seconds, parsed, seconds
from sidecar.core.records import Annotation, Death, EpisodeRecord, Recovery, StatusRecord, TransitionRecord
from sidecar.core.sanitize import clean
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import ClusterVerdict, stated

_CONFIDENCES: Final = ("none", "medium", "high")
_VERDICTS: Final = ("unproven", "recovered", "degraded", "lost")
_OUTCOMES: Final = ("missing", "resurrected", "unproven", "ended", "running")
"""The outcomes of jobs, the worst first."""
_RESTORED: Final = ("nothing", "older")
"""From what jobs that run were restored, the worst first."""


class EpisodeOutcome(Struct, frozen=True):
    """The outcome of one failover, for lists. Null: nothing is recorded."""

    death: Death | None = None
    verdict: str | None = None
    reviewed: bool = False
    """Whether somebody has annotated it."""
    status: StatusRecord | None = None
    """The last one of its cluster before another failover followed."""


class EpisodeRecovery(Struct, frozen=True, kw_only=True):
    """Whether everything came back, as one observer judged it: its records."""

    cluster: Recovery | None
    """Null: only what became of jobs is known."""
    jobs: Sequence[Recovery]
    """The worst first: what is missing, what lost state, then what took longest."""
    jobs_total: int
    """The number of all jobs: of very many not all records are kept."""

    @property
    def verdict(self) -> str:
        """That about the whole failover, which each record has."""
        return (self.cluster or self.jobs[0]).verdict


def outcomes_of(
    records: Iterable[Death | Recovery | Annotation | StatusRecord],
    earlier: Mapping[str, EpisodeOutcome] = MappingProxyType({}),
) -> dict[str, EpisodeOutcome]:
    """What the records say of the failovers that they are about, by their ids; added to what `earlier` ones said."""
    outcomes: dict[str, EpisodeOutcome] = {}
    for record in records:
        if record.episode_id is None:
            continue
        outcome = outcomes.get(record.episode_id) or earlier.get(record.episode_id, EpisodeOutcome())
        match record:
            case Death():
                outcome = replace(outcome, death=best_death(filter(None, (outcome.death, record))))
            case Recovery():
                verdicts = filter(None, (outcome.verdict, record.verdict))
                outcome = replace(outcome, verdict=max(verdicts, key=lambda verdict: _rank(_VERDICTS, verdict)))
            case Annotation():
                outcome = replace(outcome, reviewed=True)
            case StatusRecord():
                outcome = replace(outcome, status=later(outcome.status, record))
        outcomes[record.episode_id] = outcome
    return outcomes


def needs_review(episode: EpisodeRecord, outcomes: Mapping[str, EpisodeOutcome]) -> bool:
    """Whether nobody has annotated it yet. Of a time in which only this sidecar was blind there is nothing to review."""
    return episode.cause != Cause.OBSERVER_BLIND and not outcomes.get(episode.id, EpisodeOutcome()).reviewed


def later(status: StatusRecord | None, other: StatusRecord) -> StatusRecord:
    """The one that was observed later, of equal ones the other."""
    return status if status and status.observed_at > other.observed_at else other


def best_death(deaths: Iterable[Death]) -> Death | None:
    """The one with the highest confidence, the first of equal ones."""
    return max(deaths, key=lambda death: _rank(_CONFIDENCES, death.confidence), default=None)


def recovery_of(rows: Sequence[Recovery], jobs_total: int) -> EpisodeRecovery | None:
    """The worst proven verdict of all observers, with the jobs as that observer saw them; of several rows of one job the first. None: there
    is no row.
    """
    worst = max(rows, key=lambda row: _rank(_VERDICTS, row.verdict), default=None)
    if worst is None:
        return None
    own: dict[str | None, Recovery] = {}
    for row in rows:
        if row.observer == worst.observer:
            own.setdefault(row.job_id, row)
    cluster = own.pop(None, None)
    jobs = sorted(own.values(), key=_urgency)
    return EpisodeRecovery(cluster=cluster, jobs=jobs, jobs_total=max(jobs_total, len(jobs)))


def _urgency(job: Recovery) -> tuple[int, int, float]:
    outcome = _OUTCOMES.index(job.outcome) if job.outcome in _OUTCOMES else 0
    restored = _RESTORED.index(job.restored_from) if job.restored_from in _RESTORED else len(_RESTORED)
    return outcome, restored, -(job.running_after_seconds or 0)


def _rank(order: Sequence[str], value: str) -> int:
    """The place of a value; what a newer version wrote comes first, so that what is understood is preferred."""
    return order.index(value) if value in order else -1


class EpisodeView(EpisodeRecord, frozen=True, kw_only=True):
    """A failover's record with its outcome. In progress `phase` is OPEN (a cluster component has no leader) or LEADER_BACK,
    `closed_at` and durations are null, and the other fields hold what is known so far.
    """

    closed_at: Timestamp | None  # type: ignore[assignment]  # a record is written at the end
    phase: str = "CLOSED"
    death_reason: str | None = None
    """Why the process of the previous leader ended. Null: nothing is recorded."""
    death_confidence: str | None = None
    recovery_verdict: str | None = None
    """`recovered`, `degraded`, `lost` or `unproven`. Null: nothing is recorded."""
    status: str | None = None
    """Its cluster's: now, or the last one before another failover. Null: nothing is recorded."""
    reviewed: bool | None = None
    """Whether somebody has annotated it. Null: there is nothing to review, only this sidecar was blind."""


_BUILT: Final = json.Decoder(EpisodeView)
"""What `convert` needs of the type, as for decoding."""


def closed(episode: EpisodeRecord) -> EpisodeView:
    return convert(episode, EpisodeView, from_attributes=True)


def open_episodes(snapshot: Snapshot) -> list[EpisodeView]:
    """The open episodes, at most one per cluster."""
    clusters = sorted(snapshot.state.clusters.items())
    return [_open_episode(snapshot, name, cluster, cluster.episode) for name, cluster in clusters if cluster.episode]


def with_outcome(episode: EpisodeView, outcome: EpisodeOutcome, now: ClusterVerdict | None) -> EpisodeView:
    """The episode with what is recorded of its outcome. `now`: how its cluster is, if it is the last one."""
    death, status = outcome.death, now or outcome.status
    return replace(
        episode,
        death_reason=death.reason if death else None,
        death_confidence=death.confidence if death else None,
        recovery_verdict=outcome.verdict,
        status=status.status if status else None,
        reviewed=None if episode.cause == Cause.OBSERVER_BLIND else outcome.reviewed,
    )


def latest(
    recorded: Sequence[EpisodeRecord], outcomes: Mapping[str, EpisodeOutcome], snapshot: Snapshot
) -> list[EpisodeView]:
    """Those in progress, then the recorded ones in their order. One that has just been recorded may still be in the snapshot."""
    recorded_ids = {episode.id for episode in recorded}
    opened = (episode for episode in open_episodes(snapshot) if episode.id not in recorded_ids)
    outcomes = {**outcomes, **outcomes_of(unrecorded(snapshot), outcomes)}
    now = stated(snapshot)
    return [
        with_outcome(episode, outcomes.get(episode.id, EpisodeOutcome()), now.get(episode.id))
        for episode in (*opened, *map(closed, recorded))
    ]


def _open_episode(snapshot: Snapshot, cluster_id: str, cluster: ClusterState, episode: episodes.Episode) -> EpisodeView:
    """What would be recorded if it were over, but for what its end decides."""
    so_far = replace(episode, facts=facts_of(cluster, episode))
    record = RecordWriter(snapshot.policy, cluster_id, snapshot.at).episode(
        so_far, cluster.parts(episode), cluster.pods
    )
    undecided = ("closed_at", "vacant_seconds", "downtime_seconds_at_least", "downtime_seconds_at_most")
    view = replace(closed(record), phase=episode.phase.value, vacant_seconds_by_component={})
    return replace(view, **dict.fromkeys(undecided))


def unrecorded(snapshot: Snapshot) -> Iterator[Death | Recovery]:
    """What is known of failovers and not recorded yet, as it would be recorded now. Of each cluster's current failover, and of the last one
    until that is recorded: why the previous leader ended, and what is back.
    """
    for cluster_id, cluster in snapshot.state.clusters.items():
        writer = RecordWriter(snapshot.policy, cluster_id, snapshot.at)
        for episode in filter(None, (cluster.last_episode, cluster.episode)):
            is_kept = episode.closed_at is None or snapshot.at.steady - episode.closed_at.steady < KEPT
            if is_kept and episode.death is None and (death := death_of(cluster, episode)):
                yield writer.death(episode.id, death)
        if cluster.recovery:
            yield from current_rows(snapshot.policy, cluster_id, cluster, snapshot.at)


MOST_JOBS: Final = 10
"""That are shown, the slowest; the others are counted."""
WORDS: Final = {
    "dead": "the process ended",
    "seen_dead": "its end was observed",
    "no_leader": "no leader",
    "elected": "a leader was elected",
    "dispatcher": "the dispatcher leads",
    "running": "runs",
    "checkpointed": "first checkpoint",
}
"""What is true from a stage on."""
_LED: Final = frozenset({"no_leader", "elected", "dispatcher"})


class FailoverStage(Struct, frozen=True):
    """When a failover had come so far."""

    stage: str
    """`dead`, `seen_dead`, `no_leader`, `elected`, `dispatcher`, or of a job `running`, `checkpointed`."""
    at: Timestamp
    seconds: float
    """Since the first stage."""
    job_id: str | None = None
    """The job. Null: a stage of the cluster."""
    name: str | None = None
    """The job's name."""


def stages(
    transitions: Sequence[TransitionRecord], death: Death | None, recovery: EpisodeRecovery | None
) -> Sequence[FailoverStage]:
    """The stages of the cluster in the order of time, then those of its jobs, the slowest first."""
    assessed = recovery.cluster if recovery else None
    judged = {"dead": assessed.dead_at, "dispatcher": assessed.dispatcher_led_at} if assessed else {}
    died = {"dead": death.ended_at, "seen_dead": death.seen_at} if death else {}
    known = (*judged.items(), *_transition_times(transitions).items(), *died.items())
    of_cluster = {name: at for name, at in known if at}
    jobs = [(job, at) for job in (recovery.jobs if recovery else ()) if (at := job.running_at)]
    jobs.sort(key=lambda running: running[1], reverse=True)
    start = min(map(parsed, (*of_cluster.values(), *(at for _, at in jobs))), default=0)

    def stage(name: str, at: Timestamp, job: Recovery | None = None) -> FailoverStage:
        since = in_seconds(parsed(at) - start)
        return FailoverStage(name, at, since, job.job_id, job.name) if job else FailoverStage(name, at, since)

    in_order = sorted(of_cluster.items(), key=lambda item: (item[1], list(WORDS).index(item[0])))
    timeline = [stage(name, at) for name, at in in_order]
    for job, running_at in jobs:
        timeline.append(stage("running", running_at, job))
        if job.checkpointed_at:
            timeline.append(stage("checkpointed", job.checkpointed_at, job))
    return timeline


def stages_in_words(timeline: Sequence[FailoverStage]) -> Iterator[str]:
    """A line each: the seconds since the first one, and what is true from then on. None if there are only those of the leadership."""
    slowest_stages, others = slowest(timeline)
    for stage in slowest_stages:
        yield f"{f'+{seconds(round(stage.seconds * SECOND))}':9} {label(stage)}"
    if others:
        yield others


def slowest(timeline: Sequence[FailoverStage]) -> tuple[Sequence[FailoverStage], str]:
    """The stages of the cluster and of the slowest jobs, and the other jobs in words. Nothing if all that is known is who led."""
    if {stage.stage for stage in timeline} <= _LED:
        return [], ""
    jobs = list(dict.fromkeys(stage.job_id for stage in timeline if stage.job_id))
    shown_jobs = {None, *jobs[:MOST_JOBS]}
    rest = [stage.seconds for stage in timeline if stage.stage == "running" and stage.job_id not in shown_jobs]
    others = f"{len(rest)} more jobs ran after {seconds(round(max(rest) * SECOND))} at most" if rest else ""
    return [stage for stage in timeline if stage.job_id in shown_jobs], others


def label(stage: FailoverStage) -> str:
    """What is true from then on, of which job."""
    words = WORDS[stage.stage]
    return f"{clean(stage.name or stage.job_id, 60)}: {words}" if stage.job_id else words


def _transition_times(transitions: Sequence[TransitionRecord]) -> dict[str, Timestamp]:
    """What was observed as it happened: a leader that was only discovered has no time of election."""
    own = [transition for transition in transitions if transition.job_id is None]
    lost = [transition for transition in own if transition.kind == Kind.REVOKED]
    elected = [transition for transition in own if transition.kind in {Kind.GRANTED, Kind.CHANGED}]
    dispatcher = [transition for transition in own if transition.component == Component.DISPATCHER]
    firsts = (("no_leader", lost), ("elected", elected))
    times = {name: of_kind[0].observed_at for name, of_kind in firsts if of_kind}
    if dispatcher and dispatcher[-1] in elected:
        times["dispatcher"] = dispatcher[-1].observed_at
    return times
