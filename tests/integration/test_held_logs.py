"""The end of a JobManager's log is read when it ends, whatever happens to the file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.core.observations import LogEndRead
from sidecar.drivers.processes.held_log import HeldLog
from sidecar.host import processes
from tests.integration.test_process_ends import CLUSTER, MAIN, Ends, Eventually, Flink, flink, own_processes

__all__ = ["flink", "own_processes"]

START = "2026-11-26 10:00:00,000 INFO  o.a.f.r.e.ClusterEntrypoint [] - Starting StandaloneSessionClusterEntrypoint (Version: 2.3.0)\n"
FAULT = "2026-11-26 10:00:01,000 ERROR o.a.f.r.e.ClusterEntrypoint [] - Fatal error occurred.\njava.io.IOException: disk on fire\n"
LATER = "2026-11-26 10:00:02,000 INFO  o.a.f.r.e.ClusterEntrypoint [] - and so on\n"
NAME = "flink--standalonesession-0-host.log"

Change = Callable[[Path], None]


def fault_of(log: HeldLog) -> str | None:
    end = log.end(alone=True)
    log.close()
    return end.first_fault if end else None


def test_the_log_of_a_jobmanager_that_ends_is_read(
    flink: Flink, java: Path, eventually: Eventually, tmp_path: Path
) -> None:
    """The one that its own options name; it comes after the end of the process."""
    (tmp_path / NAME).write_text(START + FAULT)
    (tmp_path / "flink--standalonesession-1-host.log").write_text(START)
    ends = Ends(CLUSTER, log=tmp_path)
    ends.watch.start(ends.observe)
    process = ends.see(flink(MAIN, f"-Dlog.file={tmp_path / NAME}", java=java), eventually)
    process.kill()
    ends.of(process)
    observed = ends.observed.get(timeout=10)
    ends.watch.stop()
    assert isinstance(observed, LogEndRead)
    assert (observed.cluster_id, observed.pod_uid, observed.log.source) == ("orders", None, NAME)
    assert observed.log.first_fault == "Fatal error occurred: java.io.IOException: disk on fire"


def test_what_the_next_jobmanager_appends_is_not_read(tmp_path: Path) -> None:
    """It may start, and fail, before the log of the one that ended is read."""
    file = tmp_path / "flink.log"
    file.write_text(START + FAULT)
    log = HeldLog(file, None)
    log.look(alone=True)
    log.mark_end()
    with file.open("a") as appended:
        appended.write(START + FAULT.replace("disk on fire", "port in use"))
    assert fault_of(log) == "Fatal error occurred: java.io.IOException: disk on fire"


def test_a_log_that_cannot_be_read_is_one_line(
    flink: Flink,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However often it is tried; all else is observed."""
    process, find = flink(), processes.find
    monkeypatch.setattr(processes, "find", lambda ours: [each for each in find(ours) if each.pid == process.pid])
    ends = Ends(CLUSTER, log=tmp_path / "none.log")
    ends.watch.start(ends.observe)
    ends.see(process, eventually)
    process.kill()
    ends.of(process)
    ends.watch.stop()
    assert [line for line in caplog.messages if "log" in line] == [
        f"what the end of a JobManager's log says is not known: {tmp_path / 'none.log'}: No such file or directory"
    ]
    assert ends.observed.empty()


def rotated(path: Path) -> None:
    """By the process itself, which goes on."""
    path.rename(f"{path}.1")
    path.write_text(LATER)


def begun_anew(path: Path) -> None:
    """By the next process."""
    path.rename(f"{path}.1")
    path.write_text(START)


def truncated(path: Path) -> None:
    """By logrotate's copytruncate; what is appended by position leaves a hole."""
    Path(f"{path}.1").write_text(path.read_text())
    os.truncate(path, 0)
    with path.open("r+") as file:
        file.seek(100)
        file.write(LATER)


def removed(path: Path) -> None:
    """And nothing follows."""
    path.unlink()


@pytest.mark.parametrize("change", [rotated, begun_anew, truncated, removed])
def test_whatever_is_done_to_the_file_its_last_run_is_read(change: Change, tmp_path: Path) -> None:
    """Between the last look at it and the end."""
    path = tmp_path / NAME
    path.write_text(START + FAULT)
    log = HeldLog(path, None)
    log.look(alone=True)
    change(path)
    assert fault_of(log) == "Fatal error occurred: java.io.IOException: disk on fire"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    """What is before that is not its end."""
    (tmp_path / NAME).write_text(START + FAULT + LATER * 10_000)
    assert fault_of(HeldLog(tmp_path, None)) is None


def test_what_is_no_text_is_not_read(tmp_path: Path) -> None:
    """As of a file that was named by mistake."""
    (tmp_path / NAME).write_bytes(b"\x7fELF\0\0\0\1" * 1000)
    with pytest.raises(OSError, match="it is not a text") as caught:
        fault_of(HeldLog(tmp_path / NAME, None))
    assert caught.value.strerror == "it is not a text"


@pytest.mark.parametrize("content", ["", "\0\0"])
def test_an_empty_log_says_nothing(content: str, tmp_path: Path) -> None:
    """A hole neither."""
    (tmp_path / NAME).write_text(content)
    assert fault_of(HeldLog(tmp_path, None)) is None


def test_the_newest_log_of_a_jobmanager_is_read(tmp_path: Path) -> None:
    """Not a TaskManager's, nor one that has been rotated."""
    for number, name in enumerate(
        ["flink--standalonesession-1-host.log", NAME, f"{NAME}.1", "flink--taskexecutor-0-host.log"]
    ):
        (tmp_path / name).write_text(START)
        os.utime(tmp_path / name, (number, number))
    log = HeldLog(tmp_path, "other.log")
    log.look(alone=True)
    log.close()
    assert log.path.name == NAME


def test_of_several_jobmanagers_each_has_its_own_log(tmp_path: Path) -> None:
    """What is not certainly its own is not read: it would be another one's reason."""
    (tmp_path / NAME).write_text(START + FAULT)
    with pytest.raises(OSError, match="several JobManagers run here"):
        HeldLog(tmp_path / NAME, "other.log").look(alone=False)
    with pytest.raises(OSError, match="several JobManagers run here"):
        HeldLog(tmp_path, "other.log").look(alone=False)
    for place in (tmp_path, tmp_path / NAME):
        log = HeldLog(place, NAME)
        log.look(alone=False)
        assert fault_of(log)
