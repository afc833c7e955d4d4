"""A real Flink cluster on a real ZooKeeper, each with a way there that can be shut, and the sidecar that says why leaders moved."""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import json

from sidecar.core.causes import RELATED
from sidecar.core.moment import SECOND
from sidecar.journal import JournalReader
from sidecar.lab.flink import Lab
from sidecar.lab.managers import JobManager
from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.settings import CLUSTER_ID, PATH_ROOT
from tests.bench.stage import is_running, until
from tests.e2e.listener.gate import Gate
from tests.e2e.sidecar import Sidecar

SESSION = timedelta(seconds=5)
CALM_SECONDS = 10.0
"""In which a group of alerts is told, and an episode is over."""

_RECORD_SECONDS = 120.0
_STAND_BY_SECONDS = 240.0
_RECOVERY_SECONDS = 60.0
_CONTEND_SECONDS = 30.0
_SPLIT_SECONDS = 5.0
_RELATED_SECONDS = RELATED / SECOND
_MOST_RECORDS = 1_000_000

Record = dict[str, Any]


class _Apart(JobManager):
    """Has a way of its own to ZooKeeper."""

    gate: Gate

    def build_command(self) -> Sequence[str]:
        return (*super().build_command(), f"-Dhigh-availability.zookeeper.quorum={self.gate.address}")


class ApartLab(Lab):
    """Its JobManagers can be cut from ZooKeeper one by one."""

    def __init__(self, folder: Path, flink_version: str) -> None:
        super().__init__(folder, flink_version, session_timeout=SESSION)
        self.gates: dict[str, Gate] = {}
        """By the name of the JobManager."""

    def stop(self) -> None:
        super().stop()
        while self.gates:
            self.gates.popitem()[1].close()

    def _new_jobmanager(self) -> JobManager:
        name = f"jobmanager-{len(self.jobmanagers) + 1}"
        jobmanager = _Apart(name, self.folder, self._home, self._java)
        self.gates[name] = jobmanager.gate = _gate(self)
        self.jobmanagers.append(jobmanager)
        self._processes.append(jobmanager)
        return jobmanager


class Fault(NamedTuple):
    """When it began (seconds since the epoch), behind which record of the journal, and who led then."""

    at: float
    behind: int
    leader: JobManager


class Told(NamedTuple):
    """What the sidecar has recorded since a fault."""

    episodes: list[Record]
    transitions: list[Record]
    alerts: list[Record]
    """One for each alert that was queued for the receiver."""
    unfinished: set[str]
    """Episodes that have begun, and are not recorded."""


class Scene:
    """Two JobManagers, a TaskManager, a job, and `run` with the default rules and one receiver."""

    def __init__(self, lab: ApartLab, folder: Path) -> None:
        self.lab = lab
        self._folder = folder
        self._records: list[tuple[int, Record]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.lab.start()
            self._job = self.lab.submit_job(wait_for_checkpoint=False)
            receiver = HttpReceiver()
            receiver.start()
            stack.callback(receiver.stop)
            self.gate = stack.enter_context(closing(_gate(self.lab)))
            where = f"quorum: '{self.gate.address}', root: {PATH_ROOT}, cluster_id: /{CLUSTER_ID}"
            timeout = f"session_timeout: {SESSION.seconds}s"
            self._sidecar = Sidecar(self._folder / "sidecar", f"zookeeper: {{{where}, {timeout}}}", [receiver.url])
            stack.callback(self._sidecar.stop)
            self._sidecar.start()
            self._sidecar.wait_ready()
            self._journal = stack.enter_context(closing(JournalReader(self._sidecar.state)))
            self._beside = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.close()

    # -- before a fault ------------------------------------------------------------------------------------------------

    def stand_by(self, jobmanagers: int) -> None:
        """So many JobManagers, one of which leads, the job at work, nothing to be told any more, and no loss of sight to be related to."""
        if any(each["split"] for each in self._of("transition")[-1:]):
            for each in self._running():  # a split does not settle by itself
                each.kill()
        for each in self.lab.jobmanagers:
            if len(self._running()) < jobmanagers:
                each.start()
        leader = self.lab.wait_for_leader()
        for each in self._running():
            if jobmanagers == 1 and each is not leader:
                each.stop()
        if not until(lambda: self._contenders() == jobmanagers, _CONTEND_SECONDS, 0.5):
            self._restart_standbys(leader)
        if not self._job or not is_running(self.lab, self._job, _RECOVERY_SECONDS):
            self._job = self.lab.submit_job(wait_for_checkpoint=False)
        calm = until(lambda: self._is_calm(jobmanagers), _STAND_BY_SECONDS, 0.5)
        assert calm, f"the cluster does not come to rest: {self._records[-5:]}"

    def begin(self) -> Fault:
        """Now. What is recorded from now on is the fault's."""
        leader = self.lab.wait_for_leader()
        self._read()
        return Fault(time.time(), self._records[-1][0], leader)

    def _running(self) -> list[JobManager]:
        return [each for each in self.lab.jobmanagers if each.running]

    def _is_calm(self, jobmanagers: int) -> bool:
        now = time.time()
        news = [
            epoch_seconds(each["recorded_at"])
            for each in self._of("transition", "contention", "episode", "notification")
        ]
        blind = [epoch_seconds(each["to"]) for each in self._of("coverage")[1:] if each["state"] == "blind"]
        split = [epoch_seconds(each["recorded_at"]) for each in self._of("transition") if each["split"]]
        return (
            now - max(news) > CALM_SECONDS
            and now - max((*blind, *split), default=0.0) > _RELATED_SECONDS + 1
            and not self._told(0).unfinished
            and self._contenders() == jobmanagers
        )

    def _contenders(self) -> int:
        return int(self._of("contention")[-1]["contenders"])

    def _restart_standbys(self, leader: JobManager) -> None:
        """One whose session ended while ZooKeeper was down may be back and contend no more."""
        print("a standby does not contend: it is started again", file=sys.stderr, flush=True)
        for each in self._running():
            if each is not leader:
                each.kill()
                each.start()

    def cancel_job(self) -> None:
        self.lab.cancel_job(self._job)
        self._job = ""

    # -- after it ------------------------------------------------------------------------------------------------------

    def wait_for_episode(self, fault: Fault, calm: float) -> Told:
        """Until an episode is recorded, and nothing has moved for `calm` seconds. A split is ended, as its alert says it must be."""
        split_at: float | None = None

        def is_over() -> bool:
            nonlocal split_at
            told = self.told(fault)
            if split_at is None and any(each["split"] for each in told.transitions):
                split_at = time.time()
            if split_at and time.time() - split_at > _SPLIT_SECONDS and fault.leader.running:
                fault.leader.kill()
            last = max(
                (epoch_seconds(each["recorded_at"]) for each in (*told.episodes, *told.transitions)), default=0.0
            )
            return bool(told.episodes) and not told.unfinished and time.time() - last > calm

        until(is_over, _RECORD_SECONDS, 0.5)
        return self.told(fault)

    def wait_for_nothing(self, fault: Fault, quiet: float) -> Told:
        """For `quiet` seconds: whatever was to be said has been."""
        time.sleep(quiet)
        return self.told(fault)

    def told(self, fault: Fault) -> Told:
        """What is recorded since it began."""
        return self._told(fault.behind)

    def _told(self, behind: int) -> Told:
        episodes, transitions, notifications = (
            self._of(name, behind=behind) for name in ("episode", "transition", "notification")
        )
        begun = {each["episode_id"] for each in transitions if each["episode_id"]}
        alerts = [each for each in notifications if each["outcome"] == "queued"]
        return Told(episodes, transitions, alerts, begun - {each["id"] for each in episodes})

    def _of(self, *types: str, behind: int = 0) -> list[Record]:
        """The records of these types, behind one of the journal."""
        self._read()
        return [record for number, record in self._records if number > behind and record["type"] in types]

    def _read(self) -> None:
        newest = self._records[-1][0] if self._records else 0
        self._records += ((number, json.decode(line)) for number, line in self._journal.records(newest, _MOST_RECORDS))


def epoch_seconds(timestamp: str) -> float:
    """Since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def _gate(lab: Lab) -> Gate:
    """While ZooKeeper is down, it turns everybody away as ZooKeeper would."""
    return Gate(lab.zookeeper.address, lambda: True)
