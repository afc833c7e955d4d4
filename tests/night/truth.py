"""What really happens to a Flink cluster, sampled by the program that makes it happen: who leads, which jobs run, who works."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from sidecar.lab import rest
from sidecar.lab.flink import Lab
from sidecar.lab.managers import JobManager
from sidecar.lab.rest import RestError

SAMPLE_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 2.0


class Sample(Struct, frozen=True):
    """The cluster at one moment. `at` is in seconds since the epoch; what cannot be read is None."""

    at: float
    leader: str | None
    """The name of the JobManager that leads according to the store, and whose process lives."""
    running: int | None
    """Jobs of which every task runs, by the REST server of the leader."""
    task_managers: int | None


class Truth:
    """Samples of a lab, by a thread of its own, from `start` to `stop`. Every job that `Lab.submit_job` submitted is expected to run."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._samples: list[Sample] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="truth", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. May be called twice."""
        self._stopping.set()
        self._thread.join(4 * _ASK_SECONDS)

    def between(self, begin: float, end: float) -> Sequence[Sample]:
        """The samples from `begin` to `end`, both in seconds since the epoch."""
        return [sample for sample in self._samples if begin <= sample.at <= end]

    @property
    def latest(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            leader = self._lab.leading()
            running, workers = _of_rest(leader) if leader and not leader.paused else (None, None)
            self._samples.append(Sample(time.time(), leader.name if leader else None, running, workers))


def _of_rest(leader: JobManager) -> tuple[int | None, int | None]:
    """How many jobs run whole, and how many TaskManagers are registered."""
    try:
        jobs = rest.call(leader.rest_address, "GET", "/jobs/overview", timeout=_ASK_SECONDS)["jobs"]
        workers = rest.call(leader.rest_address, "GET", "/taskmanagers", timeout=_ASK_SECONDS)["taskmanagers"]
    except (RestError, KeyError):
        return None, None
    whole = [job for job in jobs if job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"] > 0]
    return len(whole), len(workers)
