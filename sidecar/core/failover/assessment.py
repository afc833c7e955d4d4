"""Whether everything came back after a failover: jobs, their state and the TaskManagers, compared with the last picture before it.

The assessment begins when an episode opens, and outlives it. It ends when all is proven, when the patience is over, or with the next
failover. `recovery_judge` decides what is proven. See docs/explanation/recovery.md.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import ClusterStep, Happened
from sidecar.core.failover import deaths, plans
from sidecar.core.failover.compared_pictures import LISTED_TIMES, compared, remembered, with_picture, without_old_faults
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.recovery_judge import JobRuling, Judgement, Workers, judgement, recovery_rows, task_managers
from sidecar.core.failover.recovery_state import (
    MOST_ROWS,
    Assessed,
    Assessment,
    BadRestore,
    Fault,
    JobFault,
    is_left_out,
)
from sidecar.core.failover.recovery_tables import FAULTS, JobCase, Origin, Outcome, is_older, runs
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component, ComponentId, Held
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import FailoverAnnotated, PictureTaken
from sidecar.core.pictures import ENDED, Picture
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.records import Recovery
from sidecar.core.sanitize import clean

LISTED_FOR: Final = 30 * SECOND
"""How long the new leader must have led, and listed its jobs, until one that it does not list is missing."""
_DISPATCHER: Final = ComponentId(Component.DISPATCHER)


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: PictureTaken) -> ClusterStep:
    """The cluster after `observation`, and what is to be recorded of it."""
    picture, assessment = observation.picture, cluster.recovery
    if picture is None or Source.FLINK_REST not in policy.evidence:
        return cluster, []
    if assessment is None:
        if cluster.episode:  # its assessment begins with the next tick, or there was no picture before it
            return cluster, []
        return with_picture(remembered(cluster, picture), picture), []
    cluster = _with_leaders(cluster, assessment)
    assessment = cluster.recovery
    assert assessment  # noqa: S101  as before
    led_at, before = assessment.led_at, cluster.picture
    if led_at is None or before is None or picture.left_out or _is_earlier(cluster, picture, led_at):
        return cluster, []
    cluster = compared(cluster, assessment, before, picture)
    return _judged(policy, cluster_id, cluster, observation.at)


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster when time has passed: an assessment begins, or is over."""
    cluster = without_old_faults(cluster, now)
    if Source.FLINK_REST not in policy.evidence:
        return without_rest(cluster), []
    if cluster.recovery and cluster.picture is None:  # what the journal has of it is damaged
        cluster = replace(cluster, recovery=None, recovering={})
    happened: list[Happened] = []
    episode = cluster.episode
    if cluster.recovery and episode and episode.id != cluster.recovery.episode_id:
        cluster, happened = _ended(policy, cluster_id, cluster, now)
    if plans.is_unwanted(cluster.operated):
        return (replace(cluster, recovery=None, recovering={}) if cluster.recovery else cluster), happened
    if cluster.recovery is None:
        if episode and cluster.picture and not is_judged(cluster, episode):
            left_out, session_id = is_left_out(episode.facts), episode.before.session_id
            recovery = Assessment(episode.id, episode.opened_at, session_id, left_out=left_out)
            cluster = replace(cluster, recovery=recovery, recovering={}, picture_kept=cluster.picture)
        return cluster, happened
    cluster = _with_leaders(cluster, cluster.recovery)
    if _waits_for_nothing(policy, cluster, now):
        cluster, more = _judged(policy, cluster_id, cluster, now)
        happened += more
    return cluster, happened


def _waits_for_nothing(policy: Policy, cluster: ClusterState, now: Moment) -> bool:
    """Whether no picture can tell more: the patience is over, or the previous one was left out."""
    assessment, before = cluster.recovery, cluster.picture
    if assessment is None:
        return False
    has_no_picture = before is not None and before.left_out and assessment.led_at is not None
    return has_no_picture or _is_patience_over(policy, cluster, assessment, now)


def without_rest(cluster: ClusterState) -> ClusterState:
    """The cluster without what Flink's REST server said, if it is not asked any more: nothing would end it."""
    waiting_for = cluster.assessed.waiting if cluster.assessed else {}
    faults = {job_id: fault for job_id, fault in cluster.job_faults.items() if fault.fault is not Fault.RESURRECTED}
    resurrected = len(cluster.job_faults) - len(faults)
    asked = cluster.picture_request or cluster.rest_server
    if not (cluster.recovery or cluster.picture or asked or waiting_for or resurrected):
        return cluster
    return replace(
        cluster,
        recovery=None,
        recovering={},
        picture=None,
        picture_kept=None,
        picture_now=None,
        picture_request=None,
        rest_server=None,
        assessed=replace(cluster.assessed, waiting={}) if cluster.assessed and waiting_for else cluster.assessed,
        job_faults=faults if resurrected else cluster.job_faults,
    )


def asked_first(cluster: ClusterState) -> tuple[str, ...] | None:
    """The jobs whose checkpoints the assessment in progress needs; None: no failover is assessed, or only later checkpoints are missing."""
    if cluster.recovery is None or (cluster.picture and cluster.picture.left_out):
        return None
    jobs = [after for after in cluster.recovering.values() if after.state not in ENDED]
    if cluster.recovery.pictures == LISTED_TIMES and not waiting(cluster) and all(after.read_at for after in jobs):
        return None
    return tuple(after.id for after in jobs if after.checkpointed_at is None)


def judged(policy: Policy, cluster: ClusterState, now: Moment) -> Judgement | None:
    """The current judgement of the recovery that is assessed. None: none is."""
    assessment, before = cluster.recovery, cluster.picture
    if assessment is None or before is None:
        return None
    led_for = now.steady - assessment.led_at.steady if assessment.led_at else None
    return judgement(
        _cases(cluster, assessment, before, led_for),
        before.jobs_beyond,
        task_managers(
            Workers(before.task_managers, before.task_managers_beyond),
            Workers(assessment.task_managers, assessment.task_managers_beyond),
            led_for,
        ),
        answered=assessment.first_at is not None,
        patience_over=_is_patience_over(policy, cluster, assessment, now),
        left_out=before.left_out,
    )


def current_rows(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> tuple[Recovery, ...]:
    """The rows that would be recorded if the assessment in progress ended now; those of the last one if none is in progress."""
    verdict, assessment = judged(policy, cluster, now), cluster.recovery
    if verdict is None or assessment is None:
        return cluster.assessed.rows if cluster.assessed else ()
    return recovery_rows(policy, cluster_id, assessment, verdict, dead_at(cluster, assessment), now)


def dead_at(cluster: ClusterState, assessment: Assessment) -> int | None:
    """When the previous leader ended (wall microseconds). None: not known."""
    episode = cluster.failover(assessment.episode_id)
    death = deaths.death_of(cluster, episode) if episode else None
    return death.ended_at if death else None


def waiting(cluster: ClusterState) -> dict[str, str]:
    """The jobs that were not seen running since the cluster has a leader again, and their names by id. Not those that are missing."""
    assessment, before = cluster.recovery, cluster.picture
    if assessment is None or before is None:
        return dict(cluster.assessed.waiting) if cluster.assessed else {}
    if assessment.led_at is None or assessment.left_out:
        return {}
    faults = cluster.job_faults
    return {
        job.id: job.name
        for job in before.jobs
        if job.state not in ENDED
        and job.id not in faults
        and not ((after := cluster.recovering.get(job.id)) and after.state in ENDED)
        and not runs(job, after, same_leader=_is_same_leader(assessment))
    }


def is_judged(cluster: ClusterState, episode: Episode) -> bool:
    """Whether the recovery from this failover was judged."""
    last = cluster.assessed
    return last is not None and last.episode_id == episode.id and bool(last.rows)


def handed_over(cluster: ClusterState, now: Moment) -> Assessed | None:
    """The jobs still waited for, and the namesakes of these and of missing ones. None: there are none."""
    led, jobs = led_since(cluster), waiting(cluster)
    if led is None or not (jobs or cluster.job_faults):
        return None
    first = {job_id: clean(name) for job_id, name in sorted(jobs.items())[:MOST_ROWS]}
    return Assessed(led[1], now, (), first, led[0], _namesakes(cluster, first))


def _namesakes(cluster: ClusterState, absent: Mapping[str, str]) -> tuple[str, ...]:
    """The jobs that are there with the name of one of these, or of one that is missing."""
    pictures = [picture for picture in (cluster.picture, cluster.picture_now) if picture]
    names = {clean(name) for name in absent.values()} | {fault.name for fault in cluster.job_faults.values()}
    alike = {job.id for picture in pictures for job in picture.jobs if clean(job.name) in names}
    return tuple(sorted(alike - absent.keys() - cluster.job_faults.keys())[:MOST_ROWS])


def _is_same_leader(assessment: Assessment) -> bool:
    return assessment.session_id == assessment.left_session


def led_since(cluster: ClusterState) -> tuple[Moment, str] | None:
    """Since when all components have a leader after the failover that is, or was last, assessed; and its id. None: they have none."""
    last = cluster.recovery or cluster.assessed
    return (last.led_at, last.episode_id) if last and last.led_at else None


def _with_leaders(cluster: ClusterState, assessment: Assessment) -> ClusterState:
    """The cluster, whose assessment knows since when it is led, and by whom."""
    own = [cluster.components[component] for component in CLUSTER_COMPONENTS]
    dispatcher = cluster.components[_DISPATCHER]
    episode = cluster.episode
    if episode and is_left_out(episode.facts) is not assessment.left_out:
        assessment = replace(assessment, left_out=not assessment.left_out)
    if isinstance(dispatcher.leadership, Held) and all(isinstance(state.leadership, Held) for state in own):
        session, led_at = dispatcher.leadership.leader.session_id, max(state.since for state in own)
        if session != assessment.session_id:
            assessment = Assessment(
                *(assessment.episode_id, assessment.opened_at, assessment.left_session, assessment.left_out),
                *(session, led_at, dispatcher.since),
                annotated_at=assessment.annotated_at,
            )
            return replace(cluster, recovery=assessment, recovering={})
        if assessment.led_at and led_at > assessment.led_at:
            assessment = replace(assessment, led_at=led_at)
    return cluster if assessment is cluster.recovery else replace(cluster, recovery=assessment)


def _is_earlier(cluster: ClusterState, picture: Picture, led_at: Moment) -> bool:
    """Whether it was taken before all components were led. The wall clock may have been set since."""
    request = cluster.picture_request
    return picture.at < led_at.wall if request is None else request.at < led_at.steady


def _cases(cluster: ClusterState, assessment: Assessment, before: Picture, led_for: int | None) -> list[JobCase]:
    stored = cluster.stored_jobs
    died = dead_at(cluster, assessment)
    complete = assessment.pictures >= LISTED_TIMES and led_for is not None and led_for >= LISTED_FOR
    return [
        JobCase(
            job,
            cluster.recovering.get(job.id),
            same_leader=_is_same_leader(assessment),
            complete=complete,
            stored=job.id in stored or not cluster.is_in_sight,
            lost=job.id in cluster.job_faults,
            intended=assessment.left_out,
            starting=assessment.starting,
            anew=assessment.anew,
            foreign=assessment.foreign,
            dead_at=died,
            dead_by=_dead_by(assessment, died),
        )
        for job in before.jobs
    ]


def _dead_by(assessment: Assessment, died: int | None) -> int:
    """When the previous leader had ended at the latest. The kubelet says when in whole seconds."""
    if died is None:
        return assessment.opened_at.wall
    return died if died % SECOND else died + SECOND


def _judged(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster after what is known was judged; its assessment ends if nothing more can be known, or the patience is over."""
    verdict, assessment = judged(policy, cluster, now), cluster.recovery
    assert verdict and assessment  # noqa: S101, PT018  the callers checked
    happened: list[Happened] = []
    if not assessment.left_out:
        cluster, happened = _with_faults(cluster_id, cluster, assessment, verdict.jobs, now)
    goes_on = verdict.open or cluster.episode is not None  # its next failover belongs to it
    if goes_on and not _is_patience_over(policy, cluster, assessment, now):
        return cluster, happened
    cluster, more = _ended(policy, cluster_id, cluster, now)
    return cluster, [*happened, *more]


def _is_patience_over(policy: Policy, cluster: ClusterState, assessment: Assessment, now: Moment) -> bool:
    """A failover may be over although a component cannot be read, so that it is never known that all of them are led."""
    since = assessment.led_at or (assessment.opened_at if cluster.episode is None else now)
    return now.steady - since.steady >= policy.recovery_patience


def _with_faults(
    cluster_id: str, cluster: ClusterState, assessment: Assessment, jobs: Iterable[JobRuling], now: Moment
) -> tuple[ClusterState, list[Happened]]:
    """The cluster with its jobs that are missing or resurrected, and the jobs that were not restored from their latest checkpoint."""
    faults, recovering = dict(cluster.job_faults), dict(cluster.recovering)
    happened: list[Happened] = []
    for job in jobs:
        job_id = job.case.before.id
        if fault := _fault(job, faults.get(job_id), assessment, now):
            faults[job_id] = fault
        else:
            faults.pop(job_id, None)
        if bad_restore := _bad_restore(cluster_id, job, assessment):
            recovering[job_id] = replace(recovering[job_id], reported=True)
            happened.append(bad_restore)
    if happened:
        cluster = replace(cluster, recovering=recovering, recovery=replace(assessment, reported_at=now.wall))
    return (cluster if faults == cluster.job_faults else replace(cluster, job_faults=faults)), happened


def _fault(job: JobRuling, before: JobFault | None, assessment: Assessment, now: Moment) -> JobFault | None:
    fault = FAULTS.get(job.outcome or "")
    if fault is None:
        return None if job.outcome is Outcome.RUNNING else before
    if before and (before.fault is Fault.DELETED or (before.fault is fault and before.name is not None)):
        return before
    return JobFault(fault, before.since if before else now, assessment.episode_id, clean(job.case.before.name))


def _bad_restore(cluster_id: str, job: JobRuling, assessment: Assessment) -> BadRestore | None:
    """The report that the job was not restored from its latest checkpoint. None: it was, or this was reported already."""
    before, after = job.case.before, job.case.after
    is_bad = job.origin is Origin.NOTHING or (job.origin is not None and is_older(job.case))
    if after is None or after.reported or not is_bad:
        return None
    origin = "nothing" if job.origin is Origin.NOTHING else "older"
    return BadRestore(cluster_id, before.id, clean(before.name), origin, assessment.episode_id, job.reasons[-1])


def _ended(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> tuple[ClusterState, list[Happened]]:
    """The cluster after its assessment, and the records of it. What did not come back is still expected at the next failover."""
    verdict, assessment, before = judged(policy, cluster, now), cluster.recovery, cluster.picture
    assert verdict and assessment and before  # noqa: S101, PT018  the callers checked
    rows = recovery_rows(policy, cluster_id, assessment, verdict, dead_at(cluster, assessment), now)
    picture = expected(cluster)
    absent = waiting(cluster)
    kept, namesakes = rows[: MOST_ROWS + 1], _namesakes(cluster, absent)
    accepted = is_accepted(cluster, assessment)
    assessed = Assessed(assessment.episode_id, now, kept, absent, assessment.led_at, namesakes, accepted)
    cluster = without_losses(cluster, assessment.episode_id, assessment.annotated_at or 0)
    return replace(
        cluster,
        recovery=None,
        recovering={},
        assessed=assessed,
        picture=picture,
        picture_kept=picture,
        picture_now=None,
    ), list(rows)


def expected(cluster: ClusterState) -> Picture | None:
    """The last picture, with the jobs from before the failover that did not come back yet: at the next failover they are still expected."""
    before, now = cluster.picture, cluster.picture_now
    if before is None or now is None:
        return before
    absent = cluster.recovering.keys() | {job.id for job in now.jobs} | cluster.job_faults.keys()
    return replace(
        now, jobs=(*now.jobs, *(job for job in before.jobs if job.id not in absent and job.state not in ENDED))
    )


def annotated(cluster: ClusterState, note: FailoverAnnotated) -> ClusterState:
    """The cluster after one of its failovers was annotated, also if that is observed again; the same object if nothing is accepted."""
    recovery, assessed = cluster.recovery, cluster.assessed
    if recovery and recovery.episode_id == note.episode_id:
        if recovery.annotated_at is not None and note.noted_at <= recovery.annotated_at:
            return cluster
        return replace(cluster, recovery=replace(recovery, annotated_at=note.noted_at))
    if assessed and assessed.episode_id == note.episode_id and not assessed.accepted:
        cluster = replace(cluster, assessed=replace(assessed, accepted=note.noted_at >= assessed.at.wall))
    return without_losses(cluster, note.episode_id, note.noted_at)


def without_losses(cluster: ClusterState, episode_id: str, until: int) -> ClusterState:
    """The cluster without the jobs whose loss in this failover was known at `until` (wall)."""
    faults = {
        job_id: fault
        for job_id, fault in cluster.job_faults.items()
        if fault.episode_id != episode_id or fault.since.wall > until
    }
    return cluster if len(faults) == len(cluster.job_faults) else replace(cluster, job_faults=faults)


def is_accepted(cluster: ClusterState, recovery: Assessment) -> bool:
    """Whether everything that is known to be lost in the failover whose recovery is assessed is accepted: something is."""
    losses = [fault.since.wall for fault in cluster.job_faults.values() if fault.episode_id == recovery.episode_id]
    if recovery.reported_at is not None:
        losses.append(recovery.reported_at)
    return recovery.annotated_at is not None and bool(losses) and recovery.annotated_at >= max(losses)
