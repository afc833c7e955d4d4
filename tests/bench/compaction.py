"""Compaction under readers: `python -m tests.bench.compaction [FILES]`.

So many small files on dates of a hundred each, written as an ingest writes them. Spark, DuckDB and pyarrow count rows and ids without a
pause, each in a process of its own, while `audit compact` makes one file of each date. A read that fails, because a file that it listed is
gone, is distinguished from a wrong count, which must not be. Before and behind it each reader counts alone.
"""

import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.jvm import Run
from sidecar.audit.spark.spark_session import spark_session
from tests.audit.spooling import seal, transition
from tests.bench.reading import KINDS, Reader
from tests.bench.stage import Table

FILES = 10_000
FILES_OF_A_DATE = 100
ROWS_OF_A_FILE = 100
_COMMAND = (sys.executable, "-m", "sidecar", "audit")


def small_files(audit: Path, file: Path, files: int, *, of_a_date: int = FILES_OF_A_DATE) -> int:
    """Write `files` files like `file`, each id once, on dates before today; how many rows that is."""
    like = pq.ParquetFile(file).read()
    ids, times = count(), like.schema.get_field_index("observed_at")
    for number in range(files):
        day = datetime.now(UTC).date() - timedelta(days=1 + number // of_a_date)
        fresh = [str(uuid5(NAMESPACE_OID, str(next(ids)))) for _ in range(like.num_rows)]
        rows = like.set_column(like.schema.get_field_index("id"), "id", pa.array(fresh))
        moments = [_noon(day) + timedelta(seconds=second) for second in range(like.num_rows)]
        rows = rows.set_column(times, like.schema.field(times), pa.array(moments, like.schema.field(times).type))
        folder = audit / "transitions" / f"event_date={day}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(
            rows, folder / f"part-{number:05d}-{uuid5(NAMESPACE_OID, f'file {number}')}.parquet", compression="zstd"
        )
    return files * int(like.num_rows)


def main(files: int = FILES) -> None:
    """The table of the readers, and what became of the files."""
    with tempfile.TemporaryDirectory(prefix="compaction-") as folder, ExitStack() as stack:
        audit = Path(folder) / "audit"
        with spark_session("local[1]", run=Run.LARGE) as spark:
            file = pattern(Path(folder), spark)
        rows = small_files(audit, file, files)
        print(f"{files:,} files, {rows:,} rows, {_size(audit):.1f} MB")
        readers = [stack.enter_context(Reader(kind, audit)) for kind in KINDS]
        before = {reader.kind: _alone(reader) for reader in readers}
        for reader in readers:
            reader.begin()
        began = time.monotonic()
        done = subprocess.run([*_COMMAND, "compact", "--audit", str(audit)], capture_output=True, text=True, check=True)
        print(f"{done.stdout.strip()}; {time.monotonic() - began:.0f} s with all readers at work")
        for reader in readers:
            reader.end()
        table = Table("reader", "right", "failed", "wrong", "alone before, s", "alone behind, s")
        wrong = 0
        for reader in readers:
            right = reader.answers[rows, rows]
            wrong += reader.answers.total() - right
            failed = reader.failures.total()
            table.row(reader.kind, right, failed, reader.answers.total() - right, before[reader.kind], _alone(reader))
        assert wrong == 0, "a count was wrong"
        left = len([*(audit / "transitions").rglob("*.parquet")])
        size = _size(audit / "transitions")
        print(f"\n{left} files, {size:.1f} MB")
        print(
            subprocess.run(
                [*_COMMAND, "verify", "--audit", str(audit)], capture_output=True, text=True, check=True
            ).stdout
        )


def pattern(folder: Path, spark: SparkSession) -> Path:
    """A file of an audit log, as an ingest wrote it."""
    seal(folder / "pattern-spool", "jm-0", 1, [transition(number) for number in range(ROWS_OF_A_FILE)])
    ingest(spark, str(folder / "pattern-spool"), str(folder / "pattern"))
    (file,) = (folder / "pattern" / "transitions").rglob("*.parquet")
    return file


def _alone(reader: Reader) -> str:
    """The fastest of three."""
    return f"{min(reader.once() for _ in range(3)):.2f}"


def _noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


def _size(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
