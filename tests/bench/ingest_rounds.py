"""Rounds of `audit ingest` into a log that has grown: `python -m tests.bench.ingest_rounds [ROUNDS] [segments|rows|files N]`.

In each round two observers seal a segment of the same ten changes, as a CronJob finds them. Grown are, each for itself: the segments that
were ingested and are still in the spool; the visible rows, in one file for each date of a year; the visible files, a hundred on a date.
CPU time is that of the JVM and of this process; other work on the machine changes it less than the seconds.
"""

import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.schema import EVENT_DATE, RECORDS
from sidecar.audit.spark.session import own_session, spark_session
from tests.audit.spooling import NOON, seal, transition
from tests.bench.compaction import pattern, small_files
from tests.bench.stage import Table

_ROUNDS: Final = 10
_CHANGES: Final = 10
_DATES: Final = 365
_OBSERVERS: Final = 4
_GROWN: Final = [
    ("segments", 100),
    ("segments", 1_000),
    ("segments", 10_000),
    ("files", 100),
    ("files", 1_000),
    ("files", 10_000),
    ("rows", 1_000_000),
    ("rows", 10_000_000),
]


class _Log:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._spool, self._audit = folder / "spool", folder / "audit"
        self._ticks = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/stat")  # type: ignore[union-attr]
        self._next = 1

    def grow(self, what: str, number: int, folder: Path) -> None:
        """So many segments, rows or files more, which no round has seen."""
        if what == "segments":
            for count in range(number):
                self._seal(f"jm-{count % _OBSERVERS}")
                self._next += _CHANGES
            self._ingest(number)
        elif what == "files":
            small_files(self._audit, pattern(folder, self._spark), number)
        else:
            write_rows(own_session(self._spark), self._audit, number, _DATES)

    def play(self) -> tuple[float, float]:
        """One round: seconds, and seconds of CPU time."""
        for observer in ("jm-0", "jm-1"):
            self._seal(observer)
        self._next += _CHANGES
        cpu, clock = self._cpu(), time.monotonic()
        self._ingest(2)
        return time.monotonic() - clock, self._cpu() - cpu

    def _seal(self, observer: str) -> None:
        numbers = range(self._next, self._next + _CHANGES)
        seal(self._spool, observer, self._next, [transition(n, NOON + timedelta(days=n % 3)) for n in numbers])

    def _ingest(self, segments: int) -> None:
        result = ingest(self._spark, str(self._spool), str(self._audit))
        assert result.files == segments, "a segment was read twice, or not at all"

    def _cpu(self) -> float:
        fields = self._ticks.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def main(rounds: int, grown: list[tuple[str, int]]) -> None:
    """A row for each log, of the round behind its growth and of the later ones."""
    table = Table("grown", "first round, s", "CPU s", "later rounds, median, s", "longest", "CPU s, median", "most")
    with spark_session("local[2]") as spark:
        for what, number in [("warm-up", 0), *grown]:
            with tempfile.TemporaryDirectory() as name:
                log = _Log(spark, Path(name))
                log.play()
                if number:
                    log.grow(what, number, Path(name))
                first, *later = [log.play() for _ in range(1 + rounds)]
            seconds, cpu = ([each[of] for each in later] for of in (0, 1))
            figures = (*first, statistics.median(seconds), max(seconds), statistics.median(cpu), max(cpu))
            table.row(f"{number:,} {what}", *(f"{figure:.1f}" for figure in figures))
    table.end()


def write_rows(spark: SparkSession, audit: Path, rows: int, dates: int, first: int = 0) -> None:
    """Write transitions with the ids of the numbers from `first` on, as many on each date, in a file or two for each."""
    day = ((F.col("id") - first) * dates / rows).cast("int")
    values = {
        "id": F.md5(F.concat(F.lit("grown "), F.col("id").cast("string"))),
        "cluster_id": F.concat(F.lit("c-"), (F.col("id") % 100).cast("string")),
        "observed_at": F.lit("2024-01-01T12:00:00Z").cast("timestamp") + F.make_dt_interval(day),
    }
    nulls = {field.name: F.lit(None).cast(field.dataType) for field in RECORDS["transition"]}
    columns = [column.alias(name) for name, column in (nulls | values).items()]
    numbers = spark.range(first, first + rows, numPartitions=5)
    table = numbers.select(*columns).withColumn(EVENT_DATE, F.to_date("observed_at"))
    writer = table.write.mode("append").option("parquet.enable.dictionary#id", "false")
    writer.partitionBy(EVENT_DATE).parquet(f"{audit}/transitions")
    for file in (audit / "transitions").rglob("*"):
        if file.suffix == ".crc" or file.name == "_SUCCESS":
            file.unlink()  # what Spark writes and an ingest does not publish


if __name__ == "__main__":
    arguments = sys.argv[2:]
    wanted = [(arguments[0], int(arguments[1]))] if arguments else _GROWN
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS, wanted)
