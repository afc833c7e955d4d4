"""The answers of Flink's REST server (1.13 to 2.3) as far as a picture needs them. Unknown fields are skipped, missing ones are errors."""

from collections.abc import Iterable
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.json import Decoder

from sidecar.core.bounds import REST_ANSWER, REST_SMALL_ANSWER
from sidecar.core.moment import LATEST
from sidecar.core.pictures import MOST_CHECKPOINTS, Checkpoint, Checkpoints, Job, Restored, TaskManager
from sidecar.core.sanitize import clean
from sidecar.net.rest_client import RestError, reason

MOST_NAME: Final = 100
"""Characters of a job's name, and of other names."""
_MOST_PATH: Final = 500
_MILLISECOND: Final = 1000
"""Microseconds."""
_OFF: Final = LATEST // _MILLISECOND
"""A checkpoint interval in milliseconds from here on means that checkpointing is off: Flink writes `Long.MAX_VALUE`."""

_MOST_NUMBER: Final = 1 << 62
"""The largest number that can be kept in the journal and the handover."""
_Number = Annotated[int, Meta(ge=0, lt=_MOST_NUMBER)]
_Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
_Millis = Annotated[int, Meta(ge=-1, le=LATEST // _MILLISECOND)]
_T = TypeVar("_T")


class Overview(Struct, rename="kebab"):
    """`/overview`."""

    slots_total: _Number
    slots_available: _Number


class _Tasks(Struct):
    total: _Count
    running: _Count
    finished: _Count


class JobOverview(Struct, rename="kebab"):
    """One entry of `/jobs/overview`."""

    jid: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    name: str
    state: Annotated[str, Meta(pattern=r"^[A-Z_]{1,30}\Z")]
    start_time: _Millis
    last_modification: _Millis
    duration: _Millis
    tasks: _Tasks

    @property
    def unchanged_for(self) -> int:
        """Microseconds since its state, or that of a task, last changed."""
        return (self.duration - max(self.last_modification - self.start_time, 0)) * _MILLISECOND

    def job(self, before: Job | None) -> Job:
        """The job, with what is known of the same JobMaster from `before`."""
        started_at = max(self.start_time, 0) * _MILLISECOND
        same = before if before and before.started_at == started_at else None
        job = Job(
            self.jid,
            same.name if same else clean(self.name, MOST_NAME),
            self.state,
            started_at,
            max(started_at, self.last_modification * _MILLISECOND),
            self.tasks.running + self.tasks.finished,
            self.tasks.total,
            same.checkpoints if same else None,
            same.restarts if same else None,
        )
        return before if before and before == job else job  # thousands of jobs stay as they were


class Jobs(Struct):
    """`/jobs/overview`."""

    jobs: list[JobOverview]


class _TaskManager(Struct):
    id: str


class TaskManagers(Struct):
    """`/taskmanagers`."""

    taskmanagers: list[_TaskManager]

    def described(self, most: int) -> tuple[TaskManager, ...]:
        """The first ones."""
        first = self.taskmanagers[:most]
        return tuple(TaskManager(clean(manager.id)) for manager in first)


class _Application(Struct):
    name: str
    status: str


class Applications(Struct):
    """`/applications/overview` (Flink 2.3)."""

    applications: list[_Application]

    def described(self, most: int) -> tuple[tuple[str, str], ...]:
        """Names and states of the first ones."""
        first = self.applications[:most]
        return tuple((clean(item.name, MOST_NAME), clean(item.status, MOST_NAME)) for item in first)


class Option(Struct):
    """One entry of `/jobmanager/config`."""

    key: str
    value: str


class CheckpointConfig(Struct):
    """`/jobs/ID/checkpoints/config`."""

    interval: int

    @property
    def microseconds(self) -> int | None:
        """The interval; None: checkpointing is off."""
        return self.interval * _MILLISECOND if 0 < self.interval < _OFF else None


class Metric(Struct):
    """One entry of `/jobs/ID/metrics`."""

    id: str
    value: str = ""


class _Statistics(Struct):
    id: _Number
    status: str
    is_savepoint: bool
    trigger_timestamp: Annotated[int, Meta(ge=0, le=LATEST // _MILLISECOND)]
    end_to_end_duration: _Millis = 0
    state_size: int = -1
    external_path: str | None = None

    def checkpoint(self) -> Checkpoint:
        at = self.trigger_timestamp * _MILLISECOND
        ended_at = min(at + max(self.end_to_end_duration, 0) * _MILLISECOND, LATEST)
        size = self.state_size if 0 <= self.state_size < _MOST_NUMBER else None
        return Checkpoint(self.id, at, ended_at, size, is_savepoint=self.is_savepoint)


class _Restored(Struct):
    id: _Number
    restore_timestamp: Annotated[int, Meta(ge=0, le=LATEST // _MILLISECOND)]
    is_savepoint: bool


class _Latest(Struct):
    completed: _Statistics | None
    savepoint: _Statistics | None
    restored: _Restored | None


class _Counts(Struct):
    restored: _Number
    total: _Number
    completed: _Number


class _Shortest(Struct):
    min: int


class _Summary(Struct):
    end_to_end_duration: _Shortest


class CheckpointStatistics(Struct):
    """`/jobs/ID/checkpoints`: what the running JobMaster says, which counts from its own start."""

    counts: _Counts
    latest: _Latest
    history: list[_Statistics]
    summary: _Summary | None = None

    def checkpoints(self, job: Job, interval: int | None, read_at: int) -> Checkpoints | None:
        """The checkpoints of `job`, as it is known. None: they cannot be those of its running JobMaster.

        Flink may answer from a cache: then they are of an earlier JobMaster.
        """
        before = job.checkpoints
        candidates = (*self.history, self.latest.savepoint, self.latest.completed)
        latest = {statistics.id: statistics for statistics in candidates if statistics}
        numbers = sorted(number for number, statistics in latest.items() if statistics.status == "COMPLETED")
        if self._contradicts(job, latest.values(), numbers):
            return None
        completed = numbers if len(numbers) == self.counts.completed else None  # Flink forgets the oldest
        first_id = before.first_id if before else None
        began_from, is_known = self._began(before, completed)
        if first_id is None and latest:
            # Triggers that failed before they had an id are among the total.
            follows = completed is not None and began_from is not None and min(latest) == began_from.id + 1
            first_id = min(latest) if follows or len(self.history) == self.counts.total else None
        shortest = self.summary.end_to_end_duration.min if self.summary and numbers else -1
        return Checkpoints(
            read_at,
            tuple(self._checkpoint(latest[number], numbers[-1]) for number in numbers[-MOST_CHECKPOINTS:]),
            began_from,
            first_id,
            interval,
            shortest * _MILLISECOND if 0 <= shortest <= LATEST // _MILLISECOND else None,
            restored_known=is_known,
        )

    def _contradicts(self, job: Job, latest: Iterable[_Statistics], numbers: list[int]) -> bool:
        """True if they cannot be those of the running JobMaster. `numbers`: of the checkpoints that it completed, in order."""
        restored, before = self.latest.restored, job.checkpoints
        times = [statistics.trigger_timestamp for statistics in latest]
        times += [restored.restore_timestamp] if restored else []
        if times and min(times) * _MILLISECOND < job.started_at:
            return True
        if bool(restored) != bool(self.counts.restored) or bool(numbers) != bool(self.counts.completed):
            return True
        return bool(before and before.latest and (not numbers or numbers[-1] < before.latest.id))  # ids only grow

    def _began(self, before: Checkpoints | None, completed: list[int] | None) -> tuple[Restored | None, bool]:
        """The origin from which the JobMaster restored the job at first, and whether that is known. `completed`: all that it completed, if
        known."""
        if before and before.restored_known:
            return before.restored, True
        if (restored := self.latest.restored) is None:
            return None, True
        if self.counts.restored > 1 or completed is None:
            return None, False
        if restored.id in completed:
            return None, True  # it restored one of its own after a failure of tasks: it began without state
        return Restored(restored.id, restored.is_savepoint), True

    def _checkpoint(self, statistics: _Statistics, latest: int) -> Checkpoint:
        checkpoint = statistics.checkpoint()
        if statistics.id != latest and not statistics.is_savepoint:
            return checkpoint
        path = statistics.external_path  # one that is too long is of no use
        is_kept = path is not None and 0 < len(path) <= _MOST_PATH
        return msgspec.structs.replace(checkpoint, path=clean(path, _MOST_PATH) if is_kept else None)


class _Errors(Struct):
    errors: list[str] = []


OVERVIEW: Final = Decoder(Overview)
JOBS: Final = Decoder(Jobs)
TASK_MANAGERS: Final = Decoder(TaskManagers)
APPLICATIONS: Final = Decoder(Applications)
OPTIONS: Final = Decoder(list[Option])
CHECKPOINTS: Final = Decoder(CheckpointStatistics)
CONFIG: Final = Decoder(CheckpointConfig)
METRICS: Final = Decoder(list[Metric])
_ERRORS: Final = Decoder(_Errors)


def decoded(decoder: "Decoder[_T]", content: bytes, path: str) -> _T:
    """The answer. Raises RestError."""
    # Each becomes values that take many times its bytes, before the decoder knows how many there are.
    if content.count(b"{") > REST_ANSWER.most_items:
        raise RestError(f"Flink's REST server answers {path} with more than {REST_ANSWER.most_items:,} objects")
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RestError(f"not an answer of Flink's to {path}: {clean(error, 100)}") from error


def refusal(status: int, content: bytes) -> str:
    """Why a request was not answered with status 200."""
    try:
        errors: object = _ERRORS.decode(content[: REST_SMALL_ANSWER.most_bytes]).errors
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        errors = None
    return f"Flink's REST server answers with status {status}: {reason(errors)}"
