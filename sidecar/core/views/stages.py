"""The timeline of one failover: dead, seen dead, no leader, elected, dispatcher, each job running, its first checkpoint.

From its records. A stage that no record has is left out, never guessed: of a vacancy that nobody observed neither begin nor end is known.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from sidecar.core.flink.leadership import Component
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import SECOND, Timestamp, in_seconds, parsed, seconds
from sidecar.core.records import Death, Recovery, TransitionRecord
from sidecar.core.sanitize import clean
from sidecar.core.views.outcome import RecoveryView

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
    transitions: Sequence[TransitionRecord], death: Death | None, recovery: RecoveryView | None
) -> Sequence[FailoverStage]:
    """The stages of the cluster in the order of time, then those of its jobs, the slowest first."""
    judged = {"dead": recovery.dead_at, "dispatcher": recovery.dispatcher_led_at} if recovery else {}
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


def in_words(timeline: Sequence[FailoverStage]) -> Iterator[str]:
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
