"""A real Flink cluster on a real API server, and who looks at it: what a fault is played on."""

import math
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import UUID

from msgspec import json

from tests.bench.apiserver import OpenKubernetes
from tests.bench.stage import Listener, is_running
from tests.bench.truth import Truth, Value, Who
from tests.kit.sidecar_process import COMMAND, Sidecar
from tests.kit.waiting import until
from tests.lab.flink import Lab
from tests.lab.managers import JobManager

DISPATCHER: Who = ("dispatcher", None)

_COMPONENTS = ("resource_manager", "dispatcher", "rest_server", "job")
_SIGHT = {"DISCOVERED", "OBSCURED"}
"""What is each observer's own."""
_START_SECONDS = 60.0
_SETTLE_SECONDS = 90.0
_RECOVERY_SECONDS = 30.0
_CONNECTING = re.compile(r"Connecting to ResourceManager (\S+?)\(([0-9a-f]{32})\)")


class Fault(NamedTuple):
    """When it began (monotonic), when the API server was back, and who led then."""

    at: float
    led: dict[Who, Value]
    jobmanagers: int
    back_at: float | None = None


class WatchLine(NamedTuple):
    """A line of `watch`, and when it was in hand (monotonic)."""

    at: float
    who: Who
    kind: str
    id: str
    reason: str | None
    before: str | None
    after: str | None


class Scene:
    """A cluster of two JobManagers, a TaskManager and a job, and who looks at it."""

    victim: JobManager
    """Who leads."""

    def __init__(self, lab: Lab, kubernetes: OpenKubernetes, folder: Path) -> None:
        self.lab = lab
        self.kubernetes = kubernetes
        self.truth = Truth(kubernetes.etcd.url, lab.cluster_id)
        self.restart_seconds = 4.0
        """How long the API server took to come back."""
        self._folder = folder
        self._absences: dict[str, list[tuple[float, float]]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.lab.start(jobmanagers=1)
            self.lab.add_jobmanager()
            self._job = self.lab.submit_job(wait_for_checkpoint=False)
            where = ("--flink-conf", str(self.lab.conf_dir))
            self._watch = Listener([*COMMAND, "watch", "--output", "json", *where], self._folder / "watch.log")
            stack.callback(self._watch.stop)
            flink_view = [*COMMAND, "watch", "--view", "flink", "--output", "json", *where]
            self._flink_view = Listener(flink_view, self._folder / "flink.log")
            stack.callback(self._flink_view.stop)
            self._sidecar = Sidecar(self._folder / "sidecar", f"flink_conf_dir: {self.lab.conf_dir}", [])
            self._sidecar.start()
            stack.callback(self._sidecar.stop)
            self._sidecar.wait_ready()
            everything = until(lambda: len(self._watch.lines) >= len(_COMPONENTS), _START_SECONDS)
            assert everything, "watch does not report all leaders"
            self._beside = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.close()

    # -- what happens --------------------------------------------------------------------------------------------------

    def stand_by(self) -> None:
        """A JobManager that leads, another one that does not, and everything at work.

        A new process has ports of its own: an address names one process for ever. Where the leaders are split, or the job does not go on
        (Flink 1.14 after an outage), all begins anew.
        """
        if not self._leads_alone() or not is_running(self.lab, self._job, _RECOVERY_SECONDS):
            for each in (self.lab.taskmanager, *self.running()):
                each.kill()
            self._note()
            self.lab.add_jobmanager()
            self.wait(self._leads_alone, _START_SECONDS)
            self.lab.taskmanager.start()
            if not is_running(self.lab, self._job, _RECOVERY_SECONDS):
                self._job = self.lab.submit_job(wait_for_checkpoint=False)
        while len(self.running()) < 2:
            self.lab.add_jobmanager()
        self.settle(3.0)
        self.victim = self.lab.wait_for_leader()

    def begin(self) -> Fault:
        """Now. What follows is the fault's."""
        now = time.monotonic()
        whose = {who: self.truth.led(who, now) for who in self.everybody()}
        self._note()
        return Fault(now, {who: value for who, value in whose.items() if value}, len(self.running()))

    def wait(self, condition: Callable[[], bool], seconds: float) -> None:
        def noted() -> bool:
            self._note()
            return condition()

        until(noted, seconds, 0.05)

    def settle(self, calm: float) -> None:
        """Until nothing has happened, and nothing was reported, for `calm` seconds."""
        began = time.monotonic()

        def is_calm() -> bool:
            lines = self._watch.lines[-1:]
            news = max(began, self.truth.news_at, *(at / 1e9 for at, _ in lines))
            return time.monotonic() - news >= calm

        self.wait(is_calm, _SETTLE_SECONDS)

    def another_leads(self, fault: Fault) -> bool:
        now = self.truth.led(DISPATCHER, time.monotonic())
        return now is not None and now.session != fault.led[DISPATCHER].session

    def _leads_alone(self) -> bool:
        """Whether one process that lives leads all of the cluster's components."""
        now = time.monotonic()
        values = [self.truth.led((component, None), now) for component in _COMPONENTS if component != "job"]
        living = [value for value in values if value and self.absent_since(value.address, now) is None]
        return len(living) == len(values) and len({self.process(value.address) for value in living}) == 1

    def running(self) -> list[JobManager]:
        return [jobmanager for jobmanager in self.lab.jobmanagers if jobmanager.running]

    def _note(self) -> None:
        """Who has ended or is frozen, and since when, and who goes on."""
        now = time.monotonic()
        for jobmanager in self.lab.jobmanagers:
            absences = self._absences.setdefault(jobmanager.name, [])
            absent = bool(absences) and absences[-1][1] == math.inf
            if jobmanager.running and not jobmanager.paused:
                if absent:
                    absences[-1] = (absences[-1][0], now)
            elif not absent:
                absences.append((now, math.inf))

    # -- who is who ----------------------------------------------------------------------------------------------------

    def everybody(self) -> list[Who]:
        return list(dict.fromkeys(who for stood in self.truth.history for who in stood.values))

    def process(self, address: str) -> str:
        for each in self.lab.jobmanagers:
            if re.search(rf"127\.0\.0\.1:({each.rpc_port}|{each.rest_port})(/|$)", address):
                return each.name
        return address

    def absences(self, address: str) -> list[tuple[float, float]]:
        """From when to when the process at `address` had ended or was frozen."""
        return self._absences.get(self.process(address), [])

    def absent_since(self, address: str, at: float) -> float | None:
        """Since when the process at `address` had ended or was frozen at that moment, if it was."""
        return next((begin for begin, end in self.absences(address) if begin <= at < end), None)

    # -- what was reported -------------------------------------------------------------------------------------------------

    def watch_lines(self) -> list[WatchLine]:
        return [_watch_line(line) for line in list(self._watch.lines)]

    def agreement(self) -> str:
        """Of `run` and `watch`."""
        watched = Counter(line.id for line in self.watch_lines() if line.kind not in _SIGHT)
        recorded = Counter(change["id"] for change in self._sidecar.transitions() if change["kind"] not in _SIGHT)
        both = (recorded & watched).total()
        verdict = f"{both} of them the same ids" if both < max(recorded.total(), watched.total()) else "the same ids"
        return (
            f"without first sights and blindness `run` recorded {recorded.total()} transitions, "
            f"`watch` reported {watched.total()}: {verdict}"
        )

    def retrieval(self) -> str:
        """Leaders of the resource manager that the TaskManager's log says it was notified of, and those of `watch --view flink`."""
        logged = [
            (found[1], _fencing_token(found[2])) for found in _CONNECTING.finditer(self.lab.taskmanager.log.read_text())
        ]
        calls: list[dict[str, Any]] = [json.decode(line) for _, line in list(self._flink_view.lines)]
        ours = [
            (call["leader_address"], UUID(call["leader_session_id"]))
            for call in calls
            if call["component"] == "resource_manager" and call["leader_session_id"]
        ]
        theirs, ours = (list(dict.fromkeys(each)) for each in (logged, ours))
        verdict = "the same" if theirs == ours else f"NOT the same: {theirs} and {ours}"
        return f"resource managers: the TaskManager connected to {len(theirs)}, `watch --view flink` reported {len(ours)}: {verdict}"


def _fencing_token(digits: str) -> UUID:
    """Flink logs the lower half of a session id first."""
    return UUID(digits[16:] + digits[:16])


def _watch_line(line: tuple[int, bytes]) -> WatchLine:
    at, record = line[0] / 1e9, json.decode(line[1])
    return WatchLine(
        at,
        (record["component"], record["job_id"]),
        record["kind"],
        record["id"],
        record["reason"],
        record["before_session_id"],
        record["after_session_id"],
    )
