"""Ingest beside what it cannot do without: `python -m tests.bench.audit [ROWS] [DATES] [whole] [once]`.

The floor is Spark reading the same segments as JSON and writing them as Parquet, with the same schema and codec, and none of the promises.
It is measured in a JVM of its own with Java's defaults, as Spark starts by itself; then it and the ingest take turns in one JVM that is
started as `audit ingest` does. CPU time is the JVM's (DuckDB: this process's); other work on the machine changes it less.
With `whole`, records have their null fields, as the sidecar writes them (1,000 bytes instead of 500). With `once`, both are measured only
once, each in a JVM that has just started.
"""

import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.tables import EVENT_DATE, RECORDS
from sidecar.audit.log.workload import run_of_ingest
from sidecar.audit.spark.spark_session import SQL_SETTINGS, spark_session
from tests.bench.audit_spool import fill
from tests.bench.stage import Table

_FIRST: Final = date(2025, 10, 1)
_JAVAS_DEFAULTS: Final = {"spark.driver.extraJavaOptions": ""}
_EXISTING: Final = 100
"""Rows on each date that is there before."""


class _Bench:
    def __init__(self, spark: SparkSession, rows: int, table: Table) -> None:
        self._rows = rows
        self._table = table
        self._ticks = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/stat")  # type: ignore[union-attr]

    def row(self, name: str, target: Path, do: Callable[[], object], *, in_jvm: bool = True) -> tuple[float, float]:
        """Rows per CPU second, and rows per second."""
        before = set(target.rglob("event_date=*/*.parquet"))
        clock, cpu = time.monotonic(), self._cpu() if in_jvm else time.process_time()
        do()
        seconds = time.monotonic() - clock
        cpu = (self._cpu() if in_jvm else time.process_time()) - cpu
        files = set(target.rglob("event_date=*/*.parquet")) - before
        size = sum(file.stat().st_size for file in files) / self._rows
        rates = (f"{self._rows / seconds:,.0f}", f"{self._rows / cpu:,.0f}")
        self._table.row(name, f"{seconds:.1f}", f"{cpu:.1f}", *rates, f"{size:.0f}", len(files))
        return self._rows / cpu, self._rows / seconds

    def _cpu(self) -> float:
        fields = self._ticks.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(rows: int = 1_000_000, dates: int = 30, *, whole: bool, once: bool) -> None:
    turns = ("cold",) if once else ("cold", "warm", "warm")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spool, target, existing, audit = (folder / name for name in ("spool", "floor", "existing", "audit"))
        fill(spool, rows, _FIRST, dates, whole=whole)
        fill(folder / "before", dates * _EXISTING, _FIRST, dates, start=rows)
        print(f"\n{rows:,} records on {dates} dates into a log with {dates} dates\n")
        table = Table("", "s", "CPU s", "rows/s", "rows per CPU s", "bytes per row", "files")
        rates = defaultdict[str, list[tuple[float, float]]](list)
        with spark_session("local[2]", _JAVAS_DEFAULTS) as spark:
            bench = _Bench(spark, rows, table)
            for how in turns:
                rate = bench.row(f"floor with Java's defaults, {how}", target, lambda: _floor(spark, spool, target))
                rates["the floor with Java's defaults"].append(rate)
                shutil.rmtree(target)
        with spark_session("local[2]") as spark:
            ingest(spark, str(folder / "before"), str(existing))
        with spark_session("local[2]", run=run_of_ingest(str(spool), str(existing))) as spark:
            bench = _Bench(spark, rows, table)
            for how in turns:
                if not once:
                    rate = bench.row(f"floor, {how}", target, lambda: _floor(spark, spool, target))
                    rates["the floor in the same JVM"].append(rate)
                    shutil.rmtree(target)
                shutil.rmtree(audit, ignore_errors=True)
                shutil.copytree(existing, audit)
                rate = bench.row(f"audit ingest, {how}", audit, lambda: ingest(spark, str(spool), str(audit)))
                rates["ingest"].append(rate)
            if not once:
                shutil.rmtree(audit / "_checkpoints")
                bench.row("the same again, checkpoint lost", audit, lambda: ingest(spark, str(spool), str(audit)))
        bench.row("DuckDB", folder / "duckdb", lambda: _duckdb(spool, folder / "duckdb"), in_jvm=False)
        table.end()
        ingests = rates.pop("ingest")[-2:]
        for of, what in enumerate(("rows per CPU second", "rows per second")):
            for floor, found in rates.items():
                ratio = sum(rate[of] for rate in ingests) / sum(rate[of] for rate in found[-2:])
                print(f"ingest does {ratio:.2f} of the {what} of {floor}, {turns[-1]}")


def _floor(spark: SparkSession, spool: Path, target: Path) -> None:
    session = spark.newSession()
    for key, value in SQL_SETTINGS.items():
        session.conf.set(key, value)
    rows = session.read.schema(RECORDS["transition"]).option("recursiveFileLookup", True).json(str(spool))
    rows.withColumn(EVENT_DATE, F.to_date("observed_at")).write.partitionBy(EVENT_DATE).parquet(str(target))


def _duckdb(spool: Path, target: Path) -> None:
    columns = ", ".join(
        f"{field.name!r}: '{_duckdb_type(field.dataType.simpleString())}'" for field in RECORDS["transition"]
    )
    with duckdb.connect() as database:
        database.execute("SET threads = 2")
        database.execute(
            f"COPY (SELECT *, CAST(observed_at AS DATE) AS {EVENT_DATE} FROM read_json('{spool}/*/*.jsonl.gz', columns = {{{columns}}},"  # noqa: S608  our own paths
            f" format = 'newline_delimited')) TO '{target}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY ({EVENT_DATE}))"
        )


def _duckdb_type(spark_type: str) -> str:
    if spark_type.startswith("struct<"):
        fields = (field.split(":") for field in spark_type[7:-1].split(","))
        return f"STRUCT({', '.join(f'{name} {_duckdb_type(kind)}' for name, kind in fields)})"
    return {"string": "VARCHAR", "map<string,string>": "MAP(VARCHAR, VARCHAR)"}.get(spark_type, spark_type.upper())


if __name__ == "__main__":
    main(*map(int, filter(str.isdecimal, sys.argv[1:])), whole="whole" in sys.argv, once="once" in sys.argv)
