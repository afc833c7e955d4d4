"""A spool and an audit log in an object store beside the same in folders: `python -m tests.bench.remote [ROWS] [DATES]`.

The S3 server is on this machine: what is measured is the work, not a network.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.session import spark_session
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.materialize import materialize
from sidecar.audit.upkeep.verify import verify
from tests.bench.audit_spool import fill
from tests.bench.stage import Table
from tests.kit.s3_server import S3Server, reach

_ROWS, _DATES = 1_000_000, 30
_LATE = 10_000
_FIRST = date(2025, 1, 1)


def main(rows: int, dates: int) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        server = S3Server(folder)
        server.start()
        stack.callback(server.kill)
        os.environ.update(reach(server.url))
        spark = stack.enter_context(spark_session("local[2]", object_store=True))
        places = {
            "folders": (folder / "spool", str(folder / "spool"), str(folder / "audit")),
            "`s3://`": (server.bucket / "spool", "s3://bucket/spool", "s3://bucket/audit"),
        }
        fill(folder / "warm", 10_000, _FIRST, 1)
        ingest(spark, str(folder / "warm"), str(folder / "warm-audit"))  # Java is warm for each of them
        found = {place: _seconds(spark, rows, dates, *where) for place, where in places.items()}
    steps = next(iter(found.values()))
    table = Table(f"{rows:,} transitions, {dates} dates: s", *steps)
    for place, seconds in found.items():
        table.row(place, *(f"{one:.1f}" for one in seconds.values()))
    table.end()
    print(
        f"peak memory of this process, without Spark's JVM: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


def _seconds(spark: SparkSession, rows: int, dates: int, files: Path, spool: str, audit: str) -> dict[str, float]:
    last = _FIRST + timedelta(days=dates - 1)
    week = f"SELECT count(*) FROM leader_changes WHERE event_date BETWEEN '{last - timedelta(days=7)}' AND '{last}'"  # noqa: S608  our own dates

    def ask(query: str) -> int:
        (((count,),),) = [[*run_sql(spark, audit, query).rows]]
        return int(str(count))

    def count() -> None:
        assert ask("SELECT count(DISTINCT id) FROM transitions") == rows + _LATE

    def check() -> None:
        assert verify(spark, audit).findings == []

    fill(files, rows, _FIRST, dates)
    seconds = {"ingest": _timed(lambda: ingest(spark, spool, audit))}
    fill(files / "late", _LATE, _FIRST, dates, start=rows)
    seconds[f"ingest {_LATE:,} more"] = _timed(lambda: ingest(spark, spool, audit))
    seconds["ingest nothing"] = _timed(lambda: ingest(spark, spool, audit))
    seconds["`count(DISTINCT id)`"] = _timed(count)
    seconds["compact"] = _timed(lambda: compact(spark, audit))
    seconds["`count(DISTINCT id)`, compacted"] = _timed(count)
    seconds["materialize"] = _timed(lambda: materialize(spark, audit, before=last))
    seconds["`failovers` of a week"] = _timed(lambda: ask(week))
    seconds["verify"] = _timed(check)
    return seconds


def _timed(do: Callable[[], object]) -> float:
    begin = time.monotonic()
    do()
    return time.monotonic() - begin


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else _ROWS, given[1] if len(given) > 1 else _DATES)
