"""A real Flink cluster, the sidecar that says why its leaders moved, and what has really become of them."""

import sys
import time
from contextlib import ExitStack, closing
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from msgspec import json

from sidecar.core.failover.causes import RELATED
from sidecar.core.flink.configmaps import LEASE_MARGIN
from sidecar.core.moment import SECOND
from sidecar.journal import JournalReader
from tests.bench.cause_labs import SESSION, ApartLab
from tests.bench.stage import is_running
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import until
from tests.lab.managers import JobManager
from tests.lab.receivers import HttpReceiver

CALM_SECONDS = 10.0
"""In which a group of alerts is notified, and an episode is over."""

_RECORD_SECONDS = 120.0
_STAND_BY_SECONDS = 240.0
_RECOVERY_SECONDS = 60.0
_CONTEND_SECONDS = 30.0
_SPLIT_SECONDS = 5.0
_RELATED_SECONDS = RELATED / SECOND
_LATE_SECONDS = SESSION.total_seconds() + LEASE_MARGIN / SECOND
"""After so long without a renewal a lease is reported to have run out."""
_MOST_RECORDS = 1_000_000

Record = dict[str, Any]


class Outcome(StrEnum):
    """What has become of a leader."""

    STAYED = "the leader stays"
    LATE = "the leader stays, its lease renewed too late"
    AGAIN = "the same process is elected again"
    ANOTHER = "another process leads"


class Fault(NamedTuple):
    """When it began (seconds since the epoch), behind which record of the journal, and who led then."""

    at: float
    behind: int
    leader: JobManager
    led: object
    """What was written of the leader."""


class FaultRecords(NamedTuple):
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
            self.gate = stack.enter_context(closing(self.lab.new_gate()))
            settings = self.lab.sidecar_settings(self.gate)
            self._sidecar = Sidecar(self._folder / "sidecar", settings, [receiver.url])
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
        """So many JobManagers, one of which leads, the job at work, nothing to be reported any more, and no recent loss of sight."""
        if any(transition["split"] for transition in self._of("transition")[-1:]):
            for jobmanager in self._running():  # a split does not settle by itself
                jobmanager.kill()
        for jobmanager in self.lab.jobmanagers:
            if len(self._running()) < jobmanagers:
                jobmanager.start()
        leader = self.lab.wait_for_leader()
        for jobmanager in self._running():
            if jobmanagers == 1 and jobmanager is not leader:
                jobmanager.stop()
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
        return Fault(time.time(), self._records[-1][0], leader, self.lab.led())

    def _running(self) -> list[JobManager]:
        return [jobmanager for jobmanager in self.lab.jobmanagers if jobmanager.running]

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
            and not self._records_behind(0).unfinished
            and self._contenders() == jobmanagers
        )

    def _contenders(self) -> int:
        return int(self._of("contention")[-1]["contenders"]) if self.lab.tells_contenders else len(self._running())

    def _restart_standbys(self, leader: JobManager) -> None:
        """One whose session ended while ZooKeeper was down may be back and contend no more."""
        print("a standby does not contend: it is started again", file=sys.stderr, flush=True)
        for jobmanager in self._running():
            if jobmanager is not leader:
                jobmanager.kill()
                jobmanager.start()

    def cancel_job(self) -> None:
        self.lab.cancel_job(self._job)
        self._job = ""

    # -- after it ------------------------------------------------------------------------------------------------------

    def wait_for_episode(self, fault: Fault, calm: float, patience: float) -> FaultRecords:
        """Until an episode is recorded, and nothing has moved for `calm` seconds. A split is ended, as its alert says it must be.

        What has not begun within `patience` seconds does not come.
        """
        split_at: float | None = None
        ended = time.time()

        def is_over() -> bool:
            nonlocal split_at
            records = self.records_since(fault)
            if split_at is None and any(transition["split"] for transition in records.transitions):
                split_at = time.time()
            if split_at and time.time() - split_at > _SPLIT_SECONDS and fault.leader.running:
                fault.leader.kill()
            last = max(
                (epoch_seconds(each["recorded_at"]) for each in (*records.episodes, *records.transitions)), default=0.0
            )
            complete = bool(records.episodes) or time.time() - ended > patience
            return complete and not records.unfinished and time.time() - last > calm

        until(is_over, _RECORD_SECONDS, 0.5)
        return self.records_since(fault)

    def wait_for_nothing(self, fault: Fault, quiet: float) -> FaultRecords:
        """For `quiet` seconds: whatever was to be said has been."""
        time.sleep(quiet)
        return self.records_since(fault)

    def outcome(self, fault: Fault) -> Outcome:
        """What has become of who led when the fault began: from what is written in the store, and who runs."""
        leader = self.lab.wait_for_leader()
        if self.lab.led() == fault.led:
            return Outcome.LATE if self.lab.silence(fault.at) >= _LATE_SECONDS else Outcome.STAYED
        same = leader is fault.leader and leader.started_at < fault.at
        return Outcome.AGAIN if same else Outcome.ANOTHER

    def records_since(self, fault: Fault) -> FaultRecords:
        """What is recorded since it began."""
        return self._records_behind(fault.behind)

    def _records_behind(self, behind: int) -> FaultRecords:
        episodes, transitions, notifications = (
            self._of(name, behind=behind) for name in ("episode", "transition", "notification")
        )
        begun = {transition["episode_id"] for transition in transitions if transition["episode_id"]}
        alerts = [notification for notification in notifications if notification["outcome"] == "queued"]
        return FaultRecords(episodes, transitions, alerts, begun - {episode["id"] for episode in episodes})

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
