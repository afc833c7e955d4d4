"""What the log costs as whole commands, each with a Spark of its own: `python -m tests.bench.commands [local|s3] [ROWS] [DATES]`.

All records at once into an empty log, the first `compact` of it, the job of one more day (`ingest` and `compact`), then questions. The last
date stays open, as one of which records may still come. CPU time is that of the command and its JVM; bytes and lists are those that the S3
server, which is on this machine, has sent.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from tests.bench.audit_spool import fill
from tests.bench.stage import Table
from tests.kit.s3_server import Line, S3Server, reach

_FIRST: Final = date(2025, 1, 1)


class _Cost(NamedTuple):
    """Of a command: seconds, those of CPU, megabytes that the store has sent, and what of it are lists of objects."""

    seconds: float
    cpu: float
    megabytes: float = 0.0
    lists: int = 0
    listed: float = 0.0
    """Kilobytes."""


class _Log:
    """Spool and log, in a folder of this machine or in a bucket."""

    def __init__(self, folder: Path, store: str, ending: ExitStack) -> None:
        self.spool, place = folder / "spool", str(folder)
        self._line: Line | None = None
        self._environment: Mapping[str, str] = os.environ
        if store == "s3":
            server = S3Server(folder)
            server.start()
            ending.callback(server.kill)
            self._line = ending.enter_context(Line(server))
            self._environment = os.environ | reach(self._line.url)
            self.spool, place = server.bucket / "spool", "s3://bucket"
        self.arguments = {"--spool": f"--spool={place}/spool", "--audit": f"--audit={place}/audit"}

    def cost(self, *command: str, asked: str = "") -> _Cost:
        """Run it. `asked`: its standard input."""
        before = self._so_far()
        run = [sys.executable, "-m", "sidecar", "audit", *(self.arguments.get(each, each) for each in command)]
        subprocess.run(run, env=self._environment, check=True, input=asked, text=True, stdout=sys.stderr)
        return _Cost(*(after - then for after, then in zip(self._so_far(), before, strict=True)))  # type: ignore[arg-type]

    def _so_far(self) -> _Cost:
        times, line = os.times(), self._line
        own = _Cost(time.monotonic(), times.children_user + times.children_system)
        return own._replace(megabytes=line.sent / 1e6, lists=line.lists, listed=line.listed / 1e3) if line else own


def main(store: str, rows: int = 600_000, dates: int = 365) -> None:
    table = Table(f"{rows:,} transitions, {dates} dates", "s", "CPU s", "MB sent by the store", "lists", "kB of lists")

    def row(what: str, cost: _Cost) -> None:
        table.row(
            what, *(f"{each:.1f}" for each in cost[:2]), f"{cost.megabytes:.2f}", cost.lists, f"{cost.listed:.1f}"
        )

    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        log = _Log(Path(folder), store, ending)
        for what, since, days in (("all dates", 0, dates), ("one more day", dates, 1)):
            first = _FIRST + timedelta(days=since)
            fill(log.spool, rows * days // dates, first, days, start=rows * since // dates)
            row(f"{what}: `ingest`", log.cost("ingest", "--spool", "--audit"))
            row(f"{what}: `compact`", log.cost("compact", "--audit", f"--before={first + timedelta(days=days - 1)}"))
        end = _FIRST + timedelta(days=dates)
        month = f"SELECT count(*), max(downtime_seconds_at_most) FROM leader_changes WHERE event_date >= '{end - timedelta(days=30)}'"  # noqa: S608  our own dates
        week = f"SELECT count(*) FROM transitions WHERE event_date >= '{end - timedelta(days=7)}'"  # noqa: S608  likewise
        row("`transitions` of a week", log.cost("sql", "--audit", week))
        row("`leader_changes` of a month", log.cost("sql", "--audit", month))
        once, twice = (log.cost("shell", "--audit", asked=f"{month};\n" * times) for times in (1, 2))
        again = _Cost(*(more - less for more, less in zip(twice, once, strict=True)))  # type: ignore[arg-type]
        row("the same, from one question of a shell to the next", again)
        everything = "SELECT count(DISTINCT id) FROM transitions"
        row("all transitions: `count(DISTINCT id)`", log.cost("sql", "--audit", everything))
    table.end()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "local", *map(int, sys.argv[2:]))
