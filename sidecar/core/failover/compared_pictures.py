"""Pictures of Flink's REST server: which one is remembered, and which job of one is which job of another."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import plans
from sidecar.core.failover.recovery_state import KEPT, MOST_ROWS, Assessment, Fault, JobAfter, JobFault
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pictures import ENDED, OLDEST, Checkpoints, Job, Picture
from sidecar.core.sanitize import clean

KEPT_EVERY: Final = 60 * SECOND
"""How old the picture in the journal may be, if its jobs are the same."""
_SUBMITTED: Final = "SingleJobApplication("
LISTED_TIMES: Final = 3
"""Complete pictures by the new leader, until a job that they do not list is missing."""
CONTRADICTED: Final = 60 * SECOND
"""How long a picture is kept that has jobs which newer ones lack, though Flink's store still has them: those may be of a leader that has
just been elected."""


def remembered(cluster: ClusterState, picture: Picture) -> ClusterState:
    """The cluster with its last good picture."""
    before = cluster.picture
    if before and 0 <= before.at - picture.at < OLDEST:
        return cluster
    if before and abs(picture.at - before.at) < CONTRADICTED and not picture.left_out:
        listed = {job.id for job in picture.jobs}
        stored = cluster.stored_jobs
        if any(job.id in stored and job.id not in listed for job in before.jobs if job.state not in ENDED):
            return cluster
    picture = merged(before, picture)
    kept = cluster.picture_kept
    is_old = kept is None or abs(picture.at - kept.at) >= KEPT_EVERY or _states(kept) != _states(picture)
    return replace(cluster, picture=picture, picture_kept=picture if is_old else kept)


def merged(before: Picture | None, picture: Picture) -> Picture:
    """The picture, with what an earlier one knew of checkpoints."""
    jobs = {job.id: job for job in before.jobs} if before else {}
    return replace(picture, jobs=tuple(_merged(jobs.get(job.id), job) for job in picture.jobs))


def _merged(earlier: Job | None, job: Job) -> Job:
    """Thousands of jobs stay as they were: then it is the same object."""
    if earlier is None:
        return job
    later = replace(job, checkpoints=_checkpoints(earlier.checkpoints, job.checkpoints))
    return earlier if later == earlier else later


def _checkpoints(before: Checkpoints | None, now: Checkpoints | None) -> Checkpoints | None:
    """A JobMaster that has just begun knows no completed one. Where ids went back, nothing is known."""
    if before is None or now is None:
        return now or before
    if before.latest is None or now.read_at == before.read_at:
        return now
    if now.latest is None:
        went_back = now.restored is not None and not now.restored.is_savepoint and now.restored.id < before.latest.id
        return None if went_back else replace(now, completed=before.completed)
    return None if now.latest.id < before.latest.id else now


def _states(picture: Picture) -> set[tuple[str, str]]:
    return {(job.id, job.state) for job in picture.jobs}


def runs_main(picture: Picture) -> bool:
    """Whether an application runs whose `main()` Flink executes anew after a failover (2.3): its jobs then get other ids. A job that
    somebody submits is an application of its own, which does not.
    """
    return any(not name.startswith(_SUBMITTED) for name, state in picture.applications or () if state not in ENDED)


def matched(before: Iterable[Job], now: Sequence[Job], *, by_name: bool) -> dict[str, Job]:
    """The jobs of now by the ids that they had before: the same job; else, if `by_name`, the first one of that name with an id that was not
    there before.
    """
    before = [*before]
    by_id = {job.id: job for job in now}
    pairs = {job.id: by_id[job.id] for job in before if job.id in by_id}
    if not by_name:
        return pairs
    others: defaultdict[str, list[Job]] = defaultdict(list)
    for job in sorted(now, key=lambda job: job.started_at, reverse=True):
        if job.id not in pairs:
            others[job.name].append(job)
    for job in sorted(before, key=lambda job: job.started_at):
        if job.id not in pairs and job.state not in ENDED and others[job.name]:
            pairs[job.id] = others[job.name].pop()
    return pairs


def job_after(earlier: JobAfter | None, job: Job, at: int, led_at: int) -> JobAfter:
    """The known state of a job after it was listed at `at`: the same object if nothing is new."""
    after = _with_checkpoints(_listed(earlier, job, at), job.checkpoints, led_at)
    return earlier if earlier is not None and after == earlier else after


def _listed(earlier: JobAfter | None, job: Job, at: int) -> JobAfter:
    if earlier is None or earlier.started_at != job.started_at or earlier.id != job.id:
        earlier = JobAfter(job.id, job.state, job.started_at)
    return replace(
        earlier,
        state=job.state,
        tasks=(job.running_tasks, job.total_tasks),
        running_at=earlier.running_at or (at if job.is_running else None),
        restarts=earlier.restarts if job.restarts is None else job.restarts,
    )


def _with_checkpoints(after: JobAfter, checkpoints: Checkpoints | None, led_at: int) -> JobAfter:
    # The first ones are carried over from before.
    if checkpoints is None or checkpoints.read_at < led_at or not checkpoints.restored_known:
        return after
    restored = after.restored or checkpoints.restored
    first = [done.ended_at for done in checkpoints.completed if restored is None or done.id > restored.id]
    is_confirmed = after.read_at and after.running_at and after.read_at > after.running_at
    return replace(
        after,
        read_at=after.read_at if is_confirmed else checkpoints.read_at,
        enabled=checkpoints.enabled,
        restored=restored,
        first_id=after.first_id if after.first_id is not None else checkpoints.first_id,
        checkpointed_at=after.checkpointed_at or min(first, default=None),
    )


def compared(cluster: ClusterState, assessment: Assessment, before: Picture, picture: Picture) -> ClusterState:
    """The cluster after a picture by the new leader."""
    assert assessment.led_at  # noqa: S101  the caller checked
    pairs = matched(before.jobs, picture.jobs, by_name=runs_main(before) or runs_main(picture))
    after = replace(
        assessment,
        pictures=min(assessment.pictures + (picture.jobs_beyond == 0), LISTED_TIMES),
        first_at=assessment.first_at or picture.at,
        **_workers(picture),
        starting=_is_starting(picture),
        anew=any(job.id != job_id for job_id, job in pairs.items()),
        foreign=not pairs and _is_foreign(cluster, before, picture),
    )
    jobs = {
        job_id: job_after(cluster.recovering.get(job_id), job, picture.at, assessment.led_at.wall)
        for job_id, job in pairs.items()
    }
    recovering = {job_id: jobs[job_id] for job_id in {**cluster.recovering, **jobs} if job_id in jobs}
    return replace(
        cluster,
        recovery=assessment if after == assessment else after,
        recovering=cluster.recovering if recovering == cluster.recovering else recovering,
        picture_now=merged(cluster.picture_now or before, picture),
    )


def _is_starting(picture: Picture) -> bool:
    """Whether an application runs that has submitted no job yet."""
    running = sum(1 for job in picture.jobs if job.state not in ENDED)
    return sum(1 for _, state in picture.applications or () if state not in ENDED) > running


def _is_foreign(cluster: ClusterState, before: Picture, picture: Picture) -> bool:
    """Whether the picture, which has none of the jobs from before the failover, has none that the store knows."""
    return bool(before.jobs and picture.jobs) and cluster.stored_jobs.isdisjoint(job.id for job in picture.jobs)


def _workers(picture: Picture) -> dict[str, Any]:
    """The fields of an assessment that the picture's TaskManagers determine. Empty: those of an earlier picture stand."""
    if picture.task_managers is None:
        return {}
    return {"task_managers": picture.task_managers, "task_managers_beyond": picture.task_managers_beyond}


class _PicturedJobs:
    """The jobs in a picture. Each running job is at most one of those that were waited for."""

    def __init__(self, picture: Picture, namesakes: Iterable[str]) -> None:
        """`namesakes`: jobs that were there beside those that are waited for, and whose name says nothing."""
        self.states = {job.id: job.state for job in picture.jobs}
        self.namesakes = set(namesakes)
        self._running = {job.id for job in picture.jobs if job.is_running}
        self._by_name = defaultdict[str, list[str]](list)
        for job in picture.jobs:
            if job.is_running and job.id not in self.namesakes:
                self._by_name[clean(job.name)].append(job.id)

    def has_ended(self, job_id: str) -> bool:
        return self.states.get(job_id) in ENDED

    def is_back(self, job_id: str, name: str | None) -> bool:
        """Whether the job runs, by its id, or somebody has submitted it again under its name."""
        if job_id in self._running:
            return True
        again = None if name is None else self._by_name.get(name)
        if again:
            self.namesakes.add(again.pop(0))
            return True
        return False


def with_picture(cluster: ClusterState, picture: Picture) -> ClusterState:
    """The cluster without the faults, and without waiting for the jobs, that this picture shows to be over."""
    assessed, faults = cluster.assessed, dict(cluster.job_faults)
    waiting = dict(assessed.waiting) if assessed else {}
    if not waiting and not faults:
        return cluster
    pictured = _PicturedJobs(picture, assessed.namesakes if assessed else ())
    for job_id, name in sorted(waiting.items()):
        if pictured.is_back(job_id, name) or pictured.has_ended(job_id):
            del waiting[job_id]
    for job_id, fault in sorted(faults.items()):
        if fault.fault is Fault.RESURRECTED:
            is_over = pictured.has_ended(job_id) or job_id not in pictured.states
        else:
            is_over = pictured.is_back(job_id, fault.name)
        if is_over:
            del faults[job_id]
    if len(faults) < len(cluster.job_faults):
        cluster = replace(cluster, job_faults=faults)
    if assessed:
        after = replace(assessed, waiting=waiting, namesakes=tuple(sorted(pictured.namesakes)[:MOST_ROWS]))
        cluster = cluster if after == assessed else replace(cluster, assessed=after)
    return cluster


def without_old_faults(cluster: ClusterState, now: Moment) -> ClusterState:
    """The cluster without faults of jobs that have a leader again, or that are a day old."""
    assessed = cluster.assessed
    if assessed and assessed.waiting and now.steady - assessed.at.steady >= KEPT:
        cluster = replace(cluster, assessed=replace(assessed, waiting={}))
    faults = {
        job_id: fault for job_id, fault in cluster.job_faults.items() if not _is_over(cluster, job_id, fault, now)
    }
    return cluster if len(faults) == len(cluster.job_faults) else replace(cluster, job_faults=faults)


def _is_over(cluster: ClusterState, job_id: str, fault: JobFault, now: Moment) -> bool:
    if now.steady - fault.since.steady >= KEPT or plans.is_unwanted(cluster.operated):
        return True
    job = cluster.components.get(ComponentId(Component.JOB, job_id))
    led = job is not None and isinstance(job.leadership, Held) and job.since > fault.since
    return fault.fault is not Fault.RESURRECTED and led
