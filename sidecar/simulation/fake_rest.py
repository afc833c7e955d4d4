"""A simulated REST server of Flink, and the pictures that are taken of it."""

from collections.abc import Iterator
from typing import Final

from sidecar.core.moment import Moment
from sidecar.core.observations import PictureTaken
from sidecar.core.pictures import Checkpoint, Checkpoints, Job, Picture, Restored
from sidecar.core.reach import Reach
from sidecar.settings.rule_tests import JobAct, ScenarioEvent
from sidecar.simulation.job_ids import job_id

_STATES: Final = {JobAct.RESTARTING: "RESTARTING", JobAct.FAILED: "FAILED"}
_A_TERM: Final = 10
"""Checkpoints that a job completes under one leader."""


class SimulatedRest:
    """The REST server of one cluster. It is not asked until a test says something of it, and describes nothing until that is a job."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._acts: dict[str, JobAct] = {}
        self._terms: dict[str, int] = {}
        """How many leaders a job has had."""
        self._started: dict[str, int] = {}
        self._speaks = False
        self._reach: Reach | None = None

    def apply(self, event: ScenarioEvent, at: Moment) -> None:
        """Apply an event to the jobs."""
        for job in event.submitted:
            self._acts[job] = JobAct.RUNNING
        for job in (who for who in event.leader if isinstance(who, str)):
            self._terms[job] = self._terms.get(job, 0) + 1
            self._started[job] = at.wall
        for job in event.ended:
            self._acts.pop(job, None)
        for job, act in event.jobs.items():
            if act is JobAct.RUNNING and self._acts.get(job) in _STATES:
                self._started[job] = at.wall
        self._acts |= event.jobs
        self._speaks = self._speaks or bool(event.jobs)
        self._reach = event.rest or self._reach or (Reach.ANSWERS if event.jobs else None)

    def pictured(self, address: str, at: Moment) -> Iterator[PictureTaken]:
        """The picture of now, as the leader at `address` describes it, or that it does not."""
        if self._reach is None:
            return
        if self._reach is not Reach.ANSWERS or not self._speaks:
            yield PictureTaken(at, self._cluster_id, address, None, "no description", self._reach)
        else:
            jobs = tuple(self._job(name, act, at) for name, act in self._acts.items() if act is not JobAct.MISSING)
            yield PictureTaken(at, self._cluster_id, address, Picture(at.wall, address, jobs))

    def _job(self, name: str, act: JobAct, at: Moment) -> Job:
        state, term = _STATES.get(act, "RUNNING"), self._terms.get(name, 1)
        started, tasks = self._started.get(name, at.wall), int(state == "RUNNING")
        last = (term - 1) * _A_TERM
        restored = None if act is JobAct.FROM_NOTHING or term == 1 else last - (act is JobAct.FROM_OLDER)
        completed = tuple(Checkpoint(number, at.wall, at.wall) for number in (last + _A_TERM - 1, last + _A_TERM))
        origin = None if restored is None else Restored(restored)
        checkpoints = Checkpoints(at.wall + 1, completed, origin, last + 1)  # asked for after the jobs
        return Job(job_id(name), name, state, started, started, tasks, 1, checkpoints)
