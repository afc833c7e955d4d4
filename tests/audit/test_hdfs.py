"""A spool and an audit log on HDFS: what holds in an object store holds there, with the same lock and the same compaction."""

import random
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.bucket import writer_lock
from sidecar.audit.log.bucket.replacement import BARRIER
from sidecar.audit.log.hdfs import HdfsStore
from sidecar.audit.log.paths import escape_pattern
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.retention import ExpireResult, expire
from sidecar.audit.upkeep.verify import VerifyResult, verify
from sidecar.cli.audit import audit as audit_command
from tests.audit.conftest import Log
from tests.audit.recorded import records as recorded
from tests.audit.remote_killing import RemoteRounds
from tests.audit.spooling import NOON, coverage, ids, ids_seen, ids_seen_without_spark, seal, transition
from tests.audit.test_retention import OLD
from tests.kit.hdfs import hdfs

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an HDFS for all of these tests."""
    with hdfs(tmp_path_factory.mktemp("hdfs")) as url:
        yield url


class Folder(HdfsStore):
    """The test's folder on HDFS, which may not exist yet: its spool and its audit log."""

    def __init__(self, spark: SparkSession, url: str, here: Path) -> None:
        super().__init__(spark, url)
        self._here = here
        self.spool, self.audit = f"{self.url}/spool", f"{self.url}/audit"

    def upload(self, folder: Path, *, without: str = "") -> None:
        """Copy a folder and what is in it; a file that is there stays."""
        for file in folder.rglob("*"):
            path = file.relative_to(folder.parent).as_posix()
            if file.is_file() and not (without and f"/{without}" in path) and not self.exists(path):
                self.put(path, file.read_bytes())

    def download(self) -> Path:
        """A copy of the audit log on this machine, for readers that know no HDFS."""
        shutil.rmtree(self._here / "copy", ignore_errors=True)
        for file in self.list("audit"):
            (self._here / "copy" / file.path).parent.mkdir(parents=True, exist_ok=True)
            (self._here / "copy" / file.path).write_bytes(self.read(file.path))
        return self._here / "copy" / "audit"

    def age(self, path: str) -> None:
        """Make a file three days old."""
        self._fs.setTimes(self._path(path), int(OLD * 1000), -1)

    def tables(self) -> list[str]:
        """The files of `transitions`."""
        return [file.path for file in self.list("audit/transitions")]


@pytest.fixture
def folder(spark: SparkSession, name_node: str, tmp_path: Path) -> Folder:
    """A folder for one test, with characters in its name that are of patterns and of URLs."""
    return Folder(spark, f"{name_node}/{tmp_path.name} [1] 100%41", tmp_path)


def test_each_record_is_there_once(spark: SparkSession, folder: Folder, spool: Path) -> None:
    """After a lost checkpoint, a second observer and a damaged segment: as in a local folder, for other readers too."""
    records = [transition(n, NOON + timedelta(days=n % 2)) for n in range(20)]
    seal(spool, "jm-0", 1, records[:10])
    folder.upload(spool)
    assert ingest(spark, folder.spool, folder.audit).rows["transitions"] == 10
    assert ingest(spark, folder.spool, folder.audit).files == 0
    folder.delete("audit/_checkpoints")
    seal(spool, "jm-1", 1, records[5:])
    torn = seal(spool, "jm-2", 1, records)
    torn.write_bytes(torn.read_bytes()[:40])
    folder.upload(spool)
    again = ingest(spark, folder.spool, f"{folder.audit}/")
    assert (again.rows["transitions"], again.quarantined, again.files) == (10, 1, 3)
    assert ids_seen(spark, folder.download(), "transitions") == ids(records)
    assert spark.read.parquet(escape_pattern(f"{folder.audit}/transitions")).count() == 20
    count = run_sql(spark, folder.audit, "SELECT count(*), count(DISTINCT id) FROM transitions")
    assert [*count.rows] == [[20, 20]]
    damaged = run_sql(spark, folder.audit, "SELECT file FROM quarantine")
    assert [*damaged.rows] == [[torn.relative_to(spool).as_posix()]]
    assert verify(spark, folder.audit) == VerifyResult(files=5, rows=21, findings=[])


def test_every_command_takes_a_url_of_hdfs(
    spark: SparkSession, folder: Folder, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest, compaction with retention and materialization, a query, a check, a report: on the command line."""
    monkeypatch.setattr("sidecar.audit.spark.session.spark_session", lambda *_, **__: nullcontext(spark))
    records = recorded("2.3.0")
    seal(spool, "jm-0", 1, records)
    folder.upload(spool)

    def run(command: str, *arguments: str) -> str:
        options = ["--audit", folder.audit, *arguments]
        result = CliRunner().invoke(audit_command, [command, *options], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    assert run("ingest", "--spool", folder.spool).startswith("1 segments: 89 transitions, ")
    tomorrow = datetime.fromisoformat(records[-1].observed_at) + timedelta(days=1)
    kept = run("compact", "--spool", folder.spool, "--keep", "36500d", "--before", str(tomorrow.date()))
    assert kept.endswith("\nmaterialized: 1 dates\n")
    assert run("sql", "--output", "csv", "SELECT count(*) AS n FROM transitions") == "n\n89\n"
    assert run("verify").endswith(": nothing wrong\n")
    report = tmp_path / "report.html"
    assert run("report", "--html", str(report)).startswith(f"{report}: ")


def test_compacted_it_has_one_file_a_date(spark: SparkSession, folder: Folder, log: Log, tmp_path: Path) -> None:
    """With the same rows; a late record is added beside it, and the next compaction includes it."""
    folder.upload(log.audit, without="_")
    done = compact(spark, folder.audit)
    assert (done.dates, done.files) == (4, 16)
    assert len(folder.tables()) == 4
    assert ids_seen(spark, folder.download(), "transitions") == log.ids
    late = transition(1000, NOON)
    seal(tmp_path / "late", "jm-9", 1, [late])
    ingest(spark, str(tmp_path / "late"), folder.audit)
    assert compact(spark, folder.audit).dates == 0
    assert ids_seen(spark, folder.download(), "transitions") == sorted([*log.ids, late.id])
    assert verify(spark, folder.audit).findings == []


def test_what_is_too_old_goes(spark: SparkSession, folder: Folder, log: Log) -> None:
    """Segments, if the log has what is in them; and dates, with their folders."""
    folder.upload(log.audit, without="_")
    seal(log.spool, "jm-9", 1, [coverage(1, NOON + timedelta(days=9999))])
    folder.upload(log.spool)
    segments = sorted(file.path for file in folder.list("spool"))
    for path in (*segments[:2], segments[-1]):
        folder.age(path)
    assert expire(spark, folder.audit, 2, spool=folder.spool) == ExpireResult(segments=2, dates=2, not_ingested=1)
    assert sorted(file.path for file in folder.list("spool")) == segments[2:]
    assert ids_seen(spark, folder.download(), "transitions") == ids([transition(n) for n in range(80) if n % 4 < 2])
    assert len(folder.children("audit/transitions")) == 2


def test_two_writers_at_once_wait_for_each_other(spark: SparkSession, folder: Folder, tmp_path: Path) -> None:
    """Of the same changes, seen by two observers in two spools: each is there once."""
    records = [transition(n) for n in range(20)]
    for number in range(2):
        seal(tmp_path / f"spool-{number}", f"jm-{number}", 1, records)
    with ThreadPoolExecutor() as pool:
        done = [*pool.map(lambda number: ingest(spark, str(tmp_path / f"spool-{number}"), folder.audit), range(2))]
    assert sorted(one.rows["transitions"] for one in done) == [0, 20]
    assert ids_seen(spark, folder.download(), "transitions") == ids(records)


def ingest_late(spark: SparkSession, audit: str) -> object:
    """What is in the test's other spool."""
    return ingest(spark, audit.replace("/audit", "/late"), audit)


@pytest.mark.parametrize("stalled", [compact, ingest_late])
def test_who_stalled_adds_nothing_when_it_continues(
    spark: SparkSession,
    folder: Folder,
    log: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stalled: Callable[[SparkSession, str], object],
) -> None:
    """It stalls just before a file becomes visible; its successor, which cannot know whether it ever will, does the same."""
    late = transition(1000, NOON)
    seal(tmp_path / "late", "jm-9", 1, [late])
    folder.upload(tmp_path / "late")
    folder.upload(log.audit, without="_")
    monkeypatch.setattr(writer_lock.Process, "has_ended", lambda _: True)
    move, successors = HdfsStore.move, [ingest_late]

    def move_late(store: HdfsStore, url: str, path: str) -> None:
        if path.startswith("transitions/") and BARRIER not in path and successors:
            successors.pop()(spark, folder.audit)
        move(store, url, path)

    monkeypatch.setattr(HdfsStore, "move", move_late)
    with pytest.raises(
        AuditError, match=re.escape(f"another process has taken over the lock of {folder.audit}, because")
    ):
        stalled(spark, folder.audit)
    ingest_late(spark, folder.audit)
    assert ids_seen(spark, folder.download(), "transitions") == sorted([*log.ids, late.id])
    assert verify(spark, folder.audit).findings == []


class HdfsRounds(RemoteRounds):
    """The rounds with the log on HDFS, and the spool on this machine."""

    def __init__(self, folder: Folder, here: Path, chance: random.Random) -> None:
        super().__init__(here, here, chance, spool=str(here / "spool"), audit=folder.audit)
        self._store = folder

    def visible(self) -> Collection[object]:
        return {*self._store.tables()}

    def plain_ids(self) -> list[str]:
        return ids_seen_without_spark(self._store.download(), "transitions")


def test_killed_again_and_again_each_id_is_there_once(spark: SparkSession, folder: Folder, tmp_path: Path) -> None:
    """Ingests and compactions end with kill -9 at random moments."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    rounds = HdfsRounds(folder, tmp_path, random.Random(seed))
    rounds.play_all(spark, 3)
    assert rounds.plain_ids() == sorted(rounds.ids)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("{name_node}/missing", "cannot verify {name_node}/missing: there is no such folder"),
        (
            "ofs://om/audit",
            "cannot use ofs://om/audit: ofs:// is not supported; use a folder of this machine, hdfs://, s3://, gs:// or abfss://",
        ),
    ],
)
def test_what_cannot_be_used_is_one_line(spark: SparkSession, name_node: str, url: str, reason: str) -> None:
    """A folder that is not there, and another file system that Hadoop knows."""
    with pytest.raises(AuditError) as error:
        verify(spark, url.format(name_node=name_node))
    assert str(error.value) == reason.format(name_node=name_node)
