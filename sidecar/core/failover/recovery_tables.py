"""Whether a job, its state and the TaskManagers came back: one table for each question, whose first row that applies decides.

Whatever is not proven is not said: Flink was asked some seconds before the failure, and may have completed a checkpoint after that.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from sidecar.core.counted import counted
from sidecar.core.failover.recovery_state import Fault, JobAfter
from sidecar.core.moment import seconds
from sidecar.core.pictures import ENDED, Checkpoint, Checkpoints, Job
from sidecar.core.sanitize import clean

MOST_OF_A_REASON: Final = 700
"""Characters: it may have the path of a checkpoint."""
_MOST_OF_A_PATH: Final = 500
LISTED_AGAIN: Final = "It had ended before the failover, and is listed as not ended."
"""Why a job is not waited for."""


class Outcome(StrEnum):
    """What became of a job."""

    RUNNING = "running"
    MISSING = "missing"
    RESURRECTED = "resurrected"
    """The job had ended, and runs again: FLINK-39704."""
    ENDED = "ended"
    UNPROVEN = "unproven"


FAULTS: Final[Mapping[str, Fault]] = {Outcome.MISSING: Fault.MISSING, Outcome.RESURRECTED: Fault.RESURRECTED}
"""The outcomes that stay wrong until the job is back, or ends."""


class Origin(StrEnum):
    """The origin from which a job was restored."""

    LATEST = "latest"
    OLDER = "older"
    SAVEPOINT = "savepoint"
    NOTHING = "nothing"


class JobCase(Struct, frozen=True):
    """The known facts about one job from before the failover."""

    before: Job
    after: JobAfter | None
    """None: the new leader's REST server does not list it."""
    same_leader: bool = False
    """Whether the dispatcher's leader is the previous one, so that nothing was restarted."""
    complete: bool = False
    """Whether the new leader has listed its jobs for long enough."""
    stored: bool = False
    """Whether Flink's store still has the job."""
    lost: bool = False
    """Whether its plan is known to have vanished from the store while nobody led."""
    intended: bool = False
    """Whether the failover was planned: an upgrade may leave a job out."""
    starting: bool = False
    anew: bool = False
    foreign: bool = False
    dead_at: int | None = None
    """When the previous leader ended (wall microseconds)."""
    dead_by: int = 0
    """When it had ended at the latest."""

    @property
    def continued(self) -> bool:
        """Whether its JobMaster is the previous one."""
        return continued(self.before, self.after)

    @property
    def runs(self) -> bool:
        return runs(self.before, self.after, same_leader=self.same_leader)


def continued(before: Job, after: JobAfter | None) -> bool:
    """Whether the job's JobMaster is the previous one."""
    return after is not None and before.started_at > 0 and after.started_at == before.started_at


def runs(before: Job, after: JobAfter | None, *, same_leader: bool) -> bool:
    """Whether the job runs; under another leader, the data about the previous JobMaster is out of date."""
    return after is not None and after.is_running and continued(before, after) <= same_leader


class Ruling(NamedTuple):
    """The result of a table."""

    answer: Outcome | Origin | None
    """None: nothing to say."""
    reason: str = ""
    """Why it is not recovered, or not proven. Empty: there is nothing to object."""
    open: bool = False
    """Whether it may be known later."""


class RulingRow(NamedTuple):
    """A row of a table."""

    name: str
    applies: Callable[[JobCase], bool]
    rules: Callable[[JobCase], Ruling]


def _always(answer: Outcome | Origin | None, reason: str = "", *, open: bool = False) -> Callable[[JobCase], Ruling]:  # noqa: A002  the field of a Ruling
    return lambda _: Ruling(answer, reason, open)


def _had_ended(case: JobCase) -> bool:
    return case.before.state in ENDED


def _has_begun(case: JobCase) -> bool:
    """Whether it is known from what a job that runs again was restored: from a savepoint somebody starts it anew."""
    after = case.after
    return after is not None and after.read_at is not None and (after.restored is not None or _confirmed(case))


def _has_ended(case: JobCase) -> bool:
    return case.after is not None and case.after.state in ENDED


def _ended(case: JobCase) -> Ruling:
    state = case.after.state if case.after else ""
    return Ruling(Outcome.ENDED, "It FAILED after the failover." if state == "FAILED" else "")


def _not_running(case: JobCase) -> Ruling:
    assert case.after  # noqa: S101  the row says so
    running, total = case.after.tasks
    return Ruling(None, f"It is {clean(case.after.state)}, and {running} of {total} tasks run.", open=True)


def _missing(case: JobCase) -> Ruling:
    last = last_known(case.before.checkpoints)
    checkpoint = f" Its last known checkpoint is {last}{_path_text(case)}." if last is not None else ""
    return Ruling(Outcome.MISSING, f"Flink does not know it any more.{checkpoint}")


def _path_text(case: JobCase) -> str:
    """The path of the job's last completed checkpoint, from which a person can start the job. Empty: not known."""
    checkpoints = known_checkpoints(case.before.checkpoints)
    path = checkpoints[-1].path if checkpoints and checkpoints[-1].id == last_known(case.before.checkpoints) else None
    return f", at {clean(path, _MOST_OF_A_PATH)}" if path else ""


OUTCOMES: Final = (
    RulingRow(
        "another cluster answers",
        lambda case: case.foreign,
        _always(
            None, "Another cluster seems to answer at the leader's address: none of its jobs was known.", open=True
        ),
    ),
    RulingRow(
        "it had ended, and still has", lambda case: _had_ended(case) and _has_ended(case), _always(Outcome.ENDED)
    ),
    RulingRow(
        "it had ended, and was started on purpose",
        lambda case: _had_ended(case) and (case.intended or _is_savepoint(case)),
        _always(Outcome.ENDED),
    ),
    RulingRow(
        "it had ended, and starts",
        lambda case: _had_ended(case) and case.after is not None and not _has_begun(case),
        _always(None, LISTED_AGAIN, open=True),
    ),
    RulingRow(
        "it had ended, and runs again",
        lambda case: _had_ended(case) and case.after is not None,
        _always(Outcome.RESURRECTED, "It had ended before the failover, and was started again."),
    ),
    RulingRow(
        "it had ended, and is not listed any more",
        lambda case: _had_ended(case) and case.complete,
        _always(Outcome.ENDED),
    ),
    RulingRow(
        "it had ended, and jobs are not listed yet",
        _had_ended,
        _always(None, "The new leader has not listed its jobs for long enough.", open=True),
    ),
    RulingRow("it has ended", _has_ended, _ended),
    RulingRow("it runs", lambda case: case.runs, _always(Outcome.RUNNING)),
    RulingRow(
        "it is as it was before",
        lambda case: case.continued and not case.same_leader,
        _always(None, "What is said of it is as it was before the failover.", open=True),
    ),
    RulingRow("it does not run", lambda case: case.after is not None, _not_running),
    RulingRow(
        "it was left out on purpose",
        lambda case: case.intended,
        _always(None, "The failover was planned, and no job has its name now.", open=True),
    ),
    RulingRow(
        "main() ran anew",
        lambda case: case.anew,
        _always(None, "The application submitted its jobs anew, and none has its name now.", open=True),
    ),
    RulingRow(
        "jobs are not listed yet",
        lambda case: not case.complete,
        _always(None, "The new leader has not listed its jobs for long enough.", open=True),
    ),
    RulingRow(
        "main() runs", lambda case: case.starting, _always(None, "Its application has not submitted it yet.", open=True)
    ),
    RulingRow(
        "its plan is stored",
        lambda case: case.stored,
        _always(None, "Flink does not list it, though its plan is in the store.", open=True),
    ),
    RulingRow(
        "its plan may have gone in time",
        lambda case: not case.lost,
        _always(None, "Flink does not list it. Its plan is gone, and it may have ended before the failure."),
    ),
    RulingRow("it is missing", lambda _: True, _missing),
)
"""The table that decides what became of a job."""


def known_checkpoints(of: Checkpoints | None) -> tuple[Checkpoint, ...]:
    """The completed checkpoints that a failover may restore, the latest last."""
    return tuple(
        sorted(
            (checkpoint for checkpoint in (of.completed if of else ()) if not checkpoint.is_savepoint),
            key=lambda c: c.id,
        )
    )


def last_known(of: Checkpoints | None) -> int | None:
    """The id of the last completed checkpoint. What was restored counts: it was completed."""
    ids = [checkpoint.id for checkpoint in known_checkpoints(of)]
    if of and of.restored and not of.restored.is_savepoint:
        ids.append(of.restored.id)
    return max(ids, default=None)


def _restored_id(case: JobCase) -> int | None:
    return case.after.restored.id if case.after and case.after.restored else None


def _is_unread(case: JobCase) -> bool:
    return case.after is None or case.after.read_at is None


def _is_off(case: JobCase) -> bool:
    checkpoints = case.before.checkpoints
    return checkpoints is not None and not checkpoints.enabled and _restored_id(case) is None


def _is_inconsistent(case: JobCase) -> bool:
    after, restored = case.after, _restored_id(case)
    return after is not None and restored is not None and after.first_id is not None and after.first_id <= restored


def _lost_state(case: JobCase) -> Ruling:
    last = last_known(case.before.checkpoints)
    return Ruling(
        Origin.NOTHING, f"It started without state, though checkpoint {last} had been completed{_path_text(case)}."
    )


def _restored_nothing(case: JobCase) -> bool:
    return _restored_id(case) is None


def _confirmed(case: JobCase) -> bool:
    """Whether its checkpoints were read after it was seen running: before, what it restores may be unsaid."""
    after = case.after
    if after is None or after.read_at is None or after.running_at is None:
        return False
    return after.read_at > after.running_at


def is_older(case: JobCase) -> bool:
    restored, last = _restored_id(case), last_known(case.before.checkpoints)
    return restored is not None and last is not None and restored < last


def _is_savepoint(case: JobCase) -> bool:
    return case.after is not None and case.after.restored is not None and case.after.restored.is_savepoint


def _nothing_between(case: JobCase) -> bool:
    """Whether no checkpoint was triggered between the one that was restored and the first one after that."""
    restored = _restored_id(case)
    return case.after is not None and restored is not None and case.after.first_id == restored + 1


_WAITED: Final = 10
"""A checkpoint was triggered in time if the one before had been completed this part of an interval earlier."""


def _none_completed_between(case: JobCase) -> bool:
    """Whether the next checkpoint cannot have been completed before the failure."""
    checkpoints, restored = case.before.checkpoints, _restored_id(case)
    if (
        case.dead_at is None
        or checkpoints is None
        or restored is None
        or checkpoints.interval is None
        or checkpoints.shortest is None
    ):
        return False
    completed = {checkpoint.id: checkpoint for checkpoint in known_checkpoints(checkpoints)}
    last, before = completed.get(restored), completed.get(restored - 1)
    # After one that had to wait for the one before, the next is due sooner than an interval later.
    if last is None or before is None or last.triggered_at - before.ended_at < checkpoints.interval // _WAITED:
        return False
    # The time of the death is by the clock of the JobManager's machine, as that of the trigger is.
    return case.dead_by <= last.triggered_at + checkpoints.interval + checkpoints.shortest


def _judge_older(case: JobCase) -> Ruling:
    restored, last = _restored_id(case), last_known(case.before.checkpoints)
    behind = checkpoints_behind(case)
    by = "" if behind is None else f", {counted(behind, 'checkpoint')} before"
    return Ruling(
        Origin.OLDER,
        f"It was restored from checkpoint {restored}{by}: checkpoint {last} had been completed{_path_text(case)}.",
    )


def _judge_old_savepoint(case: JobCase) -> Ruling:
    restored, last = _restored_id(case), last_known(case.before.checkpoints)
    return Ruling(
        Origin.SAVEPOINT,
        f"It was restored from savepoint {restored}, though checkpoint {last} had been completed since{_path_text(case)}.",
    )


def _with_number(text: str, *, open: bool = False) -> Callable[[JobCase], Ruling]:  # noqa: A002  the field of a Ruling
    """`text` with the restored checkpoint and the next one."""
    return lambda case: Ruling(None, text.format(at=_restored_id(case), next=(_restored_id(case) or 0) + 1), open)


def _judge_without_checkpoint(case: JobCase) -> Ruling:
    checkpoints = case.before.checkpoints
    before = seconds(max(0, case.dead_by - checkpoints.read_at)) if checkpoints else ""
    return Ruling(
        None,
        f"It started without state. {before} before the failure it had no checkpoint: whether it completed one then is not known.",
    )


ORIGINS: Final = (
    RulingRow("it was not restarted", lambda case: case.continued, _always(None)),
    RulingRow(
        "checkpoints are not read yet", _is_unread, _always(None, "Its checkpoints could not be read.", open=True)
    ),
    RulingRow("it takes no checkpoints", _is_off, _always(None)),
    RulingRow(
        "ids go back", _is_inconsistent, _always(None, "Its checkpoint ids went back: what was restored is not known.")
    ),
    RulingRow(
        "it has no state yet",
        lambda case: _restored_nothing(case) and not _confirmed(case),
        _always(None, "What it was restored from is not known.", open=True),
    ),
    RulingRow(
        "when it started is not known",
        lambda case: _restored_nothing(case) and not case.before.started_at > 0,
        _always(None, "Whether it was restarted is not known."),
    ),
    RulingRow(
        "what it had is not known",
        lambda case: _restored_nothing(case) and case.before.checkpoints is None,
        _always(None, "It started without state. Whether it had completed a checkpoint is not known."),
    ),
    RulingRow(
        "it had no checkpoint",
        lambda case: _restored_nothing(case) and last_known(case.before.checkpoints) is None,
        _judge_without_checkpoint,
    ),
    RulingRow("it lost its state", _restored_nothing, _lost_state),
    RulingRow("an old savepoint", lambda case: _is_savepoint(case) and is_older(case), _judge_old_savepoint),
    RulingRow("a savepoint", _is_savepoint, _always(Origin.SAVEPOINT)),
    RulingRow("an older checkpoint", is_older, _judge_older),
    RulingRow("nothing was triggered between", _nothing_between, _always(Origin.LATEST)),
    RulingRow("nothing was completed between", _none_completed_between, _always(Origin.LATEST)),
    RulingRow(
        "nothing was triggered yet",
        lambda case: case.after is not None and case.after.first_id is None,
        _with_number(
            "It was restored from checkpoint {at}. Whether a later one had been completed is known with its next one.",
            open=True,
        ),
    ),
    RulingRow(
        "something was triggered between",
        lambda _: True,
        _with_number(
            "It was restored from checkpoint {at}. Whether checkpoint {next} was completed before the failure is not known."
        ),
    ),
)
"""The table that decides from what a running job was restored."""


def decided(table: Sequence[RulingRow], case: JobCase) -> tuple[str, Ruling]:
    """The first row that applies, and what it says."""
    row = next(row for row in table if row.applies(case))
    return row.name, row.rules(case)


def checkpoints_behind(case: JobCase) -> int | None:
    """How many completed checkpoints the restored one is older than the last. None: not known; the last picture is older than the
    failure."""
    restored, ids = _restored_id(case), [checkpoint.id for checkpoint in known_checkpoints(case.before.checkpoints)]
    if restored not in ids or case.after is None or case.after.first_id != ids[-1] + 1:
        return None
    return len(ids) - 1 - ids.index(restored)


def reprocessed(case: JobCase) -> int | None:
    """Microseconds of work that are done again. None: not known."""
    restored, checkpoints = _restored_id(case), known_checkpoints(case.before.checkpoints)
    trigger = next((checkpoint.triggered_at for checkpoint in checkpoints if checkpoint.id == restored), None)
    return None if trigger is None or case.dead_at is None or case.continued else max(0, case.dead_at - trigger)
