"""The tables of the audit log, and the one way in which rows get into them: each id once, whatever happens on the way.

Rows are written where no reader looks; only then are their ids looked at, and where one is there twice or visible already, the files that
hold it are written again without it. What is left is on disk before it is visible, and becomes visible file by file. So whoever dies in
between leaves files that are complete, and rows that the next attempt leaves out: no state has to survive
(docs/adr/0004-audit-exactly-once.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Final
from uuid import uuid4

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.schema import BASE_VIEWS, EVENT_DATE, with_event_date
from sidecar.audit.storage import INGESTING, LOCK, PARQUET, REPLACED, STAGING, Storage
from sidecar.audit.visible_ids import HASH, VisibleIds

CHECKPOINTS: Final = "_checkpoints"

OURS: Final = frozenset({*BASE_VIEWS, CHECKPOINTS, STAGING, REPLACED, LOCK, INGESTING})
"""What may stand in the folder of an audit log. Where nothing of it does, the folder is somebody else's."""


class Table(Struct, frozen=True):
    """One table: `<audit>/<name>/event_date=…/*.parquet`."""

    name: str
    schema: StructType
    time: str
    """The column whose UTC date is `event_date`."""
    order: tuple[str, ...]
    """By what the rows of one file are sorted."""
    first: tuple[str, ...]
    """Of several rows with one id, that which comes first in these columns is kept."""


class Writer:
    """Appends to the tables of one audit log, as long as it is `working`. Remembers from one time to the next which ids are visible."""

    def __init__(self, session: SparkSession, audit: Storage) -> None:
        self._session = session
        self._audit = audit
        self._seen: dict[str, VisibleIds] = {}

    def close(self) -> None:
        """Leave nothing behind."""
        for seen in self._seen.values():
            seen.forget()

    @contextmanager
    def working(self, stop: Event) -> Iterator[None]:
        """Be the only one who writes. Raises AuditError when that cannot be, StoppedError when `stop` is set first."""
        with self._audit.locked(stop=stop):
            self._audit.make_folder(STAGING)
            remembered = {part for seen in self._seen.values() for part in seen.parts}
            for name in self._audit.names(STAGING):
                if f"{STAGING}/{name}" not in remembered:
                    self._audit.delete(
                        f"{STAGING}/{name}"
                    )  # one who died has not made it visible: it will be made again
            yield

    def append(self, rows: DataFrame, table: Table) -> int:
        """Add the rows whose ids the table does not hold yet; returns how many there were.

        Of each partition of `rows` there will be one file in each of its dates.
        """
        folder = f"{STAGING}/{uuid4()}"
        try:
            self._stage(rows.withColumn(EVENT_DATE, F.to_date(table.time)), table, f"{folder}/0")
            count = self._leave_out_repetitions(folder, table)
            for file in self._audit.files(folder, PARQUET):
                self._audit.publish(f"{folder}/{file}", f"{table.name}/{file.partition('/')[2]}")
        finally:
            self._audit.delete(folder)
        return count

    def _stage(self, rows: DataFrame, table: Table, folder: str) -> None:
        ordered = rows.sortWithinPartitions(EVENT_DATE, *table.order)
        # No id is there twice: a dictionary of them would be begun and thrown away.
        writer = ordered.write.option("parquet.enable.dictionary#id", "false")
        writer.partitionBy(EVENT_DATE).parquet(self._audit.full_url(folder))

    def _leave_out_repetitions(self, folder: str, table: Table) -> int:
        """Of the files below `0` write those again, below `1`, that hold an id twice or a visible one. Returns how many rows are left."""
        url = self._audit.full_url(f"{folder}/0")
        rows = self._session.read.schema(f"id string, {EVENT_DATE} date").parquet(url)
        hashes = rows.selectExpr(HASH)
        count, different = hashes.agg(F.count("*"), F.count_distinct("hash")).collect()[0]
        seen = self._seen.setdefault(table.name, VisibleIds(self._session, self._audit, table.name))
        dates = seen.dates_of(hashes) if count else []
        if different == count and not dates:
            return int(count)
        visible = seen.among(hashes, dates)
        doubtful = hashes.groupBy("hash").count().where("count > 1").select("hash").unionAll(visible.selectExpr(HASH))
        in_file = rows.selectExpr(HASH, f"concat('{EVENT_DATE}=', {EVENT_DATE}, '/', _metadata.file_name) AS file")
        concerned = [
            row.file for row in in_file.join(doubtful, "hash", "left_semi").select("file").distinct().collect()
        ]
        if not concerned:
            return int(count)  # two different ids with one hash
        whole = self._session.read.schema(with_event_date(table.schema)).option("basePath", url)
        repeating = whole.parquet(*(f"{url}/{file}" for file in concerned))
        same_id = Window.partitionBy("id").orderBy(*table.first)
        first = (
            repeating.join(visible, "id", "left_anti").withColumn("nth", F.row_number().over(same_id)).where("nth = 1")
        )
        # At least one file per date and not more than needed.
        self._stage(first.drop("nth").hint("rebalance", EVENT_DATE), table, f"{folder}/1")
        for file in concerned:
            self._audit.delete(f"{folder}/0/{file}")
        return int(
            self._session.read.schema(table.schema)
            .option("recursiveFileLookup", True)
            .parquet(self._audit.full_url(folder))
            .count()
        )
