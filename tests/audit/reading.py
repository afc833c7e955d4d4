"""A plain reader of an audit log's transitions in a process of its own: `python -m tests.audit.reading KIND AUDIT`.

It knows nothing of us but the folder. For each line on standard input it counts once and answers with a line: `ROWS IDS`, or `failed`
and why. It ends with its input.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import pyarrow.dataset

from sidecar.audit.spark.spark_session import spark_session

KINDS = ("spark", "duckdb", "pyarrow")
_END_SECONDS = 60

Count = Callable[[], tuple[int, int]]
"""How many rows and how many ids there are."""


class Reader:
    """One such process, which reads again and again between `begin` and `end`, with `niceness` towards all other work."""

    def __init__(self, kind: str, audit: Path, niceness: int) -> None:
        self.kind = kind
        self.answers: set[tuple[int, int]] = set()
        """All numbers of rows and ids that were the answer."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.audit.reading", kind, str(audit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.setpriority(
            os.PRIO_PROCESS, self._process.pid, niceness
        )  # before it has threads or a JVM, which have it from then on

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def once(self) -> None:
        """Count once."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the reader {self.kind} has died"
        if answer.startswith("failed"):
            return
        rows, ids = answer.split()
        self.answers.add((int(rows), int(ids)))

    def begin(self) -> None:
        """Read all the time from now on."""
        self._thread.start()

    def end(self) -> None:
        """No more; the last answer is in."""
        self._stop.set()
        self._thread.join()

    def _read_on(self) -> None:
        while not self._stop.is_set():
            self.once()


@contextmanager
def _counting(kind: str, folder: str) -> Iterator[Count]:
    match kind:
        case "spark":
            with spark_session("local[1]") as spark:
                yield lambda: tuple(
                    spark.read.parquet(folder).selectExpr("count(*)", "count(DISTINCT id)").collect()[0]
                )
        case "duckdb":
            with duckdb.connect() as database:
                query = f"SELECT count(*), count(DISTINCT id) FROM read_parquet('{folder}/**/*.parquet')"  # noqa: S608  our own path

                def by_duckdb() -> tuple[int, int]:
                    (row,) = database.execute(query).fetchall()
                    return row[0], row[1]

                yield by_duckdb
        case _:

            def by_pyarrow() -> tuple[int, int]:
                ids = pyarrow.dataset.dataset(folder, partitioning="hive").to_table(columns=["id"])["id"]
                return len(ids), len(ids.unique())

            yield by_pyarrow


def main(kind: str, audit: str) -> None:
    """Answer until the input ends."""
    with _counting(kind, f"{audit}/transitions") as count:
        for _ in sys.stdin:
            try:
                rows, ids = count()
            except Exception as error:  # noqa: BLE001  what it is, the one who asks judges
                sys.stdout.write(f"failed {type(error).__name__}\n")
            else:
                sys.stdout.write(f"{rows} {ids}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
