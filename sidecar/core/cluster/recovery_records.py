"""What is recorded of a recovery: a row of the cluster, then one of each job, the worst first."""

from typing import Final, TypedDict

from sidecar.core.cluster.record_writer import Envelope, envelope
from sidecar.core.cluster.recovery_judge import JobRuling, Judgement, Registered
from sidecar.core.cluster.recovery_state import Assessment
from sidecar.core.cluster.recovery_tables import Outcome
from sidecar.core.moment import Moment, Timestamp, in_seconds, timestamp
from sidecar.core.pictures import ENDED, MOST_JOBS
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Recovery, record_id
from sidecar.core.sanitize import clean

_URGENCY: Final = (Outcome.MISSING, None, Outcome.RESURRECTED, Outcome.RUNNING, Outcome.ENDED)


class _Stages(TypedDict):
    """What the rows of one failover have in common."""

    episode_id: str
    verdict: str
    dead_at: Timestamp | None
    opened_at: Timestamp
    led_at: Timestamp | None
    dispatcher_led_at: Timestamp | None


def recovery_rows(
    policy: Policy, cluster_id: str, assessment: Assessment, found: Judgement, dead_at: int | None, now: Moment
) -> tuple[Recovery, ...]:
    """The rows."""
    led_at = assessment.led_at.wall if assessment.led_at else None
    stages = _Stages(
        episode_id=assessment.episode_id,
        verdict=found.grade.value,
        dead_at=_at(dead_at),
        opened_at=timestamp(assessment.opened_at.wall),
        led_at=_at(led_at),
        dispatcher_led_at=_at(assessment.dispatcher_led_at.wall if assessment.dispatcher_led_at else None),
    )
    # A leader that withdraws in order ends after the loss of its leadership was observed.
    began = min(at for at in (assessment.opened_at.wall, dead_at) if at is not None)
    written = envelope(policy, cluster_id, now)
    jobs = sorted(found.jobs, key=lambda job: (_URGENCY.index(job.outcome), not job.reasons))[:MOST_JOBS]
    return (
        _of_cluster(found, stages, began, led_at, written),
        *(_of_job(job, stages, began, led_at, written) for job in jobs),
    )


def _of_cluster(found: Judgement, stages: _Stages, began: int, led_at: int | None, written: Envelope) -> Recovery:
    running = [job.case.after.ran_at(led_at) for job in found.running if job.case.after]
    running_at = max((at for at in running if at), default=None) if len(running) == len(found.expected) else None
    checkpointed = [
        job.case.after.checkpointed_at for job in found.running if job.case.after and job.case.after.enabled
    ]
    known = [at for at in checkpointed if at is not None]
    registered: Registered = found.registered
    return Recovery(
        id=record_id("recovery", written["cluster_id"], written["observer"], stages["episode_id"]),
        reasons=list(found.reasons),
        job_id=None,
        name=None,
        state=None,
        outcome=None,
        task_managers_before=registered.before,
        task_managers_after=registered.after,
        task_managers_missing=list(registered.missing),
        running_at=_at(running_at),
        checkpointed_at=_at(max(known)) if known and len(known) == len(checkpointed) and running_at else None,
        running_after_seconds=_after(began, running_at),
        **stages,
        **written,
    )


def _of_job(job: JobRuling, stages: _Stages, began: int, led_at: int | None, written: Envelope) -> Recovery:
    before, after = job.case.before, job.case.after
    ran = after is not None and job.outcome in {Outcome.RUNNING, Outcome.RESURRECTED} and before.state not in ENDED
    running_at = after.ran_at(led_at) if after and ran else None
    restored = after.restored if after and ran and not job.case.continued else None
    return Recovery(
        id=record_id("recovery", written["cluster_id"], written["observer"], stages["episode_id"], before.id),
        reasons=list(job.reasons),
        job_id=before.id,
        name=clean(before.name),
        state=clean(after.state) if after else None,
        outcome=(job.outcome or Outcome.UNPROVEN).value,
        restored_from=job.origin.value if job.origin else None,
        checkpoint_id=restored.id if restored else None,
        checkpoints_behind=job.behind,
        reprocessed_seconds=None if job.reprocessed is None else in_seconds(job.reprocessed),
        restarts=after.restarts if after else None,
        running_at=_at(running_at),
        checkpointed_at=_at(after.checkpointed_at if after and ran else None),
        running_after_seconds=_after(began, running_at),
        **stages,
        **written,
    )


def _at(wall: int | None) -> Timestamp | None:
    return None if wall is None else timestamp(wall)


def _after(began: int, at: int | None) -> float | None:
    return None if at is None else max(0.0, in_seconds(at - began))
