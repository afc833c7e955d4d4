"""What a job was restored from, by Flink's own figures of its checkpoints."""

from typing import Any, Final

import pytest
from msgspec import json

from sidecar.core.pictures import Checkpoints, Job
from sidecar.sinks.pictures.rest_answers import CHECKPOINTS

STARTED: Final = 1_795_700_698_409
"""In milliseconds."""
JOB: Final = Job("a" * 32, "orders", "RUNNING", STARTED * 1000, STARTED * 1000)


def checkpoints(*ids: int, total: int, completed: int) -> Checkpoints:
    """Of a job that was restored from 40; `ids`: those in Flink's history, all completed."""
    history = [
        {"id": number, "status": "COMPLETED", "is_savepoint": False, "trigger_timestamp": STARTED + number * 1000}
        for number in sorted(ids, reverse=True)
    ]
    restored = {"id": 40, "restore_timestamp": STARTED + 100, "is_savepoint": False}
    answer: dict[str, Any] = {
        "counts": {"restored": 1, "total": total, "completed": completed, "failed": total - completed},
        "latest": {"completed": history[0] if history else None, "savepoint": None, "restored": restored},
        "history": history,
    }
    read = CHECKPOINTS.decode(json.encode(answer)).checkpoints(JOB, None, 0)
    assert read
    return read


def restored(read: Checkpoints) -> int | None:
    return read.restored.id if read.restored else None


@pytest.mark.parametrize(
    ("ids", "first_id"), [((), None), ((41,), 41), ((42, 41), 41), ((42,), None)], ids=["none", "next", "two", "later"]
)
def test_triggers_without_an_id(ids: tuple[int, ...], first_id: int | None) -> None:
    """Flink 1.20 counts them among all: one that came before the tasks ran hides neither the restored checkpoint nor the one after it."""
    read = checkpoints(*ids, total=len(ids) + 1, completed=len(ids))
    assert (read.restored_known, restored(read), read.first_id) == (True, 40, first_id)


def test_a_history_that_has_lost_completed_ones() -> None:
    """The restored one may be one of them."""
    read = checkpoints(52, 51, total=12, completed=12)
    assert (read.restored_known, read.first_id) == (False, None)


def test_one_of_its_own_was_restored() -> None:
    """After a failure of tasks: the job began without state."""
    read = checkpoints(41, 40, total=3, completed=2)
    assert (read.restored_known, restored(read)) == (True, None)
