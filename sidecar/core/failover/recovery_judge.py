"""The verdict about a recovery: of each job, of the TaskManagers, of the whole failover; and what is recorded of it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypedDict

from msgspec import Struct

from sidecar.core.cluster.draft import Envelope, envelope
from sidecar.core.counted import counted, listed
from sidecar.core.failover.recovery_state import Assessment
from sidecar.core.failover.recovery_tables import (
    ORIGINS,
    OUTCOMES,
    JobCase,
    Origin,
    Outcome,
    Ruling,
    checkpoints_behind,
    decided,
    is_older,
    reprocessed,
)
from sidecar.core.moment import SECOND, Moment, Timestamp, in_seconds, timestamp
from sidecar.core.pictures import ENDED, MOST_JOBS, NOT_HELD, TaskManager
from sidecar.core.policy.policy import Policy
from sidecar.core.records import Recovery, record_id
from sidecar.core.sanitize import clean

REGISTERED_WITHIN: Final = 60 * SECOND
"""How long after the new leader's election its TaskManagers are waited for."""
MOST_REASONS: Final = 20
_MOST_SPELLED: Final = 5
MOST_NAMED: Final = 100
"""TaskManagers that are named."""


class Grade(StrEnum):
    """The verdict about a failover."""

    RECOVERED = "recovered"
    DEGRADED = "degraded"
    LOST = "lost"
    UNPROVEN = "unproven"


class JobRuling(Struct, frozen=True):
    """The recovery of one job, as far as it is known."""

    case: JobCase
    outcome: Outcome | None
    """None: not known yet."""
    origin: Origin | None
    behind: int | None
    reprocessed: int | None
    reasons: tuple[str, ...]
    grade: Grade
    open: bool
    """Whether more may be known later."""


def job_ruling(case: JobCase) -> JobRuling:
    _, outcome = decided(OUTCOMES, case)
    ran = outcome.answer is Outcome.RUNNING
    origin = decided(ORIGINS, case)[1] if ran else Ruling(None)
    rulings, after = (outcome, origin), case.after
    awaits_checkpoint = bool(ran and after and after.enabled and not case.continued and after.checkpointed_at is None)
    return JobRuling(
        case,
        Outcome(outcome.answer) if outcome.answer else None,
        Origin(origin.answer) if origin.answer else None,
        checkpoints_behind(case) if origin.answer in {Origin.OLDER, Origin.SAVEPOINT} and is_older(case) else None,
        reprocessed(case) if ran else None,
        tuple(ruling.reason for ruling in rulings if ruling.reason),
        _grade(outcome, origin),
        outcome.open or origin.open or awaits_checkpoint,
    )


def _grade(outcome: Ruling, origin: Ruling) -> Grade:
    """The contribution of one job to the verdict."""
    if outcome.answer is Outcome.MISSING or origin.answer is Origin.NOTHING:
        return Grade.LOST
    if outcome.answer is None or (origin.answer is None and origin.reason):
        return Grade.UNPROVEN
    return Grade.DEGRADED if outcome.reason or origin.reason else Grade.RECOVERED


class Registered(NamedTuple):
    """The TaskManagers. None: not known."""

    before: int | None
    after: int | None
    missing: tuple[str, ...]
    reason: str
    grade: Grade
    open: bool


class Workers(NamedTuple):
    """The TaskManagers of a picture."""

    listed: Sequence[TaskManager] | None = None
    """None: not read."""
    beyond: int = 0
    """How many more TaskManagers there are that `listed` leaves out."""

    @property
    def total(self) -> int | None:
        return None if self.listed is None else len(self.listed) + self.beyond


def task_managers(before: Workers, after: Workers, led_for: int | None) -> Registered:
    """The TaskManagers that registered with the new leader. One that was restarted has another id: it stands for one that is missing."""
    expected, there = before.total, after.total
    if not before.listed or not expected:
        return Registered(expected, there, (), "", Grade.RECOVERED, open=False)
    if after.listed is None or there is None:
        reason = "Which TaskManagers registered is not known."
        return Registered(expected, None, (), reason, Grade.UNPROVEN, open=True)
    if there >= expected:
        return Registered(expected, there, (), "", Grade.RECOVERED, open=False)
    ids = {task_manager.id for task_manager in after.listed}
    missing = (
        ()
        if after.beyond
        else tuple(clean(task_manager.id) for task_manager in before.listed if task_manager.id not in ids)
    )
    reason = "No TaskManager has registered with the new leader."
    if there:
        names = f", missing: {listed(missing, _MOST_SPELLED)}" if missing else ""
        reason = f"{there} of {expected} TaskManagers registered with the new leader{names}."
    waits = led_for is None or led_for < REGISTERED_WITHIN
    grade = Grade.UNPROVEN if waits else Grade.DEGRADED
    return Registered(expected, there, missing[:MOST_NAMED], reason, grade, open=waits)


class Judgement(Struct, frozen=True):
    """The verdict about a recovery, as far as it is known."""

    grade: Grade
    reasons: tuple[str, ...]
    jobs: tuple[JobRuling, ...]
    registered: Registered
    open: bool
    """Whether more may be known later."""

    @property
    def expected(self) -> list[JobRuling]:
        """The jobs that are to run: not those that had ended."""
        return [job for job in self.jobs if job.case.before.state not in ENDED]

    @property
    def running(self) -> list[JobRuling]:
        return [job for job in self.expected if job.outcome is Outcome.RUNNING]


_WORST_FIRST: Final = (Grade.LOST, Grade.DEGRADED, Grade.UNPROVEN, Grade.RECOVERED)


def judgement(
    cases: Sequence[JobCase],
    beyond: int,
    registered: Registered,
    *,
    answered: bool,
    patience_over: bool,
    left_out: bool = False,
) -> Judgement:
    """The verdict about a failover. `beyond`: jobs that were not assessed; `answered`: whether the new leader's REST server did;
    `left_out`: whether the picture from before the failover was.
    """
    jobs = tuple(map(job_ruling, cases))
    grades = [registered.grade, *(_final(job) if patience_over else job.grade for job in jobs)]
    worst_first = sorted(jobs, key=lambda job: _WORST_FIRST.index(job.grade))
    reasons = [f"Job {clean(job.case.before.name)}: {reason}" for job in worst_first for reason in job.reasons]
    if registered.reason:
        reasons.append(registered.reason)
    if left_out:
        grades.append(Grade.UNPROVEN)
        reasons.append(f"What ran before ({counted(beyond, 'job')}) was left out of the pictures: {NOT_HELD}.")
    elif beyond:
        grades.append(Grade.UNPROVEN)
        reasons.append(f"{counted(beyond, 'more job')} could not be assessed.")
    if not answered and not left_out:
        grades.append(Grade.UNPROVEN)
        reasons.insert(0, "The new leader's REST server has not described the cluster.")
    worst = min(grades, key=_WORST_FIRST.index)
    more = len(reasons) - MOST_REASONS
    shown_reasons = (*reasons[:MOST_REASONS], *([f"… and {more} more."] if more > 0 else []))
    is_open = not answered or registered.open or any(job.open for job in jobs)
    return Judgement(worst, shown_reasons, jobs, registered, is_open and not left_out)


def _final(job: JobRuling) -> Grade:
    """The grade at the end of the patience: a job that Flink lists and that does not run counts as degraded."""
    after = job.case.after
    is_down = job.outcome is None and after is not None and not job.case.continued and not job.case.foreign
    return Grade.DEGRADED if is_down else job.grade


_URGENCY: Final = (Outcome.MISSING, None, Outcome.RESURRECTED, Outcome.RUNNING, Outcome.ENDED)


class _Stages(TypedDict):
    """The fields that all rows of one failover share."""

    episode_id: str
    verdict: str
    dead_at: Timestamp | None
    opened_at: Timestamp
    led_at: Timestamp | None
    dispatcher_led_at: Timestamp | None


def recovery_rows(
    policy: Policy, cluster_id: str, assessment: Assessment, verdict: Judgement, dead_at: int | None, now: Moment
) -> tuple[Recovery, ...]:
    led_at = assessment.led_at.wall if assessment.led_at else None
    stages = _Stages(
        episode_id=assessment.episode_id,
        verdict=verdict.grade.value,
        dead_at=_optional_timestamp(dead_at),
        opened_at=timestamp(assessment.opened_at.wall),
        led_at=_optional_timestamp(led_at),
        dispatcher_led_at=_optional_timestamp(
            assessment.dispatcher_led_at.wall if assessment.dispatcher_led_at else None
        ),
    )
    # A leader that withdraws in order ends after the loss of its leadership was observed.
    began = min(at for at in (assessment.opened_at.wall, dead_at) if at is not None)
    written = envelope(policy, cluster_id, now)
    jobs = sorted(verdict.jobs, key=lambda job: (_URGENCY.index(job.outcome), not job.reasons))[:MOST_JOBS]
    return (
        _cluster_row(verdict, stages, began, led_at, written),
        *(_job_row(job, stages, began, led_at, written) for job in jobs),
    )


def _cluster_row(verdict: Judgement, stages: _Stages, began: int, led_at: int | None, written: Envelope) -> Recovery:
    running = [job.case.after.ran_at(led_at) for job in verdict.running if job.case.after]
    running_at = max((at for at in running if at), default=None) if len(running) == len(verdict.expected) else None
    checkpointed = [
        job.case.after.checkpointed_at for job in verdict.running if job.case.after and job.case.after.enabled
    ]
    times = [at for at in checkpointed if at is not None]
    registered = verdict.registered
    return Recovery(
        id=record_id("recovery", written["cluster_id"], written["observer"], stages["episode_id"]),
        reasons=list(verdict.reasons),
        job_id=None,
        name=None,
        state=None,
        outcome=None,
        task_managers_before=registered.before,
        task_managers_after=registered.after,
        task_managers_missing=list(registered.missing),
        running_at=_optional_timestamp(running_at),
        checkpointed_at=_optional_timestamp(max(times))
        if times and len(times) == len(checkpointed) and running_at
        else None,
        running_after_seconds=_seconds_after(began, running_at),
        **stages,
        **written,
    )


def _job_row(job: JobRuling, stages: _Stages, began: int, led_at: int | None, written: Envelope) -> Recovery:
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
        running_at=_optional_timestamp(running_at),
        checkpointed_at=_optional_timestamp(after.checkpointed_at if after and ran else None),
        running_after_seconds=_seconds_after(began, running_at),
        **stages,
        **written,
    )


def _optional_timestamp(wall: int | None) -> Timestamp | None:
    return None if wall is None else timestamp(wall)


def _seconds_after(began: int, at: int | None) -> float | None:
    return None if at is None else max(0.0, in_seconds(at - began))
