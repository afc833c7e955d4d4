"""What records say of deaths and recoveries, in the state of a replayed cluster: there are no pictures of Flink's REST server in them."""

from msgspec.structs import replace

from sidecar.core.cluster.draft import Happened
from sidecar.core.cluster.records.record_reader import bad_restore_of, death_of
from sidecar.core.cluster.recovery import compared_pictures
from sidecar.core.cluster.recovery.recovery_state import KEPT, MOST_ROWS, Assessed, Fault, JobFault
from sidecar.core.cluster.recovery.recovery_tables import FAULTS, LISTED_AGAIN, Outcome
from sidecar.core.cluster.state import ClusterState
from sidecar.core.moment import Moment, parsed
from sidecar.core.pictures import ENDED
from sidecar.core.records import Death, Recovery


def with_death(cluster: ClusterState, record: Death) -> ClusterState:
    """The cluster, whose failover has the recorded verdict."""
    last = cluster.last_episode
    if last is None or last.id != record.episode_id:
        return cluster
    return replace(cluster, last_episode=replace(last, death=death_of(record)))


def with_recovery(
    cluster: ClusterState, record: Recovery, at: Moment, *, left_out: bool
) -> tuple[ClusterState, Recovery | Happened]:
    """The cluster after one row, and the input of the rules. `left_out`: the failover was planned, and fires nothing."""
    assessment, job_id = cluster.assessed, record.job_id
    if job_id is None:
        wall = parsed(record.led_at) if record.led_at else None
        led_at = None if wall is None else Moment(wall, wall)
        return replace(cluster, assessed=Assessed(record.episode_id, at, (record,), led_at=led_at)), record
    if assessment is None or assessment.episode_id != record.episode_id:
        return cluster, record  # the row of the cluster comes first, and is not among the records
    if len(assessment.rows) <= MOST_ROWS:
        assessment = replace(assessment, rows=(*assessment.rows, record))
    if left_out:
        return replace(cluster, assessed=assessment), record
    if _is_waited_for(record) and job_id not in cluster.job_faults:
        assessment = replace(assessment, waiting={**assessment.waiting, job_id: record.name or ""})
    cluster = replace(cluster, assessed=assessment, job_faults=_job_faults(cluster, job_id, record, at))
    return cluster, bad_restore_of(record) or record


def _job_faults(cluster: ClusterState, job_id: str, record: Recovery, at: Moment) -> dict[str, JobFault]:
    """The faults of jobs after the row of one of them."""
    faults = dict(cluster.job_faults)
    before = faults.get(job_id)
    if fault := FAULTS.get(record.outcome or ""):
        if before is None or before.fault is not Fault.DELETED:
            faults[job_id] = JobFault(fault, before.since if before else at, record.episode_id, record.name or "")
    elif record.outcome == Outcome.RUNNING.value:
        faults.pop(job_id, None)
    return faults


def _is_waited_for(record: Recovery) -> bool:
    """Whether the job is to run, and was not seen running."""
    unproven = record.outcome == Outcome.UNPROVEN.value and record.state not in ENDED
    return unproven and LISTED_AGAIN not in record.reasons


def observed(cluster: ClusterState, now: Moment) -> ClusterState:
    """The cluster without what is over: a failover that follows is assessed anew, and a day later nothing is waited for."""
    assessed, episode = cluster.assessed, cluster.episode
    if assessed and assessed.waiting and episode and episode.id != assessed.episode_id:
        cluster = replace(cluster, assessed=replace(assessed, waiting={}))
    return compared_pictures.without_old_faults(cluster, now)


def forgets_at(cluster: ClusterState) -> int | None:
    """When the next fault is a day old."""
    times = [fault.since.steady for fault in cluster.job_faults.values()]
    if cluster.assessed and cluster.assessed.waiting:
        times.append(cluster.assessed.at.steady)
    return min(times) + KEPT if times else None
