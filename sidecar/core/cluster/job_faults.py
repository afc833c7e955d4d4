"""Jobs that are missing, resurrected or not running yet: for how long that is said."""

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster import plans
from sidecar.core.cluster.recovery_state import KEPT, MOST_ROWS, Fault, JobFault
from sidecar.core.cluster.state import ClusterState
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import Moment
from sidecar.core.pictures import ENDED, Picture
from sidecar.core.sanitize import clean


class _Shown:
    """What a picture shows. Each job that runs is at most one of those that were waited for."""

    def __init__(self, picture: Picture, namesakes: Iterable[str]) -> None:
        """`namesakes`: jobs that were there beside those that are waited for, and whose name says nothing."""
        self.states = {job.id: job.state for job in picture.jobs}
        self.taken = set(namesakes)
        self._running = {job.id for job in picture.jobs if job.is_running}
        self._by_name = defaultdict[str, list[str]](list)
        for job in picture.jobs:
            if job.is_running and job.id not in self.taken:
                self._by_name[clean(job.name)].append(job.id)

    def has_ended(self, job_id: str) -> bool:
        return self.states.get(job_id) in ENDED

    def is_back(self, job_id: str, name: str | None) -> bool:
        """Whether the job runs, by its id, or somebody has submitted it again under its name."""
        if job_id in self._running:
            return True
        again = None if name is None else self._by_name.get(name)
        if again:
            self.taken.add(again.pop(0))
            return True
        return False


def with_picture(cluster: ClusterState, picture: Picture) -> ClusterState:
    """The cluster without the faults, and without waiting for the jobs, that this picture shows to be over."""
    assessed, faults = cluster.assessed, dict(cluster.job_faults)
    waiting = dict(assessed.waiting) if assessed else {}
    if not waiting and not faults:
        return cluster
    shown = _Shown(picture, assessed.namesakes if assessed else ())
    for job_id, name in sorted(waiting.items()):
        if shown.is_back(job_id, name) or shown.has_ended(job_id):
            del waiting[job_id]
    for job_id, known in sorted(faults.items()):
        if known.fault is Fault.RESURRECTED:
            is_over = shown.has_ended(job_id) or job_id not in shown.states
        else:
            is_over = shown.is_back(job_id, known.name)
        if is_over:
            del faults[job_id]
    if len(faults) < len(cluster.job_faults):
        cluster = replace(cluster, job_faults=faults)
    if assessed:
        after = replace(assessed, waiting=waiting, namesakes=tuple(sorted(shown.taken)[:MOST_ROWS]))
        cluster = cluster if after == assessed else replace(cluster, assessed=after)
    return cluster


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
