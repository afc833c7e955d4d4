"""A spool and an audit log in an object store: what holds for folders holds there, and no Hadoop package is needed."""

import logging
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest import ingest as ingesting
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.audit_log import open_storage
from sidecar.audit.log.closed_tables import read_files
from sidecar.audit.log.replacement import Replacement, put_barrier
from sidecar.audit.log.tables import TABLES
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.retention import ExpireResult, expire
from sidecar.audit.upkeep.verify import VerifyResult, verify
from sidecar.cli.audit import audit
from sidecar.net.object_store import ObjectStore
from tests.audit.conftest import Log, reach_anew
from tests.audit.recorded import records as recorded
from tests.audit.remote_killing import RemoteRounds
from tests.audit.spooling import NOON, coverage, ids, ids_seen, seal, transition
from tests.audit.test_retention import age
from tests.kit.s3_server import BUSY, Line, S3Server

pytestmark = pytest.mark.spark

SPOOL, AUDIT = "s3://bucket/spool", "s3://bucket/audit"
NO_SECRETS = "it must hold no user, no password, no ? and no #; credentials and options come from the environment"
COUNT = "SELECT count(*), count(DISTINCT id) FROM transitions"


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the audit logs; never a credential."""
    with caplog.at_level(logging.INFO, "sidecar.audit"):
        yield caplog
    assert "HUNTER2" not in caplog.text


def ask(spark: SparkSession, query: str = COUNT) -> list[list[Any]]:
    """The answer of `audit sql`."""
    return [*run_sql(spark, AUDIT, query).rows]


def test_each_record_is_there_once(spark: SparkSession, bucket: Path) -> None:
    """After a lost checkpoint, a second observer and a damaged segment: as in a local folder, for readers of the bucket too."""
    records = [transition(n, NOON + timedelta(days=n % 2)) for n in range(20)]
    seal(bucket / "spool", "jm-0", 1, records[:10])
    assert ingest(spark, SPOOL, AUDIT).rows["transitions"] == 10
    assert ingest(spark, SPOOL, AUDIT).files == 0
    shutil.rmtree(bucket / "audit" / "_checkpoints")
    seal(bucket / "spool", "jm-1", 1, records[5:])
    torn = seal(bucket / "spool", "jm-2", 1, records)
    torn.write_bytes(torn.read_bytes()[:40])
    again = ingest(spark, SPOOL, f"{AUDIT}/")
    assert (again.rows["transitions"], again.quarantined, again.files) == (10, 1, 3)
    assert ids_seen(spark, bucket / "audit", "transitions") == ids(records)
    assert ask(spark) == [[20, 20]]
    assert ask(spark, "SELECT file FROM quarantine") == [[torn.relative_to(bucket / "spool").as_posix()]]
    assert verify(spark, AUDIT) == VerifyResult(files=5, rows=21, findings=[])


def test_every_command_takes_a_bucket(
    spark: SparkSession, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingest, compaction with retention, a query, a check, a report, the statements of the views: on the command line."""
    monkeypatch.setattr("sidecar.audit.spark.spark_session.spark_session", lambda *_, **__: nullcontext(spark))
    records = recorded("2.3.0")
    seal(bucket / "spool", "jm-0", 1, records)
    # Without a date, those from then until today would be closed, too.
    tomorrow = datetime.fromisoformat(records[-1].observed_at) + timedelta(days=1)

    def run(command: str, *arguments: str) -> str:
        result = CliRunner().invoke(audit, [command, "--audit", AUDIT, *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    assert run("ingest", "--spool", SPOOL).startswith("1 segments: 89 transitions, ")
    kept = run("compact", "--spool", SPOOL, "--keep", "36500d", "--before", str(tomorrow.date()))
    expired, compacted, materialized = kept.splitlines()
    assert (expired, compacted) == ("expired: 0 segments, 0 folders", "compacted: 0 files in 0 folders")
    assert materialized == "materialized: 1 dates"
    assert run("sql", "--output", "csv", "SELECT count(*) AS n FROM transitions") == "n\n89\n"
    assert run("verify").endswith(": nothing wrong\n")
    report = tmp_path / "report.html"
    assert run("report", "--html", str(report)).startswith(f"{report}: ")
    assert f"OPTIONS (path '{AUDIT}/transitions'" in run("sql", "--print-views")


def test_a_segment_that_was_restored_is_ingested(spark: SparkSession, bucket: Path) -> None:
    """Under its old name: nothing has to be deleted for it."""
    records = [transition(n) for n in range(10)]
    segment = seal(bucket / "spool", "jm-0", 1, records)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:40])
    ingest(spark, SPOOL, AUDIT)
    segment.write_bytes(whole)
    ingest(spark, SPOOL, AUDIT)
    assert ids_seen(spark, bucket / "audit", "transitions") == ids(records)


def test_compacted_it_has_one_file_a_date(spark: SparkSession, bucket: Path, log: Log) -> None:
    """With the same rows; a late record is added beside it, and the next compaction includes it."""
    shutil.copytree(log.audit, bucket / "audit", ignore=shutil.ignore_patterns("_*"))
    done = compact(spark, AUDIT)
    assert (done.folders, done.files) == (4, 16)
    assert len([*(bucket / "audit" / "transitions").rglob("*.parquet")]) == 4
    assert ids_seen(spark, bucket / "audit", "transitions") == log.ids
    late = transition(1000, NOON)
    seal(bucket / "spool", "jm-0", 1000, [late])
    ingest(spark, SPOOL, AUDIT)
    assert compact(spark, AUDIT).folders == 0
    assert ids_seen(spark, bucket / "audit", "transitions") == sorted([*log.ids, late.id])
    assert verify(spark, AUDIT).findings == []


def test_what_is_too_old_goes(spark: SparkSession, bucket: Path, log: Log) -> None:
    """Segments, if the log has what is in them; and dates."""
    shutil.copytree(log.audit, bucket / "audit", ignore=shutil.ignore_patterns("_*"))
    shutil.copytree(log.spool, bucket / "spool")
    names = sorted(path.name for path in (bucket / "spool" / "jm-0").iterdir())
    for name in names[:2]:
        age(bucket / "spool" / "jm-0" / name)
    age(seal(bucket / "spool", "jm-9", 1, [coverage(1, NOON + timedelta(days=9999))]))
    assert expire(spark, AUDIT, 2, spool=SPOOL) == ExpireResult(segments=2, folders=2, not_ingested=1)
    assert sorted(path.name for path in (bucket / "spool").rglob("*.gz")) == [f"{1:016d}-{1:016d}.jsonl.gz", *names[2:]]
    assert ids_seen(spark, bucket / "audit", "transitions") == ids([transition(n) for n in range(80) if n % 4 < 2])


@pytest.mark.parametrize("remote", ["spool", "audit"])
def test_one_of_both_may_be_a_folder(spark: SparkSession, bucket: Path, tmp_path: Path, remote: str) -> None:
    """Followed, with a compaction in between: nothing is read twice, and nothing is left behind."""
    records = [transition(n) for n in range(30)]
    spool, folder = (
        (bucket if remote == "spool" else tmp_path) / "spool",
        (bucket if remote == "audit" else tmp_path) / "audit",
    )
    urls = (SPOOL, str(folder)) if remote == "spool" else (str(spool), AUDIT)
    stop = Event()
    seal(spool, "jm-0", 1, records[:10])

    def add() -> None:
        compact(spark, urls[1])
        seal(spool, "jm-0", 11, records[10:])

    with ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingesting, "LOOK_SECONDS", 0.2)
        following = pool.submit(ingest, spark, *urls, follow=True, stop=stop)
        while not [*folder.glob("transitions/*/*.parquet")]:
            assert not following.done(), following.result()
            stop.wait(0.05)
        add()
        while not following.done() and len([*folder.glob("transitions/*/*.parquet")]) < 2:
            stop.wait(0.05)
        stop.set()
        done = following.result()
    assert done.files == 2
    assert ids_seen(spark, folder, "transitions") == ids(records)


def test_two_writers_at_once_wait_for_each_other(spark: SparkSession, bucket: Path) -> None:
    """Of the same changes, seen by two observers in two spools: each is there once."""
    records = [transition(n) for n in range(20)]
    for number in range(2):
        seal(bucket / f"spool-{number}", f"jm-{number}", 1, records)
    with ThreadPoolExecutor() as pool:
        done = [*pool.map(lambda number: ingest(spark, f"s3://bucket/spool-{number}", AUDIT), range(2))]
    assert sorted(one.rows["transitions"] for one in done) == [0, 20]
    assert ids_seen(spark, bucket / "audit", "transitions") == ids(records)


def test_killed_again_and_again_each_id_is_there_once(spark: SparkSession, tmp_path: Path, bucket: Path) -> None:
    """Ingests and compactions end with kill -9 at random moments."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201  shown when it fails
    rounds = RemoteRounds(bucket, tmp_path, random.Random(seed))
    rounds.play_all(spark, 4)
    rounds.assert_complete(spark)


def test_a_store_that_is_busy_is_asked_again(
    spark: SparkSession, bucket: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third request is answered with 503, or its answer is lost."""
    chance, lock = random.Random(3), threading.Lock()
    records = [transition(n, NOON + timedelta(days=n % 2)) for n in range(10)]
    seal(bucket / "spool", "jm-0", 1, records)

    def refusal(_: str) -> tuple[int, str] | None:
        with lock:
            line.loses_answers = chance.random() < 0.2
            return BUSY if chance.random() < 0.2 else None

    with Line(s3_server) as line:
        line.refusal = refusal
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        reach_anew(spark)
        ingest(spark, SPOOL, AUDIT)
        compact(spark, AUDIT)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    reach_anew(spark)
    assert ids_seen(spark, bucket / "audit", "transitions") == ids(records)
    assert verify(spark, AUDIT).findings == []


def test_a_question_about_a_month_reads_that_month(
    spark: SparkSession, bucket: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at the server: a year has twelve times the bytes."""
    days = [NOON - timedelta(days=30 * month) for month in range(12)]
    seal(bucket / "spool", "jm-0", 1, [transition(n, days[n % 12]) for n in range(2400)])
    ingest(spark, SPOOL, AUDIT)
    month = f"{COUNT} WHERE event_date BETWEEN '{days[5] - timedelta(days=9):%F}' AND '{days[5]:%F}'"
    with Line(s3_server) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        reach_anew(spark)
        read = {}
        for query in (COUNT, month):
            before = line.sent
            assert ask(spark, query) == [[2400, 2400] if query == COUNT else [200, 200]]
            read[query] = line.sent - before
    reach_anew(spark)
    listing = sum(len(path.as_posix()) + 300 for path in (bucket / "audit").rglob("*"))
    assert read[month] - listing < (read[COUNT] - listing) / 4


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_replacement_that_has_not_ended_hides_one_side(spark: SparkSession, bucket: Path, is_complete: bool) -> None:
    """Spark reads the old files until the new one is there, then the new one; never the barrier, which is no Parquet file."""
    days = (NOON, NOON + timedelta(days=1))
    seal(bucket / "spool", "jm-0", 1, [transition(n, days[n % 2]) for n in range(20)])
    ingest(spark, SPOOL, AUDIT)
    folder = bucket / "audit" / "transitions" / f"event_date={NOON:%F}"
    (old,) = folder.iterdir()
    new = folder / "q-1.parquet"
    shutil.copy(old, new)
    replacement = Replacement((old.name,), {new.name: new.stat().st_size + (not is_complete)})
    put_barrier(ObjectStore(AUDIT, retries=0, retry_for=timedelta(0)), f"transitions/{folder.name}", replacement)
    assert ask(spark) == [[20, 20]]
    assert ask(spark, f"{COUNT} WHERE event_date = '{NOON:%F}'") == [[10, 10]]


def test_of_many_files_those_are_read_that_are_wanted(spark: SparkSession, bucket: Path) -> None:
    """Files of one ingest have the same name in each date's folder."""
    for first in (0, 24):
        records = [transition(n, NOON + timedelta(days=n % 12)) for n in range(first, first + 24)]
        seal(bucket / "spool", "jm-0", first + 1, records)
        ingest(spark, SPOOL, AUDIT)
    storage = open_storage(spark, AUDIT)
    files = sorted(
        path.relative_to(bucket / "audit").as_posix() for path in bucket.glob("audit/transitions/*/*.parquet")
    )
    wanted = random.Random(1).sample(files, 15)
    rows = sum(pq.read_metadata(bucket / "audit" / file).num_rows for file in wanted)
    assert read_files(spark, storage, "transitions", TABLES["transitions"].schema, wanted).count() == rows


@pytest.mark.parametrize(
    ("audit", "reason"),
    [
        ("s3://missing/audit", "cannot verify s3://missing/audit: there is no such bucket or container (NoSuchBucket)"),
        (AUDIT, "cannot verify s3://bucket/audit: there is no such folder"),
        ("s3://bucket//audit", "s3://bucket//audit cannot be used: it cannot be reached, or is no object store"),
        ("s3://AKID:HUNTER2@bucket/audit", f"cannot use the s3:// URL that was given: {NO_SECRETS}"),
        ("s3:///audit", "cannot use the s3:// URL that was given: it names no bucket, like s3://bucket/prefix"),
        ("s3://[HUNTER2", "cannot use the URL of an object store that was given: it is not a URL"),
    ],
)
def test_what_cannot_be_read_is_one_line(spark: SparkSession, bucket: Path, audit: str, reason: str) -> None:
    """Nothing that may be a secret is shown."""
    with pytest.raises(AuditError) as error:
        verify(spark, audit)
    assert str(error.value) == reason


def test_what_cannot_be_ingested_is_one_line(spark: SparkSession, bucket: Path) -> None:
    """A spool without anything, a log of another program."""
    with pytest.raises(AuditError, match=rf"^cannot ingest {SPOOL}: there is no such folder$"):
        ingest(spark, SPOOL, AUDIT)
    seal(bucket / "spool", "jm-0", 1, [transition(1)])
    (bucket / "audit").mkdir()
    (bucket / "audit" / "backup.tar").write_bytes(b"?")
    with pytest.raises(AuditError, match=rf"^{AUDIT} is not an audit log \(it contains backup\.tar, …\)"):
        ingest(spark, SPOOL, AUDIT)
