"""The tables of the audit log, and what its folder consists of."""

from calendar import monthrange
from datetime import date
from typing import Final, NamedTuple

from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql.types import StructType

from sidecar.audit.log.checkpoints import CHECKPOINTS
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.manifest import CLOSED
from sidecar.audit.log.schema import (
    BASE_VIEWS,
    EVENT_DATE,
    EVENT_MONTH,
    QUARANTINE,
    RECORDS,
    partition_column,
    table_of,
    with_event_date,
)
from sidecar.audit.log.storage import INGESTING, LOCK, REPLACED, STAGING

_LENGTH: Final = {EVENT_DATE: len("2026-11-20"), EVENT_MONTH: len("2026-11")}
"""How much of a date is the value in a folder's name."""
ENTRIES: Final = frozenset({*BASE_VIEWS, *CLOSED_TABLES, CLOSED, CHECKPOINTS, STAGING, REPLACED, LOCK, INGESTING})
"""The names in the folder of an audit log. A folder without any of them is not an audit log."""


class Table(Struct, frozen=True):
    """One table: `<audit>/<name>/event_date=…/*.parquet` or `<audit>/<name>/event_month=…/*.parquet`."""

    name: str
    schema: StructType
    time: str
    """The column whose UTC date is `event_date`."""
    order: tuple[str, ...]
    """The columns by which the rows of one file are sorted."""
    first: tuple[str, ...]
    """Of several rows with one id, the first by these columns is kept."""

    @property
    def partition(self) -> str:
        """The column that is in the names of its folders."""
        return partition_column(self.name)

    @property
    def file_schema(self) -> StructType:
        """The columns in its files."""
        return with_event_date(self.schema) if self.partition == EVENT_MONTH else self.schema


RECORD_TABLES: Final = {
    record_type: Table(
        name=table_of(record_type),
        schema=BASE_VIEWS[table_of(record_type)],
        time="observed_at",
        order=("cluster_id", "observed_at"),
        first=("observed_at", "recorded_at", "observer"),
    )
    for record_type in RECORDS
}
"""The table of each type of record, by its `type`."""
QUARANTINE_TABLE: Final = Table(
    name="quarantine", schema=QUARANTINE, time="found_at", order=("file",), first=("found_at",)
)
TABLES: Final = {table.name: table for table in (*RECORD_TABLES.values(), QUARANTINE_TABLE)}


class Period(NamedTuple):
    """The dates of which a folder has the rows: one, or those of a month."""

    first: date
    last: date


def folder_of(table: str, day: date) -> str:
    """The folder with a table's rows of a date, relative to the audit log."""
    column = partition_column(table)
    return f"{table}/{column}={str(day)[: _LENGTH[column]]}"


def period_of(table: str, folder: str) -> Period | None:
    """The dates of a folder of a table, by its name: `event_date=2026-11-20`, `event_month=2026-11`; None for any other name."""
    try:
        first = date.fromisoformat(f"{folder.partition('=')[2]}-01"[: _LENGTH[EVENT_DATE]])
    except ValueError:
        return None
    if folder_of(table, first) != f"{table}/{folder}":
        return None
    is_dated = partition_column(table) == EVENT_DATE
    return Period(first, first if is_dated else first.replace(day=monthrange(first.year, first.month)[1]))


def partition_value(table: str, day: Column) -> Column:
    """The text behind `=` in the name of the folder with a table's rows of `day`."""
    return F.substring(day.cast("string"), 1, _LENGTH[partition_column(table)])
