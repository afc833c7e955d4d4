"""A small run of Spark has Java's first compiler alone, a large one the second for the methods that need it, a huge one for all."""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from datetime import timedelta
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log import workload
from sidecar.audit.log.workload import run_of_ingest, run_of_materialization, run_over
from sidecar.audit.spark import jvm, spark_session
from sidecar.audit.spark.jvm import Run, java_options
from sidecar.audit.upkeep.materialize import materialize
from sidecar.cli.audit import audit
from tests.audit.conftest import YESTERDAY
from tests.audit.spooling import seal, transition

DIRECTIVES = Path(jvm.__file__).with_name("compiler_directives.json")
PATTERNS = json.loads(DIRECTIVES.read_text())[0]["match"]
OF_JAVA = ("java/", "jdk/", "sun/")
LARGE = 20_000_001
HUGE = 200_000_001
HUGE_DATES = 100_000_001
START = """
import sys
from pathlib import Path
from sidecar.audit.spark import jvm
from sidecar.audit.spark.jvm import Run
from sidecar.audit.spark.spark_session import spark_session

jvm._DIRECTIVES = Path(sys.argv[1])
with spark_session("local[1]", {"spark.driver.memory": "600m"}, run=Run.LARGE) as spark:
    java = spark._jvm.java.lang.management.ManagementFactory
    print(spark.range(3).count(), *java.getRuntimeMXBean().getInputArguments(), sep="\\n")
"""


def fill(folder: Path, size: int) -> None:
    """A file that takes no space on the disk."""
    date = folder / "transitions" / "event_date=2026-11-20"
    date.mkdir(parents=True)
    with (date / "1.parquet").open("wb") as file:
        file.truncate(size)


def test_a_folder_is_large_by_the_bytes_in_it_and_below(tmp_path: Path) -> None:
    """A folder that does not exist yet is empty; a link that leads nowhere has no size."""
    log = tmp_path / "log of mine"
    fill(log, LARGE - 1)
    (log / "gone").symlink_to("nowhere")
    assert {run_over(str(log)), run_over(str(tmp_path / "new"))} == {Run.SMALL}
    (log / "one more").write_bytes(b"!")
    assert {run_over(url) for url in (str(log), f"file://{log}", log.as_uri())} == {Run.LARGE}


@pytest.mark.parametrize("url", ["s3://bucket/audit", "s3a://bucket/audit", "s3://[bucket/audit"])
def test_what_cannot_be_measured_is_taken_to_be_large(url: str, tmp_path: Path) -> None:
    """A second of CPU time too much costs less than a long run at half the speed."""
    assert run_over(url) is Run.LARGE
    assert {run_of_ingest(str(tmp_path), url), run_of_ingest(url, str(tmp_path))} == {Run.LARGE}
    assert run_of_materialization(url) is Run.LARGE


@pytest.mark.parametrize(
    ("size", "run"), [(LARGE - 1, Run.SMALL), (LARGE, Run.LARGE), (HUGE - 1, Run.LARGE), (HUGE, Run.HUGE)]
)
def test_an_ingest_is_as_large_as_its_spool(size: int, run: Run, tmp_path: Path) -> None:
    """It reads each new segment. A question reads a part of a log: no log makes it huge."""
    fill(tmp_path / "spool", size)
    assert run_of_ingest(str(tmp_path / "spool"), str(tmp_path / "log")) is run
    assert run_over(str(tmp_path / "spool")) is (Run.LARGE if size >= LARGE else Run.SMALL)


def test_an_ingest_into_a_large_log_is_large(tmp_path: Path) -> None:
    """It compares its ids with all that the log has."""
    fill(tmp_path / "log", HUGE)
    assert run_of_ingest(str(tmp_path / "spool"), str(tmp_path / "log")) is Run.LARGE


@pytest.mark.spark
def test_segments_that_were_ingested_do_not_count(
    spark: SparkSession, spool: Path, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spool keeps them for days. With a damaged list of them they count again."""
    segment = seal(spool, "jm-0", 1, [transition(number) for number in range(9)])
    monkeypatch.setattr(workload, "_HUGE_SPOOL_BYTES", segment.stat().st_size - 1)
    before = run_of_ingest(str(spool), str(audit))
    ingest(spark, str(spool), str(audit))
    behind = [run_of_ingest(url, str(audit)) for url in (str(spool), f"{spool}/", spool.as_uri())]
    assert (before, behind) == (Run.HUGE, [Run.SMALL] * 3)
    for file in audit.glob("_checkpoints/ingest/*/segments/*.json"):
        file.write_text("[")
    assert run_of_ingest(str(spool), str(audit)) is Run.HUGE


@pytest.mark.parametrize(
    ("size", "run"), [(LARGE - 1, Run.SMALL), (LARGE, Run.LARGE), (HUGE_DATES - 1, Run.LARGE), (HUGE_DATES, Run.HUGE)]
)
def test_a_materialization_is_as_large_as_what_was_never_closed(size: int, run: Run, tmp_path: Path) -> None:
    """It reads each record of those dates."""
    fill(tmp_path, size)
    assert run_of_materialization(str(tmp_path)) is run


@pytest.mark.spark
def test_dates_that_are_closed_do_not_count(spark: SparkSession, spool: Path, audit: Path) -> None:
    """With a damaged manifest they count again. What is no file is not waited for."""
    seal(spool, "jm-0", 1, [transition(number, YESTERDAY - timedelta(days=9)) for number in range(9)])
    ingest(spark, str(spool), str(audit))
    (day,) = (audit / "transitions").iterdir()
    with (day / "ballast").open("wb") as file:
        file.truncate(HUGE_DATES)
    before = run_of_materialization(str(audit))
    materialize(spark, str(audit))
    behind = run_of_materialization(audit.as_uri())
    (manifest,) = audit.glob("_closed/manifest-*.json")
    manifest.write_text("[")
    os.mkfifo(audit / "_closed" / f"manifest-{2:012}.json")
    assert (before, behind, run_of_materialization(str(audit))) == (Run.HUGE, Run.LARGE, Run.HUGE)


@pytest.mark.parametrize("command", ["ingest", "sql", "shell", "compact", "materialize", "verify", "report"])
def test_every_command_looks_at_its_log(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ingest at its spool, too."""
    sizes = list[Run]()

    def started(*_: Any, run: Run, **__: Any) -> None:
        sizes.append(run)
        raise AuditError("no further")

    monkeypatch.setattr(spark_session, "spark_session", started)
    more = {"ingest": ["--spool", str(tmp_path / "spool")], "sql": ["SELECT 1"], "report": ["--html", "report.html"]}
    arguments = [command, "--audit", str(tmp_path / "log"), *more.get(command, [])]
    CliRunner().invoke(audit, arguments)
    fill(tmp_path / ("spool" if command == "ingest" else "log"), HUGE)
    CliRunner().invoke(audit, arguments)
    assert sizes == [Run.SMALL, Run.HUGE if command in {"ingest", "compact", "materialize"} else Run.LARGE]


def test_java_knows_every_directive(java: Path) -> None:
    """It reads each of the patterns."""
    command = [str(java), *shlex.split(java_options(Run.LARGE)), "-XX:+CompilerDirectivesPrint", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lists = [line.partition("matching: ")[2] for line in done.stdout.splitlines() if "matching: " in line]
    assert {pattern for patterns in lists for pattern in patterns.strip().split(", ")} == {*PATTERNS, "*.*"}


@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if not pattern.startswith(OF_JAVA)])
def test_each_directive_names_classes_that_exist(pattern: str, class_names: frozenset[str]) -> None:
    """A newer Spark may have moved them: the directive would be without effect."""
    name = pattern.removesuffix(".*")
    assert any(fnmatchcase(found, f"{name}.class") for found in class_names)


@pytest.fixture(scope="module")
def class_names() -> frozenset[str]:
    """The classes of Spark's jars."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    names = set[str]()
    for jar in (Path(spec.origin).parent / "jars").glob("*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names.update(archive.namelist())
    return frozenset(names)


@pytest.mark.spark
def test_spark_starts_with_directives_in_any_folder(tmp_path: Path) -> None:
    """Also below one with a space and a quotation mark in its name."""
    place = tmp_path / "o'clock at noon" / "directives.json"
    place.parent.mkdir()
    place.write_bytes(DIRECTIVES.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", START, str(place)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=True,
    )
    count, *arguments = done.stdout.splitlines()
    assert (count, done.stderr) == ("3", "")
    assert f"-XX:CompilerDirectivesFile={place}" in arguments
    assert not any("TieredStopAtLevel" in argument for argument in arguments)
