"""Records of what became of a failover: why the process died, and what came back."""

from typing import Any, Final

from sidecar.core.moment import SECOND, Timestamp, parsed, timestamp
from sidecar.core.records import Death, EpisodeRecord, Recovery, record_id
from tests.kit.cluster import THE_JOB

OTHER_JOB: Final = "0" * 31 + "1"
ALL_BACK: Final = "recovered"


def after(episode: EpisodeRecord, seconds: float) -> Timestamp:
    """So many seconds after the failover began."""
    return timestamp(parsed(episode.opened_at) + round(seconds * SECOND))


def death(episode: EpisodeRecord, **other: Any) -> Death:
    """The previous leader was OOM-killed 4 s before its leadership was lost."""
    fields: dict[str, Any] = {
        "reason": "oom_killed",
        "confidence": "high",
        "facts": ["Its container's state is OOMKilled, exit code 137, memory limit 1600 MiB."],
        "exit_code": 137,
        "limit_bytes": 1600 << 20,
        "ended_at": after(episode, -4),
        "seen_at": after(episode, -1.5),
        "address": episode.before_address,
        "pod": "jm-a-0",
        "fault": "java.lang.OutOfMemoryError: Java heap space",
    }
    return Death(**_envelope(episode, "death", other) | fields | other)


def recovery(episode: EpisodeRecord, job_id: str | None = None, **other: Any) -> Recovery:
    """The row of the cluster, in which everything came back after 14 s; or of a job that runs again."""
    of_job = {"name": "Enrich orders", "state": "RUNNING", "outcome": "running", "restored_from": "latest"}
    figures = {"checkpoint_id": 41, "checkpoints_behind": 0, "reprocessed_seconds": 3.2, "restarts": 0}
    of_cluster = {"task_managers_before": 3, "task_managers_after": 3}
    fields: dict[str, Any] = {
        "verdict": ALL_BACK,
        "reasons": [],
        **(dict.fromkeys(("name", "state", "outcome")) | of_cluster if job_id is None else of_job | figures),
        "dead_at": after(episode, -4),
        "opened_at": episode.opened_at,
        "led_at": episode.closed_at,
        "running_at": after(episode, 10),
        "checkpointed_at": after(episode, 12),
        "running_after_seconds": 14.0,
    }
    return Recovery(**_envelope(episode, f"recovery {job_id}", other), job_id=job_id, **fields | other)


def oom_with_a_lost_job(episode: EpisodeRecord) -> list[Death | Recovery]:
    """It was OOM-killed; one of two jobs runs again, the other one is missing, and so is one of three TaskManagers."""
    lost: dict[str, Any] = {"verdict": "lost", "reasons": ["The job Nightly report is missing."]}
    missing: dict[str, Any] = {"task_managers_after": 2, "task_managers_missing": ["flink-taskmanager-1-3"]}
    gone: dict[str, Any] = dict.fromkeys(
        ("state", "restored_from", "checkpoint_id", "checkpoints_behind", "reprocessed_seconds", "restarts")
    )
    never: dict[str, Any] = dict.fromkeys(("running_at", "checkpointed_at", "running_after_seconds"))
    return [
        death(episode),
        recovery(episode, **lost | missing | never),
        recovery(episode, THE_JOB.job_id, verdict="lost"),
        recovery(episode, OTHER_JOB, **lost | gone | never | {"name": "Nightly report", "outcome": "missing"}),
    ]


def _envelope(episode: EpisodeRecord, what: str, other: dict[str, Any]) -> dict[str, Any]:
    observer = other.pop("observer", episode.observer)
    return {
        "id": record_id(what, episode.id, observer),
        "cluster_id": episode.cluster_id,
        "external_labels": episode.external_labels,
        "store": episode.store,
        "observer": observer,
        "observed_at": after(episode, 20),
        "episode_id": episode.id,
    }
