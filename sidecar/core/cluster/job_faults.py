"""Jobs that are missing, resurrected or not running yet: for how long that is said."""

from msgspec.structs import replace

from sidecar.core.cluster import plans
from sidecar.core.cluster.recovery_state import KEPT, Fault, JobFault
from sidecar.core.cluster.state import ClusterState
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import Moment
from sidecar.core.pictures import ENDED, Picture
from sidecar.core.sanitize import clean


def heard(cluster: ClusterState, picture: Picture) -> ClusterState:
    """The cluster without the faults, and without waiting for the jobs, that this picture shows to be over."""
    assessed = cluster.assessed
    if assessed and assessed.waiting:
        left = {
            job_id: name
            for job_id, name in assessed.waiting.items()
            if not _is_back(job_id, name, picture) and not _has_ended(job_id, picture)
        }
        if len(left) < len(assessed.waiting):
            cluster = replace(cluster, assessed=replace(assessed, waiting=left))
    faults = {
        job_id: known
        for job_id, known in cluster.job_faults.items()
        if not (
            _is_back(job_id, known.name, picture)
            if known.fault is not Fault.RESURRECTED
            else _has_ended(job_id, picture) or not any(job.id == job_id for job in picture.jobs)
        )
    }
    return cluster if len(faults) == len(cluster.job_faults) else replace(cluster, job_faults=faults)


def _is_back(job_id: str, name: str | None, picture: Picture) -> bool:
    return any(job.is_running and (job.id == job_id or clean(job.name) == clean(name or "")) for job in picture.jobs)


def _has_ended(job_id: str, picture: Picture) -> bool:
    return any(job.id == job_id and job.state in ENDED for job in picture.jobs)


def without_old_faults(cluster: ClusterState, now: Moment) -> ClusterState:
    """The cluster without faults of jobs that have a leader again, or that are a day old."""
    assessed = cluster.assessed
    if assessed and assessed.waiting and now.steady - assessed.at.steady >= KEPT:
        cluster = replace(cluster, assessed=replace(assessed, waiting={}))
    left = {job_id: known for job_id, known in cluster.job_faults.items() if not _is_over(cluster, job_id, known, now)}
    return cluster if len(left) == len(cluster.job_faults) else replace(cluster, job_faults=left)


def _is_over(cluster: ClusterState, job_id: str, known: JobFault, now: Moment) -> bool:
    if now.steady - known.since.steady >= KEPT or plans.is_unwanted(cluster.operated):
        return True
    job = cluster.components.get(ComponentId(Component.JOB, job_id))
    led = job is not None and isinstance(job.leadership, Held) and job.since > known.since
    return known.fault is not Fault.RESURRECTED and led
