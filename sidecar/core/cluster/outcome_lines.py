"""How a JobManager's process ended, and what came back, in words: one line for logs, messages, pages and terminals."""

from typing import Final

from sidecar.core.cluster.death_verdict import DeathVerdict
from sidecar.core.counted import counted
from sidecar.core.moment import SECOND, seconds
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


def succession_line(death: DeathVerdict, after: str | None, vacant_seconds: float | None) -> str:
    """The same, and who followed: `…; jm-b took over after 0.5 s`. `after`: the next leader's pod or `host:port`; None: there is none."""
    if after is None:
        return death_line(death)
    who = f"{clean(after)} took over" if after != (death.pod or spelled(death.address, None)) else "it led again"
    waited = "" if vacant_seconds is None else f" after {seconds(round(vacant_seconds * SECOND))}"
    return f"{death_line(death)}; {who}{waited}"


def recovery_line(recovery: Recovery) -> str:
    """The verdict about the cluster with its reasons, or what became of one job."""
    if recovery.job_id is None:
        why = f": {' '.join(map(clean, recovery.reasons))}" if recovery.reasons else ""
        return f"recovery {recovery.verdict}{why}"
    parts = [recovery.outcome or "unproven"]
    if recovery.running_after_seconds is not None:
        parts.append(f"after {seconds(round(recovery.running_after_seconds * SECOND))}")
    if recovery.restored_from:
        parts.append(f"restored from {restored_from(recovery)}")
    return f"job {clean(recovery.name or '')} ({clean(recovery.job_id, 8)}): {', '.join(parts)}"


def restored_from(recovery: Recovery) -> str:
    """`its latest checkpoint 41`, `checkpoint 39, 2 checkpoints before its latest`, `a savepoint`, `nothing`."""
    number = "" if recovery.checkpoint_id is None else f" {recovery.checkpoint_id}"
    match recovery.restored_from:
        case "latest":
            return f"its latest checkpoint{number}"
        case "older":
            behind = counted(recovery.checkpoints_behind or 0, "checkpoint")
            return f"checkpoint{number}, {behind} before its latest"
        case "savepoint":
            return f"savepoint{number}"
        case _:
            return "nothing"
