"""A spool and an audit log in an object store beside the same in folders: `python -m tests.bench.remote [ROWS] [DATES]`.

The S3 server is on this machine: what is measured is the work, not a network.
"""

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession
from sidecar.audit.remote.commands import ingest, maintained, readable

from sidecar.audit.ask.sql import run_sql
from sidecar.audit.spark.session import spark_session
from sidecar.audit.upkeep.verify import verify
from tests.bench.audit_spool import fill
from tests.bench.stage import Table
from tests.kit.s3_server import S3Server, reach

_ROWS, _DATES = 1_000_000, 30
_LATE = 10_000
_FIRST = date(2025, 1, 1)


def main(rows: int, dates: int) -> None:
    with tempfile.TemporaryDirectory() as name, spark_session("local[2]") as spark:
        folder = Path(name)
        server = S3Server(folder)
        server.start()
        try:
            os.environ.update(reach(server.url))
            places = {
                "folders": (folder / "spool", str(folder / "spool"), str(folder / "audit"), None),
                "`s3://`": (server.bucket / "spool", "s3://bucket/spool", "s3://bucket/audit", None),
                "`s3://`, with a cache": (
                    server.bucket / "2",
                    "s3://bucket/2",
                    "s3://bucket/audit-2",
                    folder / "cache",
                ),
            }
            fill(folder / "warm", 10_000, _FIRST, 1)
            ingest(spark, str(folder / "warm"), str(folder / "warm-audit"))  # Java is warm for each of them
            found = {place: _seconds(spark, rows, dates, *where) for place, where in places.items()}
        finally:
            server.kill()
    steps = next(iter(found.values()))
    table = Table(f"{rows:,} transitions, {dates} dates: s", *steps)
    for place, seconds in found.items():
        table.row(place, *(f"{one:.1f}" for one in seconds.values()))
    table.end()
    print(
        f"peak memory of this process, without Spark's JVM: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


def _seconds(
    spark: SparkSession, rows: int, dates: int, files: Path, spool: str, audit: str, cache: Path | None
) -> dict[str, float]:
    def ask() -> None:
        with readable(spark, audit, cache, query="SELECT count(DISTINCT id) FROM transitions") as log:
            (((count,),),) = [[*run_sql(spark, log.url, "SELECT count(DISTINCT id) FROM transitions").rows]]
            assert count == rows + _LATE

    def compact() -> None:
        with maintained(spark, audit, cache) as log:
            log.compact(None)

    def check() -> None:
        with readable(spark, audit, cache, again=True) as log:
            assert verify(spark, log.url).findings == []

    fill(files, rows, _FIRST, dates)
    found = {"ingest": _timed(lambda: ingest(spark, spool, audit, cache=cache))}
    fill(files / "late", _LATE, _FIRST, dates, start=rows)
    found[f"ingest {_LATE:,} more"] = _timed(lambda: ingest(spark, spool, audit, cache=cache))
    found["ingest nothing"] = _timed(lambda: ingest(spark, spool, audit, cache=cache))
    found["`count(DISTINCT id)`"] = _timed(ask)
    found["compact"] = _timed(compact)
    found["`count(DISTINCT id)`, compacted"] = _timed(ask)
    found["verify"] = _timed(check)
    return found


def _timed(do: Callable[[], object]) -> float:
    begin = time.monotonic()
    do()
    return time.monotonic() - begin


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(given[0] if given else _ROWS, given[1] if len(given) > 1 else _DATES)
