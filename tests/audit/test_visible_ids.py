"""What an ingest remembers of a table is what the table shows, whatever became of its files."""

import os
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.ingest.table_writer import HASH, Hashes, VisibleIds
from sidecar.audit.log.audit_log import open_storage
from sidecar.audit.log.manifest import IDS
from sidecar.audit.log.storage import PARQUET
from sidecar.audit.upkeep.compact import compact
from tests.audit.conftest import Log
from tests.audit.spooling import NOON, ids_seen, seal, transition
from tests.kit.files import folders_that_come_and_go

pytestmark = pytest.mark.spark


@pytest.mark.usefixtures("batch")
def test_files_that_came_went_or_took_anothers_name_are_noticed(spark: SparkSession, spool: Path, audit: Path) -> None:
    """Before each look-up: a new file, a deleted file, and one with other content and the same name."""
    seal(spool, "jm-0", 1, [transition(n, NOON + timedelta(days=n)) for n in range(3)])
    ingest(spark, str(spool), str(audit))
    visible = VisibleIds(spark, open_storage(spark, str(audit)), "transitions")
    files = sorted((audit / "transitions").rglob("*.parquet"))
    names = [f"{file.parent.name}/{file.name}" for file in files]
    assert visible.files_with(_hashes(spark, 0, 1, 2, 3)) == names
    files[0].unlink()
    assert visible.files_with(_hashes(spark, 0, 1, 2, 3)) == names[1:]
    rows = pq.ParquetFile(files[1]).read()
    at = rows.schema.get_field_index("id")
    pq.write_table(rows.set_column(at, "id", [[transition(3).id]]), files[1])
    assert visible.files_with(_hashes(spark, 1)) == []
    assert visible.files_with(_hashes(spark, 3)) == [names[1]]
    assert [row.id for row in visible.among(_hashes(spark, 0, 1, 2, 3), names[1:]).orderBy("id").collect()] == sorted(
        transition(n).id for n in (2, 3)
    )


def test_many_small_files_are_remembered_as_few(spark: SparkSession, spool: Path, audit: Path) -> None:
    """One that follows for months must not slow down with each batch."""
    storage = open_storage(spark, str(audit))
    for number in range(2):
        seal(spool, "jm-0", number, [transition(number)])
        ingest(spark, str(spool), str(audit))
    (first, _) = sorted((audit / "transitions").rglob("*.parquet"))
    for number in range(18):
        copy = first.with_name(f"copy-{number}.parquet")
        copy.write_bytes(first.read_bytes())
        # Each ingest has one of its own.
        found = VisibleIds(spark, storage, "transitions").files_with(_hashes(spark, 0, 1))
        assert f"{copy.parent.name}/{copy.name}" in found
    assert len(found) == 20
    assert len(storage.names(f"{IDS}/transitions")) < 8


def test_what_is_known_is_not_read_again(spark: SparkSession, log: Log) -> None:
    """By the next ingest: old files may as well be unreadable. A compacted date is one new file, and of the others nothing is left."""
    storage = open_storage(spark, str(log.audit))
    VisibleIds(spark, storage, "transitions").files_with(_hashes(spark, 0))
    files = sorted((log.audit / "transitions").rglob("*.parquet"))
    for file in files:
        _rewrite(file, lambda content: b"\0" * len(content))
    assert len(VisibleIds(spark, storage, "transitions").files_with(_hashes(spark, 0))) >= 1


def test_a_compacted_date_is_known_by_its_new_file(spark: SparkSession, log: Log) -> None:
    """Nothing is there twice after a compaction, also without the checkpoint, and parts of which no file is left are gone."""
    compact(spark, str(log.audit))
    (folder,) = (log.audit / "_checkpoints" / "ingest").iterdir()
    folder.rename(folder.with_name("of another spool"))
    assert ingest(spark, str(log.spool), str(log.audit)).rows["transitions"] == 0
    assert ids_seen(spark, log.audit, "transitions") == log.ids
    assert len([*(log.audit / IDS / "transitions").iterdir()]) == 1


@pytest.mark.parametrize("suffix", [PARQUET, ".json"])
@pytest.mark.parametrize("damage", ["a hash is another", "zeros", "shorter", "gone"])
def test_a_damaged_index_is_built_again(
    spark: SparkSession, spool: Path, audit: Path, suffix: str, damage: str
) -> None:
    """Whatever a power failure or a disk makes of it, no id is there twice."""
    seal(spool, "jm-0", 1, [transition(n) for n in range(9)])
    ingest(spark, str(spool), str(audit))
    storage = open_storage(spark, str(audit))
    expected = VisibleIds(spark, storage, "transitions").files_with(_hashes(spark, 8))
    (file,) = (audit / IDS / "transitions").rglob(f"*{suffix}")
    if damage == "gone":
        file.unlink()
    else:
        _rewrite(
            file,
            {"zeros": lambda content: b"\0" * len(content), "shorter": lambda content: content[:-1]}.get(
                damage, _other_hashes
            ),
        )
    assert VisibleIds(spark, storage, "transitions").files_with(_hashes(spark, 8)) == expected != []


def _other_hashes(content: bytes) -> bytes:
    """What only a checksum can distinguish from the previous content."""
    if not content.startswith(b"PAR1"):
        return content[:1] + b"!" + content[2:]
    hashes = pq.ParquetFile(BytesIO(content)).metadata.row_group(0).column(0)
    end = hashes.data_page_offset + hashes.total_compressed_size
    return content[: end - 72] + bytes(byte ^ 1 for byte in content[end - 72 : end]) + content[end:]


def _rewrite(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Other content, at the time of before."""
    before = file.stat()
    file.write_bytes(change(file.read_bytes()))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _hashes(spark: SparkSession, *numbers: int) -> Hashes:
    rows = spark.createDataFrame([(transition(number).id,) for number in numbers], "id string")
    return Hashes(rows.selectExpr(HASH))


def test_folders_that_are_removed_meanwhile_hold_no_files(spark: SparkSession, tmp_path: Path) -> None:
    """A retention or a compaction beside an ingest removes folders: what else is there is listed all the same."""
    (tmp_path / "audit" / "transitions").mkdir(parents=True)
    (tmp_path / "audit" / "transitions" / "one.parquet").touch()
    storage = open_storage(spark, str(tmp_path / "audit"))
    with folders_that_come_and_go(tmp_path / "audit" / "transitions"):
        assert {*(tuple(storage.files("transitions", PARQUET)) for _ in range(200))} == {("one.parquet",)}
