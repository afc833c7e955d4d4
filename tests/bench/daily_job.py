"""What the log costs as whole commands, each with a Spark of its own: `python -m tests.bench.daily_job [ROWS] [DATES]`.

All records at once into an empty log, the first `compact` of it, then the job of one more day: `ingest` and `compact`. The last date stays
open, as one of which records may still come. CPU time is that of the command and its JVM.
"""

import os
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from tests.bench.audit_spool import fill
from tests.bench.stage import Table

_FIRST: Final = date(2025, 1, 1)


def main(rows: int = 600_000, dates: int = 365) -> None:
    table = Table(f"{rows:,} transitions, {dates} dates", "s", "CPU s")
    with tempfile.TemporaryDirectory() as name:
        spool, log = Path(name, "spool"), f"--audit={Path(name, 'audit')}"
        for what, since, days in (("all dates", 0, dates), ("one more day", dates, 1)):
            first = _FIRST + timedelta(days=since)
            fill(spool, rows * days // dates, first, days, start=rows * since // dates)
            last = first + timedelta(days=days - 1)
            for command in (["ingest", f"--spool={spool}", log], ["compact", log, f"--before={last}"]):
                begin, before = time.monotonic(), os.times()
                subprocess.run([sys.executable, "-m", "sidecar", "audit", *command], check=True, stdout=sys.stderr)
                after = os.times()
                cpu = after.children_user + after.children_system - before.children_user - before.children_system
                table.row(f"{what}: `{command[0]}`", f"{time.monotonic() - begin:.1f}", f"{cpu:.1f}")
    table.end()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
