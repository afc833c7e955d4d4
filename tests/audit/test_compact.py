"""Many files of a date become one, and no reader ever sees a wrong count."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit import AuditError
from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.tables import BASE_VIEWS
from sidecar.audit.upkeep import compact as compaction
from sidecar.audit.upkeep.compact import CompactResult, compact
from sidecar.audit.upkeep.verify import verify
from tests.audit.conftest import YESTERDAY, Log
from tests.audit.killing import started
from tests.audit.reading import KINDS, Reader
from tests.audit.spooling import ids, ids_seen, seal, transition

pytestmark = pytest.mark.spark

NOTHING = CompactResult(folders=0, files=0, bytes_before=0, bytes_after=0, unchanged={})

COMMAND = """
import sys
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.spark.spark_session import spark_session

with spark_session("local[2]") as spark:
    print("started", flush=True)
    compact(spark, sys.argv[1])
"""


def files(audit: Path) -> list[Path]:
    """Every file that a reader sees."""
    return sorted((audit / "transitions").rglob("*.parquet"))


def test_each_closed_date_becomes_one_file(spark: SparkSession, log: Log) -> None:
    """Sorted, Zstandard, microseconds, a filter on `id`, the same rows; a second time there is nothing to do."""
    before = spark.read.parquet(str(log.audit / "transitions")).orderBy("id").collect()
    done = compact(spark, str(log.audit))
    assert (done.folders, done.files, done.unchanged) == (4, 16, {})
    assert [file.parent.name for file in files(log.audit)] == sorted(
        f"event_date={(YESTERDAY - timedelta(days=days)).date()}" for days in range(4)
    )
    for file in files(log.audit):
        parquet = pq.ParquetFile(file)
        group = parquet.metadata.row_group(0)
        columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
        assert {column.compression for column in columns.values()} == {"ZSTD"}
        assert str(parquet.schema_arrow.field("observed_at").type) == "timestamp[us, tz=UTC]"
        assert "PLAIN_DICTIONARY" not in columns["id"].encodings
        order = parquet.read(columns=["cluster_id", "observed_at"]).to_pylist()
        assert order == sorted(order, key=lambda row: (row["cluster_id"], row["observed_at"]))
        assert _bloom_filters(spark, file) == 1
    assert ids_seen(spark, log.audit, "transitions") == log.ids
    assert spark.read.parquet(str(log.audit / "transitions")).orderBy("id").collect() == before
    assert compact(spark, str(log.audit)) == NOTHING
    assert verify(spark, str(log.audit)).findings == []


def _bloom_filters(spark: SparkSession, file: Path) -> int:
    """In how many row groups the filter says no to an id that is not there, and yes to one that is."""
    jvm = spark._jvm
    assert jvm is not None
    hadoop, conf = jvm.org.apache.parquet.hadoop, spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(str(file))
    reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(path, conf))
    present = pq.read_table(file, columns=["id"])["id"][0].as_py()
    sound = 0
    for block in reader.getFooter().getBlocks():
        column = next(column for column in block.getColumns() if column.getPath().toDotString() == "id")
        bloom = reader.readBloomFilter(column)

        def may_hold(text: str) -> bool:
            return bool(bloom.findHash(bloom.hash(jvm.org.apache.parquet.io.api.Binary.fromString(text))))  # noqa: B023  called at once

        sound += may_hold(present) and sum(may_hold(f"no id {n}") for n in range(100)) < 50
    reader.close()
    return sound


def test_today_and_what_is_not_asked_for_are_left_alone(spark: SparkSession, log: Log) -> None:
    """Today's files still come; with `before`, only earlier dates are rewritten."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert compact(spark, str(log.audit), before=(YESTERDAY - timedelta(days=2)).date()).folders == 1
    folder = log.audit / "transitions" / f"event_date={datetime.now(UTC).date()}"
    (log.audit / "transitions" / f"event_date={YESTERDAY.date()}").rename(folder)
    assert compact(spark, str(log.audit), before=tomorrow.date()).folders == 2
    assert len(files(log.audit)) == 3 + 4


def test_late_records_join_a_compacted_date(spark: SparkSession, log: Log) -> None:
    """An ingest adds to it as to any other date, leaves out what is there, and it can be compacted again."""
    compact(spark, str(log.audit))
    late = [transition(n, YESTERDAY) for n in range(60, 102)]
    for first in (0, 21):
        seal(log.spool, "jm-1", first + 1, late[first : first + 21])
        ingest(spark, str(log.spool), str(log.audit))
    assert len(files(log.audit)) == 4 + 2
    done = compact(spark, str(log.audit))
    assert (done.folders, done.files, len(files(log.audit))) == (1, 3, 4)
    assert ids_seen(spark, log.audit, "transitions") == sorted({*log.ids, *ids(late)})


def test_columns_of_another_version_stay(spark: SparkSession, log: Log) -> None:
    """Whatever columns a file has, its rows keep them."""
    first = files(log.audit)[0]
    table = pq.read_table(first).replace_schema_metadata(None)
    pq.write_table(table.append_column("mood", [["good"] * len(table)]), first)
    compact(spark, str(log.audit))
    (file,) = first.parent.iterdir()
    moods = pq.read_table(file)["mood"].to_pylist()
    assert (moods.count("good"), moods.count(None)) == (5, 15)


def test_old_rows_get_todays_columns(spark: SparkSession, log: Log) -> None:
    """A reader that takes the columns of the first file finds all of them."""
    for file in (oldest := files(log.audit)[0].parent).iterdir():
        pq.write_table(pq.read_table(file).drop_columns(["contenders", "position"]), file)
    compact(spark, str(log.audit))
    (file,) = oldest.iterdir()
    assert {*pq.ParquetFile(file).schema_arrow.names} == {*BASE_VIEWS["transitions"].names}
    assert verify(spark, str(log.audit)).findings == []


def test_a_date_that_is_not_sound_is_left_as_it_is(spark: SparkSession, log: Log) -> None:
    """A torn file, a stranger's file, rows without an id: nothing of the date is touched, and the other dates are compacted."""
    folders = sorted((log.audit / "transitions").iterdir())
    torn = sorted(folders[0].iterdir())[1]
    torn.write_bytes(torn.read_bytes()[:500])
    (folders[1] / "README.txt").write_text("mine")
    pq.write_table(pq.read_table(min(folders[2].iterdir())).drop_columns(["id"]), folders[2] / "other.parquet")
    before = [sorted((file, file.read_bytes()) for file in folder.iterdir()) for folder in folders[:3]]
    done = compact(spark, str(log.audit))
    assert done.folders == 1
    assert [*done.unchanged] == [f"transitions/{folder.name}" for folder in folders[:3]]
    problems = list(done.unchanged.values())
    assert torn.name in problems[0]
    assert problems[1:] == ["README.txt in it is not of an audit log", "it contains rows without an id"]
    assert [sorted((file, file.read_bytes()) for file in folder.iterdir()) for folder in folders[:3]] == before
    assert all("\n" not in problem for problem in problems)


def test_what_was_written_is_compared_with_what_was_read(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that lacks rows, or has others, replaces nothing. A date without any row has one file then, too."""
    folder = files(log.audit)[0].parent
    for file in folder.iterdir():
        pq.write_table(pq.ParquetFile(file).read().slice(0, 0), file)
    write = compaction._write

    def lossy(rows: DataFrame, target: str, order: Sequence[str], *, ids: int) -> Mapping[str, Any]:
        digest = write(rows, f"{target}-whole", order, ids=ids)
        write(rows.limit(19), target, order, ids=ids)
        return digest

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_write", lossy)
        with pytest.raises(AuditError, match=r"are not the rows read .*; nothing was changed$"):
            compact(spark, str(log.audit))
    assert len(files(log.audit)) == 16
    assert compact(spark, str(log.audit)).folders == 4
    assert [pq.read_metadata(file).num_rows for file in files(log.audit)] == [0, 20, 20, 20]


@pytest.mark.parametrize("step", ["staged", "aside", "swapped"])
def test_dying_at_any_step_loses_and_repeats_nothing(
    spark: SparkSession, log: Log, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the swap readers see the old files, after it the new one; the next compaction continues from there."""
    from sidecar.audit.log import local_storage as storage

    def die(*_arguments: object) -> None:
        raise OSError("the end")

    exchange = storage._exchange

    def die_afterwards(one: Path, other: Path) -> None:
        exchange(one, other)
        if other.name.startswith("event_date="):
            die()

    def die_before(one: Path, other: Path) -> None:
        die() if other.name.startswith("event_date=") else exchange(one, other)

    with monkeypatch.context() as patch:
        if step == "staged":
            patch.setattr(storage.LocalStorage, "replace", die)
        else:
            patch.setattr(storage, "_exchange", die_before if step == "aside" else die_afterwards)
        with pytest.raises(AuditError, match=r"^cannot compact \S+: the end$"):
            compact(spark, str(log.audit))
    assert len(files(log.audit)) == (13 if step == "swapped" else 16)
    assert ids_seen(spark, log.audit, "transitions") == log.ids
    compact(spark, str(log.audit))
    assert len(files(log.audit)) == 4
    assert ids_seen(spark, log.audit, "transitions") == log.ids
    assert [*(log.audit / "_staging").iterdir()] == []


def test_what_was_replaced_goes_an_hour_later(spark: SparkSession, log: Log) -> None:
    """A reader may still be about to list it; another compaction deletes it then."""
    compact(spark, str(log.audit))
    replaced = [*(log.audit / "_replaced").iterdir()]
    assert len(replaced) == 4
    assert compact(spark, str(log.audit)) == NOTHING
    assert sorted((log.audit / "_replaced").iterdir()) == sorted(replaced)
    replaced[0].rename(replaced[0].with_name("1700000000-x"))
    compact(spark, str(log.audit))
    assert [*(log.audit / "_replaced").iterdir()] == replaced[1:]


def test_killed_it_is_completed_by_the_next(spark: SparkSession, log: Log) -> None:
    """kill -9 in the moment of the swap, and of its JVM with it: reads fail, and each id is there once when it has run again."""
    with compacting(log.audit) as process:
        deadline = time.monotonic() + 120
        while len(files(log.audit)) == 16 and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(pa.ArrowInvalid):
        pyarrow.dataset.dataset(log.audit / "transitions", partitioning="hive").count_rows()
    compact(spark, str(log.audit))
    assert len(files(log.audit)) == 4
    assert ids_seen(spark, log.audit, "transitions") == log.ids


@contextmanager
def compacting(audit: Path) -> Iterator["subprocess.Popen[str]"]:
    """A compaction in a process of its own, whose Spark has just started; the process group ends with it."""
    leftovers = str(audit.parent)  # what a killed process has no time to remove
    environment = os.environ | {"TMPDIR": leftovers, "SPARK_LOCAL_DIRS": leftovers}
    with started(COMMAND, audit, environment=environment) as process:
        yield process


def test_readers_never_count_wrong(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    """Spark, DuckDB and pyarrow read without a pause: a read may fail, and the next one is right; none counts too much or too little."""
    audit = tmp_path / "many"
    rows = small_files(audit, files(log.audit)[0], 40)
    with ExitStack() as stack:
        # They read as fast as what they get of the processors lets them: not at the cost of the compaction, which decides how long that is.
        readers = [stack.enter_context(Reader(kind, audit, niceness=19)) for kind in KINDS]
        for reader in readers:
            reader.once()
            reader.begin()
        assert compact(spark, str(audit)).folders == 20
        for reader in readers:
            reader.end()
            reader.once()
    assert [reader.answers for reader in readers] == [{(rows, rows)}] * 3


def small_files(audit: Path, file: Path, number: int) -> int:
    """Write so many files like `file`, each id once, two for each date before today; how many rows that is."""
    like = pq.ParquetFile(file).read()
    places = [like.schema.get_field_index(name) for name in ("id", "observed_at")]
    for n in range(number):
        day = datetime.now(UTC).date() - timedelta(days=1 + n // 2)
        noon = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        columns = [
            [str(uuid4()) for _ in range(len(like))],
            [noon + timedelta(seconds=row) for row in range(len(like))],
        ]
        rows = like
        for place, values in zip(places, columns, strict=True):
            rows = rows.set_column(place, like.schema.field(place), pa.array(values, like.schema.field(place).type))
        folder = audit / "transitions" / f"event_date={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / f"part-{n:05d}-{uuid4()}.parquet", compression="zstd")
    return number * len(like)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_barrier_that_outlives_its_compaction_goes_with_the_next_lock(
    spark: SparkSession, log: Log, swapped: bool
) -> None:
    """Killed in the moment of a swap, the date cannot be read (which is no wrong count) until the next write."""
    (date, *_) = sorted((log.audit / "transitions").iterdir())
    barrier = date / "compacting-1.parquet"
    if swapped:
        compact(spark, str(log.audit))
    barrier.write_text("This date is being compacted")
    with pytest.raises(pa.ArrowInvalid):
        pyarrow.dataset.dataset(log.audit / "transitions", partitioning="hive").count_rows()
    ingest(spark, str(log.spool), str(log.audit))
    assert not barrier.exists()
    assert ids_seen(spark, log.audit, "transitions") == log.ids


def test_our_own_query_gets_over_a_swap(spark: SparkSession, log: Log) -> None:
    """Files that were listed and are deleted when the answer is fetched: the query is repeated."""
    result = run_sql(spark, str(log.audit), "SELECT count(DISTINCT id) FROM transitions")
    assert compact(spark, str(log.audit)).folders == 4
    assert list(result.rows) == [[80]]
