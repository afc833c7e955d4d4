"""A log says that its JobManager ended, where no process is visible: the next run begins in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.core.observations import LogEndRead
from sidecar.core.process_end import LogEnd
from sidecar.drivers.processes.held_log import FollowedLog
from sidecar.host import processes
from tests.integration.test_held_logs import FAULT, LATER, START
from tests.integration.test_process_ends import CLUSTER, Ends, Eventually, own_processes

__all__ = ["own_processes"]

PORT = FAULT.replace("disk on fire", "port in use")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A log in which a run has failed."""
    file = tmp_path / "flink-root-standalonesession-0-host.log"
    file.write_text(START + FAULT)
    return file


@pytest.fixture
def log(file: Path) -> Iterator[FollowedLog]:
    """It is followed; nothing of before counts."""
    log = FollowedLog(file.parent)
    assert log.ended_run() is None
    yield log
    log.close()


def append(file: Path, text: str) -> None:
    with file.open("a") as appended:
        appended.write(text)


def fault_of(end: LogEnd | None) -> str | None:
    assert end
    assert end.followed
    return end.first_fault


def test_a_run_that_begins_in_the_same_file_ends_the_one_before(file: Path, log: FollowedLog) -> None:
    """Each is reported once, even if its first line is written in two parts."""
    append(file, LATER)
    assert log.ended_run() is None
    append(file, START[:60])
    assert log.ended_run() is None
    append(file, START[60:] + PORT)
    assert fault_of(log.ended_run()) == "Fatal error occurred: java.io.IOException: disk on fire"
    assert log.ended_run() is None
    append(file, START)
    assert fault_of(log.ended_run()) == "Fatal error occurred: java.io.IOException: port in use"


def test_a_run_that_begins_in_a_file_of_its_own_ends_the_one_before(file: Path, log: FollowedLog) -> None:
    """Flink's own configuration renames the file at each start. The new one may be empty at first."""
    file.rename(f"{file}.1")
    file.touch()
    assert log.ended_run() is None
    append(file, START + LATER)
    assert fault_of(log.ended_run()) == "Fatal error occurred: java.io.IOException: disk on fire"


def test_a_run_that_goes_on_in_another_file_has_not_ended(file: Path, log: FollowedLog) -> None:
    """A log is rotated by its size, too, or copied and truncated, or it is gone for a while."""
    file.rename(f"{file}.1")
    file.write_text(LATER)
    assert log.ended_run() is None
    file.write_text("")
    assert log.ended_run() is None
    file.unlink()
    with pytest.raises(FileNotFoundError):
        log.ended_run()
    file.write_text(LATER)
    assert log.ended_run() is None


def test_what_cannot_be_read_is_an_error(file: Path, log: FollowedLog) -> None:
    """Nothing is held by mistake: once it can be read, it is followed again."""
    file.unlink()
    file.mkdir()
    with pytest.raises(OSError, match="no log"):
        log.ended_run()
    file.rmdir()
    file.write_text(START)
    assert fault_of(log.ended_run()) == "Fatal error occurred: java.io.IOException: disk on fire"


def test_the_watch_reports_a_run_that_is_over(
    file: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no JobManager has been visible."""
    monkeypatch.setattr(processes, "find", lambda _: [])
    ends = Ends(CLUSTER, log=file)
    ends.watch.start(ends.observed.put)
    assert eventually(lambda: any(path.samefile(file) for path in Path("/proc/self/fd").iterdir() if path.exists()))

    def reports() -> bool:
        append(file, START + FAULT)
        return not ends.observed.empty()

    assert eventually(reports)
    observed = ends.observed.get()
    ends.watch.stop()
    assert isinstance(observed, LogEndRead)
    assert (observed.cluster_id, observed.pod_uid, fault_of(observed.log)) == (
        "orders",
        None,
        "Fatal error occurred: java.io.IOException: disk on fire",
    )
