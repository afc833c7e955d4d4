"""The writer that adds each id to the tables of the audit log exactly once.

Rows are staged where no reader looks. Then their ids are compared: files with a repeated or already visible id are rewritten without it.
The remaining files are synced to disk, and become visible one by one. A writer that dies leaves complete files, whose rows the next
attempt skips: no state has to survive (docs/project/adr/0004-audit-exactly-once.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from sidecar.audit.ingest.packing import Packing
from sidecar.audit.ingest.visible_ids import HASH, Hashes, VisibleIds
from sidecar.audit.log.schema import EVENT_DATE, with_event_date
from sidecar.audit.log.storage import PARQUET, Storage
from sidecar.audit.log.tables import TABLES, Table, partition_value
from sidecar.audit.spark.collected import collected


class Writer:
    """Appends to the tables of one audit log, inside of `working`."""

    def __init__(self, session: SparkSession, audit: Storage) -> None:
        self._session = session
        self._audit = audit
        self._staging = audit
        """Of the audit log, while it is locked."""
        self._visible: dict[str, VisibleIds] = {}

    @contextmanager
    def working(self, stop: Event) -> Iterator[None]:
        """Hold the lock of the audit log. Raises AuditError when another process holds it, StoppedError when `stop` is set first."""
        with self._audit.locked(stop=stop):
            self._staging = self._audit.staging
            # Left by a writer that died: its rows will be staged again.
            for name in self._staging.names():
                self._staging.delete(name)
            yield

    @contextmanager
    def packing(self) -> Iterator[Packing | None]:
        """Where lines are packed in the block; None: Spark's executors are on other machines."""
        if self._staging.local is None:
            yield None
            return
        folder = str(uuid4())
        try:
            yield Packing(self._staging.local / folder)
        finally:
            self._staging.delete(folder)

    def index_sizes(self) -> Iterator[int]:
        """The sizes of the indexes of ids, one of which each `append` reads, in bytes."""
        return (self._ids(table).size for table in TABLES)

    def append(self, rows: DataFrame, table: Table, *, few: bool = False) -> int:
        """Add the rows whose ids the table does not contain yet; returns their number.

        Each partition of `rows` becomes one file for each date or month. `few`: one task is enough for all of them.
        """
        folder = str(uuid4())
        try:
            # In one partition the first row of each id is known without a shuffle.
            self._stage(_first_of_each_id(rows.coalesce(1), table) if few else rows, table, f"{folder}/0")
            count = self._remove_repeated_ids(folder, table)
            files = self._staging.files(folder, PARQUET)
            self._audit.publish({f"{folder}/{file}": f"{table.name}/{file.partition('/')[2]}" for file in files})
        finally:
            self._staging.delete(folder)
        return count

    def _stage(self, rows: DataFrame, table: Table, folder: str) -> None:
        rows = rows.withColumn(EVENT_DATE, F.to_date(table.time))
        if table.partition != EVENT_DATE:
            rows = rows.withColumn(table.partition, partition_value(table.name, F.col(EVENT_DATE)))
        ordered = rows.sortWithinPartitions(table.partition, *table.order)
        # Ids are unique: Parquet would begin a dictionary of them and discard it.
        writer = ordered.write.option("parquet.enable.dictionary#id", "false")
        writer.partitionBy(table.partition).parquet(self._staging.full_url(folder))

    def _remove_repeated_ids(self, folder: str, table: Table) -> int:
        """Rewrite the files below `0` that contain a repeated or visible id, without it, below `1`; returns how many rows remain."""
        staged = f"{folder}/0"
        rows = self._session.read.schema(f"id string, {EVENT_DATE} date").parquet(self._staging.to_read(staged))
        hashes = Hashes(rows.selectExpr(HASH))
        visible_ids = self._ids(table.name)
        matching = visible_ids.files_with(hashes) if hashes.count else []
        if hashes.different == hashes.count and not matching:
            return hashes.count
        visible = visible_ids.among(hashes, matching)
        repeated = hashes.repeated.unionAll(visible.selectExpr(HASH))
        in_file = rows.selectExpr(HASH, "substring_index(_metadata.file_path, '/', -2) AS file")
        files = [row.file for row in collected(in_file.join(repeated, "hash", "left_semi").select("file").distinct())]
        if not files:
            return hashes.count  # two different ids with one hash
        reader = self._session.read.schema(with_event_date(table.schema))
        reader = reader.option("basePath", self._staging.full_url(staged))
        invisible = reader.parquet(*(self._staging.to_read(f"{staged}/{file}") for file in files))
        invisible = invisible.join(visible, "id", "left_anti")
        # At least one file for each folder and not more than needed.
        first = _first_of_each_id(invisible, table).hint("rebalance", table.partition)
        self._stage(first, table, f"{folder}/1")
        for file in files:
            self._staging.delete(f"{staged}/{file}")
        remaining = self._session.read.schema(table.schema).option("recursiveFileLookup", True)
        return remaining.parquet(self._staging.to_read(folder)).count()

    def _ids(self, table: str) -> VisibleIds:
        if table not in self._visible:
            self._visible[table] = VisibleIds(self._session, self._audit, table)
        return self._visible[table]


def _first_of_each_id(rows: DataFrame, table: Table) -> DataFrame:
    same_id = Window.partitionBy("id").orderBy(*table.first)
    return rows.withColumn("nth", F.row_number().over(same_id)).where("nth = 1").drop("nth")
