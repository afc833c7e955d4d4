"""What really happens to a Flink cluster, noted by the program that makes it happen: who leads, what runs, what ended."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from msgspec import Struct

from tests.lab import rest
from tests.lab.flink import Lab
from tests.lab.managers import JobManager
from tests.lab.rest import RestError

SAMPLE_SECONDS: Final = 0.4
_ASK_SECONDS: Final = 1.0
_TURNS: Final = 4
_TURNS_SECONDS: Final = 15.0


class Sample(Struct, frozen=True):
    """The cluster at one moment. `at` is in seconds since the epoch; what cannot be read is None."""

    at: float
    leader: str | None
    """`host:port` of the JobManager that leads according to the store, and whose process lives."""
    running: int | None
    """Jobs of which every task runs, by the REST server of the leader."""
    task_managers: int | None
    store: bool = True
    """Whether the store is there: without it nobody can say who leads."""


def take_turns(samples: Sequence[Sample]) -> bool:
    """Whether two JobManagers replace each other again and again, as those of Flink 1.20 do after some outages of ZooKeeper."""
    led = [(sample.at, sample.leader) for sample in samples if sample.leader]
    changes = [at for (_, before), (at, after) in pairwise(led) if before != after]
    return any(last - first <= _TURNS_SECONDS for first, last in zip(changes, changes[_TURNS - 1 :], strict=False))


class End(Struct, frozen=True):
    """A JobManager's process that ended."""

    at: float
    addresses: tuple[str, ...]
    """`host:port` of RPC and REST."""
    code: int | None
    """The exit code, 128 and more: by a signal. None: not known."""
    by: str
    """What ended it: the true reasons of its death, by BY. Empty: it ended itself, and why is the scenario's to say."""


class Truth:
    """Notes of a lab, by a thread of its own, from `start` to `stop`."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._samples: list[Sample] = []
        self._ends: list[End] = []
        self._living: dict[str, tuple[int, tuple[str, ...]]] = {}
        """The pid and the addresses of those that ran when they were last looked at, by name."""
        self._by: dict[str, str] = {}
        """What the caller of `ending` does to a JobManager, by its name."""
        self._lock = threading.Lock()
        """Held while ends are noted."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="truth", daemon=True)
        self.store = True
        """Whether the store is there. Who takes it away says so."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. May be called twice."""
        self._stopping.set()
        self._thread.join(6 * _ASK_SECONDS)

    def between(self, begin: float, end: float) -> Sequence[Sample]:
        """The samples from `begin` to `end`, both in seconds since the epoch."""
        return [sample for sample in self._samples if begin <= sample.at <= end]

    def ends(self, begin: float, end: float) -> Sequence[End]:
        """The processes that ended between these moments."""
        return [one for one in self._ends if begin <= one.at <= end]

    @property
    def latest(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    @contextmanager
    def ending(self, by: str, *managers: JobManager) -> Iterator[None]:
        """Those of these that end while the block lasts were ended by its caller, also where the sampler notes it first."""
        self.notes_ends()
        self._by |= {manager.name: by for manager in managers}
        yield
        self.notes_ends()
        self._by = {}

    def notes_ends(self) -> None:
        """Note those that ended since the last look."""
        with self._lock:
            for manager in self._lab.jobmanagers:
                before, runs = self._living.get(manager.name), manager.running
                if before and (not runs or manager.pid != before[0]):
                    code = None if runs else manager.wait(0)
                    code = 128 - code if code and code < 0 else code
                    self._ends.append(End(time.time(), before[1], code, self._by.get(manager.name, "")))
                    del self._living[manager.name]
                if runs:
                    addresses = place(manager), f"{manager.host}:{manager.rest_port}"
                    self._living[manager.name] = manager.pid, addresses

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_SECONDS):
            self.notes_ends()
            at, store = time.time(), self.store
            leader = self._lab.leading()
            running, workers = _of_rest(leader) if leader and not leader.paused else (None, None)
            self._samples.append(Sample(at, place(leader) if leader else None, running, workers, store and self.store))


def place(manager: JobManager) -> str:
    """As the sidecar names it: by host and RPC port."""
    return f"{manager.host}:{manager.rpc_port}"


def _of_rest(leader: JobManager) -> tuple[int | None, int | None]:
    """How many jobs run whole, and how many TaskManagers are registered."""
    try:
        jobs = rest.call(leader.rest_address, "GET", "/jobs/overview", timeout=_ASK_SECONDS)["jobs"]
        workers = rest.call(leader.rest_address, "GET", "/taskmanagers", timeout=_ASK_SECONDS)["taskmanagers"]
    except (RestError, KeyError):
        return None, None
    whole = [job for job in jobs if job["state"] == "RUNNING" and job["tasks"]["running"] == job["tasks"]["total"] > 0]
    return len(whole), len(workers)
