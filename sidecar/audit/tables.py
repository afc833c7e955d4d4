"""The tables of the audit log, and the one way in which rows get into them: each id once, whatever happens on the way.

Rows are written where no reader looks, on disk before they are visible, and become visible file by file. Before that, those whose id is
already visible were left out. So whoever dies in between leaves files that are complete, and rows that the next attempt leaves out: no
state has to survive (docs/adr/0004-audit-exactly-once.md).
"""

from typing import Final
from uuid import uuid4

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.schema import BASE_VIEWS, EVENT_DATE
from sidecar.audit.storage import LOCK, Storage

CHECKPOINTS: Final = "_checkpoints"
_STAGING: Final = "_staging"
_PARQUET: Final = ".parquet"

OURS: Final = frozenset({*BASE_VIEWS, CHECKPOINTS, _STAGING, LOCK})
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
    """Appends to the tables of one audit log. The only one who may: its folder is `locked`."""

    def __init__(self, session: SparkSession, audit: Storage) -> None:
        self._session = session
        self._audit = audit
        audit.delete(_STAGING)  # what a predecessor that died has not made visible is made again
        audit.make(_STAGING)

    def append(self, rows: DataFrame, table: Table) -> int:
        """Add the rows whose ids the table does not hold yet; returns how many there were."""
        new = self._unseen(rows.withColumn(EVENT_DATE, F.to_date(table.time)), table)
        staged = f"{_STAGING}/{uuid4()}"
        (
            # At least one file per date and not more than needed.
            new.hint("rebalance", EVENT_DATE)
            .sortWithinPartitions(EVENT_DATE, *table.order)
            .write.partitionBy(EVENT_DATE)
            .parquet(self._audit.at(staged))
        )
        count = self._session.read.schema(table.schema).parquet(self._audit.at(staged)).count()
        for file in self._audit.files(staged, _PARQUET):
            self._audit.publish(f"{staged}/{file}", f"{table.name}/{file}")
        self._audit.delete(staged)
        return count

    def _unseen(self, rows: DataFrame, table: Table) -> DataFrame:
        """The first row of each id that the table does not hold, on whatever date.

        Observers with different clocks may have seen one change on different dates, so that the ids of all dates count. Only those whose
        hash is among the new ones have to be compared.
        """
        if self._audit.is_folder(table.name):
            ids = rows.select(F.xxhash64("id").alias("hash"))
            visible = self._session.read.schema("id string").parquet(self._audit.at(table.name))
            seen = visible.join(F.broadcast(ids), F.xxhash64("id") == F.col("hash"), "left_semi").select("id")
            rows = rows.join(seen, "id", "left_anti")
        same_id = Window.partitionBy("id").orderBy(*table.first)
        first = rows.withColumn("nth", F.row_number().over(same_id)).where("nth = 1")
        return first.select(*table.schema.names, EVENT_DATE)
