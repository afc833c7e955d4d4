"""Records as lines that people read, in a log or in a terminal.

Addresses and job ids come from the store and are untrusted: control characters never reach a line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from sidecar.core.counted import counted
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.failover.recovery_tables import MOST_OF_A_REASON
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import SECOND, bounds, micros, seconds
from sidecar.core.pods import spelled
from sidecar.core.records import (
    Annotation,
    AnyRecord,
    Contention,
    Coverage,
    Death,
    Drill,
    EpisodeRecord,
    Evidence,
    HaCheck,
    Notification,
    Recovery,
    StatusRecord,
    TransitionRecord,
)
from sidecar.core.sanitize import clean

MOST_LINES: Final = 25
"""The most transitions of one failover that are listed."""
DUPLICATE_NOTE: Final = "This may be a duplicate: an earlier attempt may have arrived."


def transition_line(transition: TransitionRecord) -> str:
    before, after = (clean(address or "") for address in (transition.before_address, transition.after_address))
    where = f"{before} -> {after}" if before and after else before or after or transition.reason or ""
    vacant = (
        f"  no published leader for {transition.vacant_seconds:.3f} s" if transition.vacant_seconds is not None else ""
    )
    down = working(transition.downtime_seconds_at_least, transition.downtime_seconds_at_most)
    least = "at least " if transition.unobserved is None else ""
    missed = f"  {least}{transition.unobserved_at_least} unobserved" if transition.unobserved_at_least else ""
    component = f"{transition.component} {transition.job_id}" if transition.job_id else transition.component
    why = f"  {transition.reason}" if transition.reason and transition.kind == Kind.REVOKED else ""
    return f"{transition.kind:11} {transition.pattern:8} {component:45} {where}{why}{vacant}{f'  {down}' if down else ''}{missed}".rstrip()


def episode_line(episode: EpisodeRecord) -> str:
    """A failover that is over, as one line of a log."""
    lasted = f", no published leader for {episode.vacant_seconds:.3f} s" if episode.vacant_seconds is not None else ""
    down = working(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
    jobs = f", {episode.jobs_affected} of {episode.jobs_total} jobs" if episode.jobs_total else ""
    missing = f", {episode.jobs_missing} still without a leader" if episode.jobs_missing else ""
    headline = f"failover {moved(episode)}" if episode.failovers else "no failover"
    planned = ", planned" if episode.planned else ""
    return f"{headline}: {episode.cause} ({episode.confidence}){planned}{lasted}{f', {down}' if down else ''}{jobs}{missing} [{episode.id}]"


def working(at_least: float | None, at_most: float | None) -> str:
    """The time without a working leader, in words. Seconds, as records have them; empty: not known."""
    return f"no working leader for {lasted(at_least, at_most)}" if at_least is not None else ""


def leaderless(vacant: float | None, at_least: float | None, at_most: float | None) -> str:
    """How long there was no leader, by the best known figure alone: the time without a working leader, where that is known. Empty: nothing
    is known."""
    published = "" if vacant is None else f"no published leader for {seconds(micros(vacant))}"
    return working(at_least, at_most) or published


def lasted(at_least: float, at_most: float | None) -> str:
    """Bounds in seconds, for people."""
    return bounds(round(at_least * SECOND), None if at_most is None else round(at_most * SECOND))


def coverage_line(coverage: Coverage) -> str:
    return f"{coverage.state} from {coverage.began_at} to {coverage.ended_at}"


def record_line(record: AnyRecord, *, with_cluster: bool = False) -> str:
    """The record, as one line of a log or a terminal. `with_cluster`: with the name of the cluster."""
    line = _LINES[type(record)](record)
    return f"{clean(record.cluster_id)}: {line}" if with_cluster else line


def status_line(record: StatusRecord) -> str:
    """The status of a cluster, and what it was before, as one line."""
    before = f" (before: {clean(record.previous)})" if record.previous else ""
    return f"{clean(record.status)}: {clean(record.sentence)}{before}"


def ha_check_line(check: HaCheck) -> str:
    before = f" (before: {check.verdict_before})" if check.verdict_before not in {None, check.verdict} else ""
    return f"check {check.check_name}: {check.verdict}{before}: {clean(check.finding)}"


def contention_line(contention: Contention) -> str:
    before = "" if contention.contenders_before is None else f" (before: {contention.contenders_before})"
    standby = ": no standby left" if contention.contenders == 1 else ""
    return f"{contention.component or 'all components'}: contenders {contention.contenders}{before}{standby}"


def notification_line(notification: Notification) -> str:
    detail = f": {clean(notification.detail)}" if notification.detail else ""
    attempt = f" (attempt {notification.attempt})" if notification.attempt else ""
    by = f" {notification.silence_id}" if notification.silence_id else ""
    subject = "".join(f" {clean(part)}" for part in (notification.component, notification.job_id) if part)
    where = notification.destination or notification.receiver
    message = f"{notification.alert}{subject} {notification.reason}{by} to {where}"
    return f"{message}: {notification.outcome}{attempt}{detail}"


def drill_line(drill: Drill) -> str:
    if drill.result is None:
        until = f"until {drill.ends_at[:19]}Z, expects {clean(drill.expects)}"
        return f"drill started by {clean(drill.author)}, {until} [{drill.drill_id}]"
    why = f": {' '.join(map(clean, drill.reasons))}" if drill.reasons else ""
    return f"drill {clean(drill.result)}{why} [{drill.drill_id}]"


def annotation_line(annotation: Annotation) -> str:
    by = f" by {clean(annotation.author)}" if annotation.author else ""
    planned = ", planned" if annotation.planned else ""
    return f"note{by}{planned}: {clean(annotation.reason)} [{annotation.episode_id}]"


def evidence_line(evidence: Evidence) -> str:
    where = f" in {evidence.file}" if evidence.file else ""
    detail = f": {clean(evidence.detail)}" if evidence.detail else ""
    return f"evidence: {evidence_outcome(evidence)}{where}{detail}"


def evidence_outcome(evidence: Evidence) -> str:
    """The piece of evidence, the process it is about, and what became of it."""
    return f"{evidence.kind} of {clean(evidence.subject) or '?'}: {evidence.outcome}"


def move(before: str | None, after: str | None) -> str:
    """The previous and the next leader, each by `host:port`."""
    before, after = clean(before or "?"), clean(after or "?")
    return f"{before} → {after}" if before != after else f"{after}, with a new session id"


class Moved(Protocol):
    """A failover: a record, or a view of it."""

    @property
    def before_address(self) -> str | None: ...
    @property
    def before_pod(self) -> str | None: ...
    @property
    def after_address(self) -> str | None: ...
    @property
    def after_pod(self) -> str | None: ...


def moved(episode: Moved) -> str:
    """From whom to whom, with the names of pods."""
    return move(spelled(episode.before_address, episode.before_pod), spelled(episode.after_address, episode.after_pod))


_MEBIBYTE: Final = 1 << 20

ENDINGS: Final = {
    "oom_killed": "was OOM-killed",
    "heap_exhausted": "ran out of Java heap",
    "killed": "was killed",
    "stopped": "was stopped in order",
    "exited": "exited",
    "evicted": "was evicted by the kubelet",
    "liveness_probe": "was killed by its liveness probe",
    "drained": "was drained from its node",
    "preempted": "was preempted by another pod",
    "node_lost": "was lost with its node",
    "replaced": "was replaced",
    "deleted": "was deleted",
    "disk_full": "ran out of disk space",
    "rebooted": "ended with its machine, which was restarted",
    "unknown": "ended, and what ended it is not known",
}
"""The phrases for how a JobManager ended, by the reason of its death."""
OUTCOMES: Final = {
    "running": "runs again",
    "missing": "is missing",
    "resurrected": "had ended, and runs again",
    "ended": "ended",
    "unproven": "not known whether it runs",
}
"""The phrases for what became of a job, by the outcome of its recovery."""
MOST_NAMED: Final = 5
"""TaskManagers in a line."""


def death_line(death: Death | DeathVerdict) -> str:
    """`JobManager jm-a was OOM-killed (exit 137, limit 1600 MiB)`."""
    who = death.pod or spelled(death.address, None)
    details = [
        *([] if death.exit_code is None else [f"exit {death.exit_code}"]),
        *(
            [f"limit {death.limit_bytes // _MEBIBYTE} MiB"]
            if death.limit_bytes and death.reason == "oom_killed"
            else []
        ),
        *(["not sure"] if death.confidence == "medium" else []),
    ]
    more = f" ({', '.join(details)})" if details else ""
    return f"JobManager {clean(who)} {ENDINGS.get(death.reason, clean(death.reason))}{more}"


def succession_line(death: DeathVerdict, after: str | None, waited: str) -> str:
    """`death_line` and the next leader: `…; jm-b took over after 0.5 s`. `after`: the next leader's pod or `host:port`; None: there is
    none. `waited`: how long there was no leader; empty: not known.
    """
    if after is None:
        return death_line(death)
    who = f"{clean(after)} took over" if after != (death.pod or spelled(death.address, None)) else "it led again"
    return f"{death_line(death)}; {who}{f' after {waited}' if waited else ''}"


def recovery_line(recovery: Recovery) -> str:
    """The verdict about the cluster with its reasons, or what became of one job."""
    return f"recovery: {cluster_line(recovery)}" if recovery.job_id is None else job_line(recovery)


def cluster_line(recovery: Recovery) -> str:
    """`recovered, all jobs run after 12 s, 3 of 3 TaskManagers registered again`; otherwise why not."""
    after = recovery.running_after_seconds
    ran = "" if after is None else f"all jobs run after {seconds(micros(after))}"
    line = ", ".join(filter(None, [clean(recovery.verdict), ran, task_managers_line(recovery)]))
    return f"{line}: {' '.join(_reasons(recovery.reasons))}" if recovery.reasons else line


def task_managers_line(recovery: Recovery) -> str:
    """How many TaskManagers registered with the new leader, and which did not. Empty: not known, or there were none."""
    before, after = recovery.task_managers_before, recovery.task_managers_after
    if after is None or not before:
        return ""
    missing = list(recovery.task_managers_missing)
    more = before - after - len(missing[:MOST_NAMED])
    names = [*map(clean, missing[:MOST_NAMED]), *([f"{more} more"] if more > 0 else [])]
    which = f" (not {', '.join(names)})" if missing else ""
    return f"{after} of {before} TaskManagers registered again{which}"


def job_line(job: Recovery) -> str:
    """`job orders (ff595cc2): runs again after 12 s, restored from its latest checkpoint 41, 3.2 s of work done again`."""
    return f"job {clean(job.name or '')} ({clean((job.job_id or '')[:8])}): {', '.join(_job_parts(job))}"


def _job_parts(job: Recovery) -> Iterator[str]:
    state = f" ({clean(job.state)})" if job.state and job.state != "RUNNING" else ""
    after = "" if job.running_after_seconds is None else f" after {seconds(micros(job.running_after_seconds))}"
    yield f"{OUTCOMES.get(job.outcome or 'unproven', clean(job.outcome))}{state}{after}"
    if job.restored_from:
        yield f"restored from {restored_from(job)}"
    if job.reprocessed_seconds is not None:
        yield f"{seconds(micros(job.reprocessed_seconds))} of work done again"
    if job.restarts:
        yield f"restarted {counted(job.restarts, 'time')}"
    if job.outcome == "unproven":
        yield from _reasons(job.reasons)


def _reasons(reasons: Sequence[str]) -> Iterator[str]:
    return (clean(reason, MOST_OF_A_REASON) for reason in reasons)


def restored_from(job: Recovery) -> str:
    """`its latest checkpoint 41`, `checkpoint 39, 2 checkpoints before its latest`, `savepoint 7`, `nothing`."""
    number = "" if job.checkpoint_id is None else f" {job.checkpoint_id}"
    match job.restored_from:
        case "latest":
            return f"its latest checkpoint{number}"
        case "older":
            behind = job.checkpoints_behind
            older = "older than" if behind is None else f"{counted(behind, 'checkpoint')} before"
            return f"checkpoint{number}, {older} its latest"
        case "savepoint":
            return f"savepoint{number}"
        case _:
            return "nothing"


_LINES: Final[Mapping[type[AnyRecord], Callable[[Any], str]]] = {
    TransitionRecord: transition_line,
    EpisodeRecord: episode_line,
    Contention: contention_line,
    Notification: notification_line,
    Coverage: coverage_line,
    Annotation: annotation_line,
    Evidence: evidence_line,
    Death: lambda death: f"{death_line(death)} [{death.episode_id}]",
    Recovery: lambda recovery: f"{recovery_line(recovery)} [{recovery.episode_id}]",
    StatusRecord: status_line,
    HaCheck: ha_check_line,
    Drill: drill_line,
}
"""How a record of each type is shown in one line."""
