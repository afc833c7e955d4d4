"""What a question about a month reads of a log in an object store: `python -m tests.bench.remote_question [ROWS] [DATES]`.

Whole commands, each with its own Spark; bytes are those that the S3 server, which is on this machine, has sent.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from tests.bench.audit_spool import fill
from tests.bench.stage import Table
from tests.kit.s3_server import Line, S3Server, reach

_ROWS, _DATES = 1_000_000, 365
_FIRST = date(2025, 1, 1)
_SPOOL, _AUDIT = "--spool=s3://bucket/spool", "--audit=s3://bucket/audit"


class _Cost(NamedTuple):
    """Of a command: seconds, megabytes that the store has sent, and what of it are lists of objects."""

    seconds: float
    megabytes: float
    lists: int
    listed: float
    """Kilobytes."""


def main(rows: int, dates: int) -> None:
    end = _FIRST + timedelta(days=dates)
    changes = f"SELECT count(*), max(downtime_seconds_at_most) FROM leader_changes WHERE event_date >= '{end - timedelta(days=30)}'"  # noqa: S608  our own dates
    week = f"SELECT count(*) FROM transitions WHERE event_date >= '{end - timedelta(days=7)}'"  # noqa: S608  likewise
    steps = [
        ("ingest", ["ingest", _SPOOL, _AUDIT]),
        ("compact, materialize", ["compact", _AUDIT, f"--before={end}"]),
        ("`transitions` of a week", ["sql", _AUDIT, week]),
        ("`leader_changes` of a month", ["sql", _AUDIT, changes]),
        ("the same, from one question of a shell to the next", ["shell", _AUDIT]),
        ("all transitions: `count(DISTINCT id)`", ["sql", _AUDIT, "SELECT count(DISTINCT id) FROM transitions"]),
    ]
    table = Table(f"{rows:,} transitions, {dates} dates", "s", "MB sent by the store", "lists", "kB of lists")
    with tempfile.TemporaryDirectory() as folder:
        server = S3Server(Path(folder))
        server.start()
        fill(server.bucket / "spool", rows, _FIRST, dates)
        try:
            with Line(server) as line:
                environment = os.environ | reach(line.url)
                for name, command in steps:
                    asked = f"{changes};\n" if command[0] == "shell" else ""
                    once = _run(line, command, environment, asked) if asked else _Cost(0.0, 0.0, 0, 0.0)
                    cost = _run(line, command, environment, 2 * asked)
                    own = _Cost._make(after - before for after, before in zip(cost, once, strict=True))
                    table.row(name, f"{own.seconds:.1f}", f"{own.megabytes:.2f}", own.lists, f"{own.listed:.1f}")
        finally:
            server.kill()
    table.end()


def _run(line: Line, command: list[str], environment: Mapping[str, str], asked: str) -> _Cost:
    sent, lists, listed, begin = line.sent, line.lists, line.listed, time.monotonic()
    run = [sys.executable, "-m", "sidecar", "audit", *command]
    subprocess.run(run, env=environment, check=True, input=asked, text=True, stdout=sys.stderr)
    return _Cost(time.monotonic() - begin, (line.sent - sent) / 1e6, line.lists - lists, (line.listed - listed) / 1e3)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(arguments[0]) if arguments else _ROWS, int(arguments[1]) if len(arguments) > 1 else _DATES)
