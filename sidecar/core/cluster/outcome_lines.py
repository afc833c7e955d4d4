"""How a JobManager's process ended, and what came back, in words: one line for logs, messages, pages and terminals."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from sidecar.core.cluster.death_verdict import DeathVerdict
from sidecar.core.cluster.recovery_tables import MOST_OF_A_REASON
from sidecar.core.counted import counted
from sidecar.core.moment import micros, seconds
from sidecar.core.pods import spelled
from sidecar.core.records import Death, Recovery
from sidecar.core.sanitize import clean

_MEBIBYTE: Final = 1 << 20

ENDINGS: Final = {
    "oom_killed": "was OOM-killed",
    "heap_exhausted": "ran out of Java heap",
    "killed": "was killed",
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
"""What a JobManager did, by the reason of its death."""
OUTCOMES: Final = {
    "running": "runs again",
    "missing": "is missing",
    "resurrected": "had ended, and runs again",
    "ended": "ended",
    "unproven": "not known whether it runs",
}
"""What a job did, by the outcome of its recovery."""
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


class Recovered(Protocol):
    """What came back of a whole cluster: a record, or a view of it."""

    @property
    def verdict(self) -> str: ...
    @property
    def reasons(self) -> Sequence[str]: ...
    @property
    def running_after_seconds(self) -> float | None: ...
    @property
    def task_managers_before(self) -> int | None: ...
    @property
    def task_managers_after(self) -> int | None: ...
    @property
    def task_managers_missing(self) -> Sequence[str]: ...


def succession_line(death: DeathVerdict, after: str | None, vacant_seconds: float | None) -> str:
    """The same, and who followed: `…; jm-b took over after 0.5 s`. `after`: the next leader's pod or `host:port`; None: there is none."""
    if after is None:
        return death_line(death)
    who = f"{clean(after)} took over" if after != (death.pod or spelled(death.address, None)) else "it led again"
    waited = "" if vacant_seconds is None else f" after {seconds(micros(vacant_seconds))}"
    return f"{death_line(death)}; {who}{waited}"


def recovery_line(recovery: Recovery) -> str:
    """The verdict about the cluster with its reasons, or what became of one job."""
    return f"recovery: {cluster_line(recovery)}" if recovery.job_id is None else job_line(recovery)


def cluster_line(recovery: Recovered) -> str:
    """`recovered, all jobs run after 12 s, 3 of 3 TaskManagers registered again`; otherwise why not."""
    after = recovery.running_after_seconds
    ran = "" if after is None else f"all jobs run after {seconds(micros(after))}"
    line = ", ".join(filter(None, [clean(recovery.verdict), ran, task_managers_line(recovery)]))
    return f"{line}: {' '.join(_reasons(recovery.reasons))}" if recovery.reasons else line


def task_managers_line(recovery: Recovered) -> str:
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
    return f"job {clean(job.name or '')} ({clean((job.job_id or '')[:8])}): {', '.join(_of_job(job))}"


def _of_job(job: Recovery) -> Iterator[str]:
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
