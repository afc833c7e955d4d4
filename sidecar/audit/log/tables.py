"""The tables of the audit log, and what its folder consists of."""

import re
from datetime import date
from typing import Final

from msgspec import Struct
from pyspark.sql.types import StructType

from sidecar.audit.log.checkpoints import CHECKPOINTS
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.manifest import CLOSED
from sidecar.audit.log.schema import BASE_VIEWS, EVENT_DATE, QUARANTINE, RECORDS, table_of
from sidecar.audit.log.storage import INGESTING, LOCK, REPLACED, STAGING

_DATE: Final = re.compile(rf"{EVENT_DATE}=(\d{{4}}-\d{{2}}-\d{{2}})")
ENTRIES: Final = frozenset({*BASE_VIEWS, *CLOSED_TABLES, CLOSED, CHECKPOINTS, STAGING, REPLACED, LOCK, INGESTING})
"""The names in the folder of an audit log. A folder without any of them is not an audit log."""


class Table(Struct, frozen=True):
    """One table: `<audit>/<name>/event_date=…/*.parquet`."""

    name: str
    schema: StructType
    time: str
    """The column whose UTC date is `event_date`."""
    order: tuple[str, ...]
    """The columns by which the rows of one file are sorted."""
    first: tuple[str, ...]
    """Of several rows with one id, the first by these columns is kept."""


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


def date_folder(table: str, day: date) -> str:
    """The folder of a date, relative to the audit log."""
    return f"{table}/{EVENT_DATE}={day}"


def date_of(folder: str) -> date | None:
    """The date of `event_date=2026-11-20`; None for any other name."""
    match = _DATE.fullmatch(folder)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None
