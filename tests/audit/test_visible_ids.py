"""What an ingest remembers of a table is what the table shows, whatever became of its files."""

from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.ingest import ingest
from sidecar.audit.storage import PARQUET, Storage
from sidecar.audit.visible_ids import HASH, VisibleIds
from tests.audit.spooling import NOON, seal, transition
from tests.kit.files import folders_that_come_and_go

pytestmark = pytest.mark.spark


def test_files_that_came_went_or_took_anothers_name_are_noticed(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Before each look-up: a new file, a deleted file, and one renamed to another, as compaction does."""
    days = [NOON.date() + timedelta(days=n) for n in range(3)]
    seal(spool, "jm-0", 1, [transition(n, NOON + timedelta(days=n)) for n in range(3)])
    ingest(spark, str(spool), str(audit))
    seen = VisibleIds(spark, Storage(spark, str(audit)), "transitions")
    (gone, other, _) = sorted((audit / "transitions").rglob("*.parquet"))
    assert sorted(seen.dates_of(_hashes(spark, 0, 1, 2, 3))) == days
    gone.unlink()
    assert sorted(seen.dates_of(_hashes(spark, 0, 1, 2, 3))) == days[1:]
    rows = pq.ParquetFile(other).read()
    at = rows.schema.get_field_index("id")
    pq.write_table(rows.set_column(at, "id", [[transition(3).id]]), other)
    assert seen.dates_of(_hashes(spark, 1)) == []
    assert seen.dates_of(_hashes(spark, 3)) == [days[1]]
    assert [row.id for row in seen.among(_hashes(spark, 0, 1, 2, 3), days).orderBy("id").collect()] == sorted(
        transition(n).id for n in (2, 3)
    )


def test_many_small_files_are_remembered_as_few(spark: SparkSession, spool: Path, audit: Path) -> None:
    """One that follows for months must not slow down with each batch."""
    storage = Storage(spark, str(audit))
    for number in range(2):
        seal(spool, "jm-0", number, [transition(number)])
        ingest(spark, str(spool), str(audit))
    (first, _) = sorted((audit / "transitions").rglob("*.parquet"))
    seen = VisibleIds(spark, storage, "transitions")
    for number in range(18):
        first.with_name(f"copy-{number}.parquet").write_bytes(first.read_bytes())
        assert seen.dates_of(_hashes(spark, 0, 1)) == [NOON.date()]
    assert len(storage.names("_staging")) < 10


def _hashes(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(transition(number).id,) for number in numbers], "id string").selectExpr(HASH)


def test_folders_that_are_removed_meanwhile_hold_no_files(spark: SparkSession, tmp_path: Path) -> None:
    """A retention or a compaction beside an ingest removes folders: what else is there is listed all the same."""
    (tmp_path / "audit" / "transitions").mkdir(parents=True)
    (tmp_path / "audit" / "transitions" / "one.parquet").touch()
    storage = Storage(spark, str(tmp_path / "audit"))
    with folders_that_come_and_go(tmp_path / "audit" / "transitions"):
        assert {*(tuple(storage.files("transitions", PARQUET)) for _ in range(200))} == {("one.parquet",)}
