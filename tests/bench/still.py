"""How long a JobManager stands still for a thread dump, by its own log: a part of `tests.bench.evidence`."""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sidecar.host import processes
from sidecar.sinks.evidence import thread_dumps
from tests.bench.stage import Table
from tests.kit.waiting import wait_for
from tests.lab import rest
from tests.lab.flink import Lab
from tests.lab.managers import JobManager

DUMPS = 30
"""Of each kind."""
_DUMP_SECONDS = 10.0
_PAUSE_SECONDS = 0.1
_ATTEMPTS = 10
_SAFEPOINT = re.compile(r'\[(\d+)ns\] Safepoint "(\w+)".* Total: +(\d+) ns')
_OF_DUMPS = {"PrintThreads", "PrintJNI", "FindDeadlocks", "ThreadDump"}


class Logging(JobManager):
    """Logs how long its JVM stood still, and when, on the clock of `time.monotonic_ns`."""

    @property
    def safepoints(self) -> Path:
        return self.log.with_suffix(".safepoints")

    def build_command(self) -> Sequence[str]:
        java, *options = super().build_command()
        return (java, f"-Xlog:safepoint:file={self.safepoints}:timenanos:filecount=0", *options)


class LoggingLab(Lab):
    """Its JobManagers do."""

    def _new_jobmanager(self) -> JobManager:
        jobmanager = Logging(f"jobmanager-{len(self.jobmanagers) + 1}", self.folder, self._home, self._java)
        self.jobmanagers.append(jobmanager)
        self._processes.append(jobmanager)
        return jobmanager


class Still(NamedTuple):
    """One thread dump: what the JVM did for it, and how long whoever asked waited, in ms; and what it was, in kB."""

    stood: float
    safepoints: tuple[str, ...]
    waited: float
    kilobytes: float


def print_stills(lab: Lab) -> None:
    """A table for the JobManager that leads. The two ways take turns, so that whatever else happens on the machine happens to both."""
    leader = lab.wait_for_leader()
    assert isinstance(leader, Logging)
    ways = {"the sidecar's own": lambda: _attached(leader), "Flink's REST": lambda: _by_rest(leader)}
    stills_of: dict[str, list[Still]] = {way: [] for way in ways}
    for _ in range(DUMPS):
        for way, dump in ways.items():
            stills_of[way].append(_alone(leader, dump))
    table = Table(
        "a thread dump", "of", "JVM stands still, p50 ms", "max ms", "waited for, p50 ms", "kB", "safepoints of one"
    )
    for way, stills in stills_of.items():
        waited, last = median(still.waited for still in stills), stills[-1]
        more = f"{waited:.1f}", f"{last.kilobytes:.0f}", ", ".join(last.safepoints)
        row(table, way, [still.stood for still in stills], *more)
    table.end()
    own, flinks = (median(each.stood for each in stills_of[way]) for way in ways)
    fresh = lab.add_jobmanager()
    first, second = (_seconds(lambda: _attached(fresh)) * 1000 for _ in range(2))
    threads, used = processes.status(leader.pid)["Threads"], _heap_mib(leader)
    print(
        f"Flink's: {flinks / own:.1f} times as long. The JVM has {threads} threads, and {used:.0f} MiB of heap in use"
    )
    print(f"the sidecar's own, of a JVM that was never asked before: {first:.0f} ms, then {second:.0f} ms\n")


def _alone(jobmanager: Logging, dump: Callable[[], str]) -> Still:
    """One during which nobody else asked: sidecars of other tests may see this JVM."""
    for _ in range(_ATTEMPTS):
        still = _measured(jobmanager, dump)
        if len({*still.safepoints}) == len(still.safepoints):
            return still
    raise AssertionError(f"somebody else asks {jobmanager.name} for its threads all the time")


def _measured(jobmanager: Logging, dump: Callable[[], str]) -> Still:
    began = time.monotonic_ns()
    text = dump()
    ended = time.monotonic_ns()
    time.sleep(_PAUSE_SECONDS)  # the log is written behind the answer
    logged = [_SAFEPOINT.match(line) for line in jobmanager.safepoints.read_text().splitlines()]
    of_it = [
        (found[2], int(found[3]) / 1e6)
        for found in logged
        if found and found[2] in _OF_DUMPS and began <= int(found[1]) <= ended + _PAUSE_SECONDS * 1e9
    ]
    assert of_it, "the JVM did not stand still for a thread dump, or its log cannot be read"
    names, milliseconds = zip(*of_it, strict=True)
    return Still(sum(milliseconds), names, (ended - began) / 1e6, len(text.encode()) / 1000)


def _attached(jobmanager: JobManager) -> str:
    (process,) = (each for each in processes.find(()) if each.pid == jobmanager.pid)
    return thread_dumps.thread_dump(process, _DUMP_SECONDS)


def _by_rest(jobmanager: JobManager) -> str:
    answer = rest.call(jobmanager.rest_address, "GET", "/jobmanager/thread-dump", timeout=_DUMP_SECONDS)
    return "\n".join(thread["stringifiedThreadInfo"] for thread in answer["threadInfos"])


def _heap_mib(jobmanager: JobManager) -> float:
    """In use. Flink begins to look when it is first asked."""
    url = f"{jobmanager.rest_address}/jobmanager/metrics?get=Status.JVM.Memory.Heap.Used"

    def used() -> list[dict[str, Any]]:
        with urllib.request.urlopen(url, timeout=_DUMP_SECONDS) as answer:
            found: list[dict[str, Any]] = json.loads(answer.read())
        return found

    (metric,) = wait_for("Flink's own metrics", used)
    return float(metric["value"]) / 2**20


def _seconds(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def row(table: Table, what: str, values: Sequence[float], *more: object) -> None:
    """How many, their median, and the largest."""
    table.row(what, len(values), f"{median(values):.2f}", f"{max(values):.2f}", *more)
