"""What the audit commands write for a while is gone when they are, however they end."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sidecar.audit.spark.spark_session import scratch_folder
from tests.kit.waiting import PATIENCE_SECONDS

HOLDER = """
import sys
from sidecar.audit.spark.spark_session import scratch_folder

with scratch_folder() as folder:
    (folder / "spilled").write_text("much")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def another() -> tuple["subprocess.Popen[str]", Path]:
    """A process that has such a folder, until its standard input is closed, and the folder."""
    command = [sys.executable, "-c", HOLDER]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_the_folder_is_removed_in_the_end(temporary: Path) -> None:
    """With all that is in it. Nobody else can read it meanwhile."""
    with scratch_folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        assert folder.parent.stat().st_mode & 0o077 == 0
    assert list(temporary.iterdir()) == []


def test_that_of_a_killed_process_is_removed_and_that_of_a_running_one_is_not(temporary: Path) -> None:
    """The kernel knows which is which: process ids are used again, and are others in each container."""
    killed, left = another()
    running, used = another()
    try:
        killed.kill()
        killed.communicate(timeout=PATIENCE_SECONDS)
        assert (left / "spilled").exists()
        with scratch_folder() as folder:
            assert sorted(temporary.iterdir()) == sorted([folder.parent, used.parent])
            assert (used / "spilled").exists()
    finally:
        running.communicate(timeout=PATIENCE_SECONDS)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("planted", ["a link to a folder", "a folder of somebody else"])
def test_what_somebody_else_has_put_there_is_left_alone(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory, planted: str
) -> None:
    """Everybody can write to /tmp."""
    precious = tmp_path_factory.mktemp("precious")
    (precious / "files").mkdir()
    (precious / "in-use").touch()
    place = temporary / "flink-ha-audit-planted"
    if planted == "a link to a folder":
        place.symlink_to(precious)
    else:
        if os.geteuid():
            pytest.skip("only root can give a folder to somebody else")
        place.mkdir()
        (place / "in-use").touch()
        (place / "files").mkdir()
        os.chown(place, 12345, 12345)
    with scratch_folder():
        pass
    assert (precious / "files").exists()
    assert (place / "files").exists()
