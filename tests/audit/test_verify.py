"""`audit verify` reports every problem, and changes nothing; bad input is one clear line, and damages nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.verify import VerifyResult, verify
from sidecar.cli.audit import audit as command
from sidecar.cli.main import main
from tests.audit.conftest import YESTERDAY, Log
from tests.audit.spooling import ids, ids_seen, seal, transition

pytestmark = pytest.mark.spark

KILLED = """
import os, pathlib, signal
from sidecar.audit.log.storage import Storage
from sidecar.cli.main import main

def killing(_, path):
    (jvm,) = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    os.kill(int(jvm), signal.SIGKILL)
    Storage.parquet_schema = look
    return look(_, path)

look, Storage.parquet_schema = Storage.parquet_schema, killing
main()
"""
"""A command whose JVM is killed in the moment in which it looks at its first file."""


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sound_log_is_sound(spark: SparkSession, log: Log) -> None:
    """Everything was read, nothing is wrong, nothing was changed."""
    before = contents(log.audit)
    assert verify(spark, str(log.audit)) == VerifyResult(files=16, rows=80, findings=[])
    assert contents(log.audit) == before


def test_each_thing_that_is_wrong_is_a_line(spark: SparkSession, log: Log) -> None:
    """Unreadable files, duplicates within and across dates, a wrong date, strangers, other schemas, leftovers."""
    transitions = log.audit / "transitions"
    folders = sorted(transitions.iterdir())
    names = [sorted(file.name for file in folder.iterdir()) for folder in folders]
    expected = []

    def wrong(path: str, problem: str) -> None:
        expected.append((path, problem))

    (folders[0] / names[0][0]).write_bytes(b"PAR1 garbage PAR1")
    wrong(f"transitions/{folders[0].name}/{names[0][0]}", "unreadable: ")
    flipped = bytearray((folders[0] / names[0][1]).read_bytes())
    flipped[60] ^= 0xFF
    (folders[0] / names[0][1]).write_bytes(flipped)
    wrong(f"transitions/{folders[0].name}/{names[0][1]}", "unreadable: ")
    shutil.copy(folders[1] / names[1][0], folders[1] / "again.parquet")
    for row in pq.read_table(folders[1] / names[1][0], columns=["id"])["id"].to_pylist():
        wrong("transitions", f"id {row} exists 2 times, on {folders[1].name[11:]}")
    moved = shutil.move(folders[2] / names[2][0], folders[3] / "moved.parquet")
    wrong(f"transitions/{folders[3].name}/{Path(moved).name}", "5 rows of another date")
    pq.write_table(pa.table({"weather": ["fine"]}), folders[3] / "foreign.parquet")
    wrong(f"transitions/{folders[3].name}/foreign.parquet", "not of an audit log: no ingest wrote it")
    (transitions / "event_date=tomorrow").mkdir()
    (transitions / "event_date=tomorrow" / "x.parquet").write_bytes(b"")
    wrong("transitions/event_date=tomorrow/x.parquet", "not of an audit log")
    mixed = spark.read.parquet(str(folders[3] / names[3][0]))
    for changed, problem in (
        (
            mixed.selectExpr("*", "1 AS mood"),
            "written by a newer version: mood is not known; this version does not show it",
        ),
        (
            mixed.withColumn("unobserved", mixed.unobserved.cast("string")),
            "unobserved is string, in this version it is bigint",
        ),
        (mixed.drop("id"), "not of an audit log: it has no id"),
    ):
        changed.limit(0).coalesce(1).write.mode("append").parquet(str(log.audit.parent / "made"))
        (made,) = (log.audit.parent / "made").glob("*.parquet")
        wrong(f"transitions/{folders[3].name}/{made.rename(folders[3] / made.name).name}", problem)
    (log.audit / "_staging" / "dead").mkdir()
    wrong("_staging", "leftovers of an ingest or a compaction that died; the next one removes them")
    (log.audit / "holiday.jpg").write_bytes(b"")
    wrong("holiday.jpg", "not of an audit log")
    before = contents(log.audit)
    problems = [tuple(finding.split(": ", 1)) for finding in verify(spark, str(log.audit)).findings]
    assert len(problems) == len(expected)
    for (path, problem), (said_of, said) in zip(sorted(expected), sorted(problems), strict=True):
        assert (path, said[: len(problem)]) == (said_of, problem)
        assert "\n" not in said
    assert contents(log.audit) == before


@pytest.mark.covers("command:audit verify")
def test_the_command_ends_with_1_when_something_is_wrong(log: Log) -> None:
    """A line for each finding, and one to sum up; 0 and that one line otherwise."""
    run = [sys.executable, "-m", "sidecar", "audit", "verify", "--audit", str(log.audit), "--master", "local[1]"]
    (log.audit / "holiday.jpg").write_bytes(b"")
    wrong = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "holiday.jpg: not of an audit log\n16 files, 80 rows: 1 wrong\n")


@pytest.mark.parametrize("name", ["compact", "verify"])
def test_no_log_is_one_clear_line(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A missing folder, or a foreign one."""
    calls: dict[str, Callable[[SparkSession, str], object]] = {"compact": compact, "verify": verify}
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_text("")
    for folder, problem in (("nowhere", "there is no such folder"), ("photos", "it is not an audit log")):
        with pytest.raises(AuditError) as failure:
            calls[name](spark, str(tmp_path / folder))
        assert str(failure.value) == f"cannot {name} {tmp_path / folder}: {problem}"
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--keep", "400"], "'400' is not a number of whole days like 400d"),
        (["--keep", "0d"], "'0d' is not a number of whole days like 400d"),
        (["--keep", "4h"], "'4h' is not a number of whole days like 400d"),
        (["--spool", "s"], "--spool is for --keep"),
        (["--before", "yesterday"], "'yesterday' does not match the format"),
    ],
)
def test_options_without_a_meaning_are_reported(options: list[str], problem: str) -> None:
    """Before anything is done."""
    result = CliRunner().invoke(command, ["compact", "--audit", "a", *options])
    assert result.exit_code == 2
    assert problem in result.output


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("to mount a small disk takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["/bin/umount", "--lazy", folder], check=True)


def test_a_full_disk_is_one_clear_line(
    spark: SparkSession, log: Log, small_disk: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither an ingest nor a compaction that runs out of space leaves anything half done, and both go on when there is space again."""
    target = small_disk / "audit"
    shutil.copytree(log.audit, target)
    records = [transition(n, YESTERDAY - timedelta(days=n % 4)) for n in range(100, 4100)]
    seal(log.spool, "jm-1", 1, records)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - 64 * 1024))
    # The command, but with the Spark that runs already.
    monkeypatch.setattr("sidecar.audit.spark.spark_session.spark_session", lambda *_, **__: nullcontext(spark))
    for arguments in (["compact"], ["ingest", "--spool", str(log.spool)]):
        monkeypatch.setattr("sys.argv", ["flink-ha-sidecar", "audit", *arguments, "--audit", str(target)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed, said = capfd.readouterr()
        assert (ended.value.code, printed, said.count("\n")) == (1, "", 1)
        assert said.endswith(": no space is left on the device\n")
        assert ids_seen(spark, target, "transitions") == log.ids
    ballast.unlink()
    assert ingest(spark, str(log.spool), str(target)).rows["transitions"] == len(records)
    assert compact(spark, str(target), before=(YESTERDAY - timedelta(days=2)).date()).folders == 1
    assert ids_seen(spark, target, "transitions") == sorted([*log.ids, *ids(records)])


def test_with_a_dead_jvm_no_file_is_called_unreadable(log: Log) -> None:
    """It says that it cannot see, in one line, and nothing about what it would have seen."""
    arguments = ["audit", "verify", "--audit", str(log.audit), "--master", "local[1]"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"flink-ha-sidecar: cannot verify {log.audit}: Spark's JVM was killed or has died\n"
