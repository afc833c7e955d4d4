"""Keeps the leadership since the last closed date, so that several questions compute it once.

See docs/project/adr/0029-materialised-leadership.md.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.spark.session import sizes_to_read, tune

_MAX_BYTES: Final = 64_000_000
"""Of the files that are folded, as compressed. Their rows take three times as much of Spark's memory."""


class RecentLeadership:
    """The rows of `_stretches`, of one audit log, and what they were computed from. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: DataFrame | None = None
        self._made_of: tuple[datetime, frozenset[str]] | None = None

    def rows(
        self, session: SparkSession, begin: datetime, sources: Collection[str], fold: Callable[[], DataFrame]
    ) -> DataFrame:
        """What `fold` computes from `begin` and the views `sources`: computed now, unless it is kept of these very files.

        If they are large, or Spark runs on several machines, of which one may fail, `fold` itself: it computes whenever it is read. What
        the session plans from now on is tuned to these files.
        """
        tables = [session.table(name) for name in sources]
        sizes = [size for table in tables for size in sizes_to_read(table)]
        if sum(sizes) > _MAX_BYTES or not str(session.sparkContext.master).startswith("local"):
            return fold()
        made_of = begin, frozenset(file for table in tables for file in table.inputFiles())  # files never change
        if self._rows is None or made_of != self._made_of:
            tune(session, sizes)
            # Not persist(): Spark forgets persisted rows when any session drops a view with the name of one that they were made of.
            self._rows, self._made_of = fold().localCheckpoint(), made_of
        return _in_session(session, self._rows)

    def forget(self) -> None:
        """Compute anew for the next question: after a failure, parts of what is kept may be lost."""
        self._rows = None


def _in_session(session: SparkSession, rows: DataFrame) -> DataFrame:
    """Rows of another session. They need no view once they are found."""
    name = f"recent_{uuid4().hex}"
    rows.createGlobalTempView(name)
    try:
        return session.table(f"global_temp.{name}")
    finally:
        session.catalog.dropGlobalTempView(name)
