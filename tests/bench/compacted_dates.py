"""`audit compact` of closed dates, without readers: `python -m tests.bench.compacted_dates [DATES FILES ROWS]`.

So many dates, with so many files each (or a few more) and so many rows each. By default a few large dates and many small ones. CPU time is
the JVM's; other work on the machine changes it less than the seconds.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from sidecar.audit.spark.compilers import Run
from sidecar.audit.spark.session import own_session, spark_session
from sidecar.audit.upkeep.compact import compact
from tests.bench.ingest_rounds import write_rows
from tests.bench.stage import Table

_LOGS: Final = [(20, 3, 600_000), (365, 3, 300)]


def main(logs: list[tuple[int, int, int]]) -> None:
    """A row for each log. A small one before them warms the JVM up."""
    table = Table("dates", "files", "rows", "s", "CPU s", "rows/s", "dates/s")
    with spark_session("local[2]", run=Run.LARGE) as spark:
        ticks = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/stat")  # type: ignore[union-attr]

        def cpu() -> float:
            fields = ticks.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        for dates, files, rows in [(10, 3, 300), *logs]:
            with tempfile.TemporaryDirectory() as name:
                for number in range(files):
                    part = dates * rows // files
                    write_rows(own_session(spark), Path(name), part, dates, first=number * part)
                clock, before = time.monotonic(), cpu()
                done = compact(spark, name)
                seconds = time.monotonic() - clock
                assert done.dates == dates
                rates = (f"{dates * rows / seconds:,.0f}", f"{dates / seconds:.1f}")
                table.row(dates, done.files, f"{dates * rows:,}", f"{seconds:.1f}", f"{cpu() - before:.1f}", *rates)
    table.end()


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main([(given[0], given[1], given[2])] if given else _LOGS)
