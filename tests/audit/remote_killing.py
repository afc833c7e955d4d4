"""Commands that change a log in an object store and are killed, on a JVM that survives."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from sidecar.audit.ask.sql import run_sql
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.log.storage import PARQUET
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.materialize import materialize
from sidecar.audit.upkeep.verify import verify
from tests.audit.killing import GIVEN_JVM, Rounds, end_what_it_began, given_jvm, lending_its_jvm, started
from tests.audit.spooling import NOON
from tests.kit.files import files_below

SPOOL, AUDIT = "s3://bucket/spool", "s3://bucket/audit"
_CLOSED_BEFORE = NOON.date() + timedelta(days=4)
_WORK = {
    "ingest": "ingest(spark, {spool!r}, {audit!r})",
    "compact": "compact(spark, {audit!r})",
    "materialize": f"materialize(spark, {{audit!r}}, before=date.fromisoformat({str(_CLOSED_BEFORE)!r}))",
}
_IMPORTS = """
from datetime import date
from sidecar.audit.ingest.ingest import ingest
from sidecar.audit.upkeep.compact import compact
from sidecar.audit.upkeep.materialize import materialize
"""
_PATIENCE = 1.25
_SHARES = {"ingest": 0.5, "compact": 0.3, "materialize": 0.2}


class RemoteRounds(Rounds):
    """The rounds of `Rounds`, in a bucket. Some compact or materialize."""

    def __init__(
        self, bucket: Path, folder: Path, chance: random.Random, *, spool: str = SPOOL, audit: str = AUDIT
    ) -> None:
        super().__init__(bucket, chance)
        self._folder = folder
        self._urls = {"spool": spool, "audit": audit}
        self._limits = dict.fromkeys(_WORK, 3.0)

    def play(self, spark: SparkSession) -> None:
        is_there = bool(self.visible())
        work = self._chance.choices([*_SHARES], [*_SHARES.values()])[0] if is_there else "ingest"
        if work == "ingest":
            self._fill()
        script = GIVEN_JVM.format(imports=_IMPORTS, work=_WORK[work].format(**self._urls))
        with started(script, environment=self._environment(spark)) as process:
            began = time.monotonic()
            try:
                self._wait(process, 1.2 * self._limits[work])
                assert process.returncode == 0
                self._limits[work] = time.monotonic() - began
            except subprocess.TimeoutExpired:
                self._limits[work] *= _PATIENCE
                os.killpg(process.pid, signal.SIGKILL)
        end_what_it_began(spark)

    def visible(self) -> Collection[object]:
        """The files that readers see."""
        return {*files_below(self.audit, PARQUET)}

    def plain_ids(self) -> list[str]:
        """The ids as a reader sees them that knows nothing of us."""
        with duckdb.connect() as database:
            found = database.execute(f"SELECT id FROM read_parquet('{self.audit}/transitions/**/*.parquet')").fetchall()  # noqa: S608  our own path
        return sorted(row[0] for row in found)

    def _wait(self, process: "subprocess.Popen[str]", longest: float) -> None:
        """Until the process ends, or raises TimeoutExpired: at a random moment, or while it changes objects, which takes the least time."""
        if self._chance.random() < 0.5:
            process.wait(self._chance.uniform(0, longest))
            return
        before = self.visible()
        while process.poll() is None and self.visible() == before:
            time.sleep(0.001)
        process.wait(self._chance.uniform(0, 0.1))

    def _environment(self, spark: SparkSession) -> Mapping[str, str]:
        return os.environ | {"TMPDIR": str(self._folder)} | given_jvm(spark)

    def assert_right(self, spark: SparkSession) -> None:
        """Our reader sees no id twice and none that was lost since; a plain reader sees the same, or fails."""
        if not self.visible():
            return
        ours = sorted(str(row[0]) for row in run_sql(spark, self._urls["audit"], "SELECT id FROM transitions").rows)
        assert len(set(ours)) == len(ours)
        assert self.ids.issuperset(ours)
        assert self._seen.issubset(ours)
        self._seen = set(ours)
        with suppress(duckdb.InvalidInputException):  # a replacement has not ended
            assert self.plain_ids() == ours

    _seen: frozenset[str] | set[str] = frozenset()

    def play_all(self, spark: SparkSession, rounds: int) -> None:
        """Play so many rounds, check the answers after each, and complete the log."""
        with lending_its_jvm(spark):
            for _ in range(rounds):
                self.play(spark)
                self.assert_right(spark)
        self.complete(spark)

    def complete(self, spark: SparkSession) -> None:
        """Without a kill: an ingest and what `audit compact` does, which removes what killed commands left. The log is sound then."""
        ingest(spark, self._urls["spool"], self._urls["audit"])
        compact(spark, self._urls["audit"])
        materialize(spark, self._urls["audit"], before=_CLOSED_BEFORE)
        assert verify(spark, self._urls["audit"], deep=True).findings == []
