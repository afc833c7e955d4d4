"""A small fleet's quarter as its sidecars seal it: `python -m tests.bench.small_segments [DAYS]`.

Five clusters with two observers each: a coverage record an hour in a segment of its own, a check a day, a failover with all its records
every other day. In turn: the first `ingest`, `compact`, `verify`, one more day, `verify` again. CPU time is that of this process, its JVM
and their children; Spark has run before, so its start is in none of them.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.spark.spark_session import spark_session
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.verify import verify
from sidecar.core.records import AnyRecord
from tests.audit import spooling
from tests.bench.stage import Table
from tests.kit.costs import cpu_seconds

_DAYS: Final = 89
_OBSERVERS: Final = 10


def seal_day(spool: Path, day: int, date: datetime) -> None:
    """The segments of one date. `day`: its number, from which the ids follow."""
    for observer in range(_OBSERVERS):
        fields = {"cluster_id": f"cluster-{observer // 2}", "observer": f"jm-{observer}"}
        first = 1 + day * 10_000
        for records in _segments(observer, day, date):
            sealed = [replace(record, **fields) for record in records]
            spooling.seal(spool, f"jm-{observer}", first, sealed)
            first += len(sealed)


def _segments(observer: int, day: int, date: datetime) -> Iterator[list[AnyRecord]]:
    own, shared = count((day * _OBSERVERS + observer) * 1_000), count((day * _OBSERVERS + observer // 2) * 1_000)
    for hour in range(24):
        yield [spooling.coverage(next(own), date + timedelta(hours=hour))]
    yield [spooling.ha_check(next(own), date)]
    if day % 2 == observer // 2 % 2:
        yield [spooling.transition(next(shared), date) for _ in range(4)]
        yield [*(spooling.transition(next(shared), date) for _ in range(4)), spooling.contention(next(shared), date)]
        yield [spooling.status(next(own), date), spooling.evidence(next(own), date)]
        yield [spooling.episode(next(shared), date), *(spooling.notification(next(own), date) for _ in range(2))]
        yield [spooling.death(next(own), date), spooling.recovery(next(own), date), spooling.status(next(own), date)]


def main(days: int = _DAYS) -> None:
    with tempfile.TemporaryDirectory() as folder, spark_session() as spark:
        spool, audit, warm = (Path(folder, name) for name in ("spool", "audit", "warm"))
        first = datetime.now(UTC).replace(hour=0, minute=30) - timedelta(days=days + 2)
        seal_day(warm / "spool", 0, first)
        ingest(spark, str(warm / "spool"), str(warm / "audit"))
        for day in range(days):
            seal_day(spool, day, first + timedelta(days=day))
        table = Table("what", "CPU s", "s", "segments", "files", "rows")

        def row(what: str, do: Callable[[], object]) -> None:
            cpu, began = cpu_seconds(), time.monotonic()
            do()
            took = (f"{cpu_seconds() - cpu:.1f}", f"{time.monotonic() - began:.1f}")
            found = verify(spark, str(audit))
            assert not found.findings
            table.row(what, *took, sum(1 for _ in spool.rglob("*.gz")), found.files, found.rows)

        row("ingest", lambda: ingest(spark, str(spool), str(audit)))
        row("compact", lambda: compact(spark, str(audit)))
        row("verify", lambda: verify(spark, str(audit)))
        seal_day(spool, days, first + timedelta(days=days))
        row("ingest of one more day", lambda: ingest(spark, str(spool), str(audit)))
        row("verify again", lambda: verify(spark, str(audit)))
        table.end()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
