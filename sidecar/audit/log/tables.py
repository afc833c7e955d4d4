"""The tables of the audit log: their Spark schemas, derived from the Structs in `sidecar.core.records`, and their folders."""

from calendar import monthrange
from datetime import date
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812  the same

from sidecar.core.moment import Timestamp
from sidecar.core.records import AnyRecord

EVENT_DATE: Final = "event_date"
"""The UTC date of `observed_at`; of answers see `closed_tables`. In the name of a folder or, where that is a month, in its files."""
EVENT_MONTH: Final = "event_month"
"""The month of `event_date`, in the name of a folder. Its files have `event_date`."""

_SCALARS: Final[dict[object, T.DataType]] = {
    str: T.StringType(),
    bool: T.BooleanType(),
    int: T.LongType(),
    float: T.DoubleType(),
    Timestamp: T.TimestampType(),
}
_PLURALS: Final = {"coverage": "coverage", "evidence": "evidence", "recovery": "recoveries", "status": "statuses"}
_LENGTH: Final = {EVENT_DATE: len("2026-11-20"), EVENT_MONTH: len("2026-11")}
"""How much of a date is the value in a folder's name."""


def spark_type(annotation: Any) -> T.DataType:
    """The Spark type for a field of a record. Every column is nullable: rows of an older schema lack the newer fields."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return struct_type(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict and arguments[0] is str:
        return T.MapType(T.StringType(), spark_type(arguments[1]))
    if origin is list:
        return T.ArrayType(spark_type(arguments[0]))
    if origin in {Union, UnionType}:
        types = [argument for argument in arguments if argument is not NoneType]
        if len(types) == 1:
            return spark_type(types[0])
    raise TypeError(f"the audit tables have no column type for {annotation}")


def struct_type(struct: type[Struct]) -> T.StructType:
    """The fields of `struct` by their JSON names, in order; of a record's line, `type` comes first."""
    tag = struct.__struct_config__.tag_field
    columns = [T.StructField(tag, T.StringType())] if tag else []
    return T.StructType(
        columns + [T.StructField(field.encode_name, spark_type(field.type)) for field in fields(struct)]
    )


RECORDS: Final[dict[str, T.StructType]] = {
    str(record.__struct_config__.tag): struct_type(record) for record in get_args(AnyRecord)
}
"""The fields of a line of each type of record, by its `type`."""


class QuarantinedLine(Struct, kw_only=True):
    """Lines of the spool that are not records, and why."""

    id: str
    """A SHA-256 of the file and the line, or of the file alone: once in the table."""
    file: str
    """The segment, below the spool."""
    line: str | None
    """The line, its first 8,192 characters. Null: the segment or folder itself cannot be read."""
    times: int
    """How often the segment contains the line."""
    reason: str
    """Why it is not a record: docs/explanation/audit.md#quarantine."""
    found_at: Timestamp
    """When that was found."""


QUARANTINE: Final = struct_type(QuarantinedLine)


def table_of(record_type: str) -> str:
    """The name of the table and of the view with the records of a type."""
    return _PLURALS.get(record_type, f"{record_type}s")


BASE_VIEWS: Final[dict[str, T.StructType]] = {
    **{table_of(record_type): T.StructType(line.fields[1:]) for record_type, line in RECORDS.items()},
    "quarantine": QUARANTINE,
}
"""The schema of every table, whether it exists yet or not. The `type` of a line is the table's name, and no column."""


def partition_column(table: str) -> str:
    """The column that is in the names of a table's folders.

    Transitions have a folder for each date: of a large fleet they are nearly all rows. All else has one for each month: a file costs more
    than the few rows of a date (docs/project/adr/0051-months.md).
    """
    return EVENT_DATE if table == "transitions" else EVENT_MONTH


def with_event_date(schema: T.StructType) -> T.StructType:
    """The columns of a table as readers see them."""
    return T.StructType([*schema.fields, T.StructField(EVENT_DATE, T.DateType())])


def any_record() -> T.StructType:
    """One schema that fits every type of record, so that a line is parsed once.

    Raises TypeError when two types of record have a field with one name and different types.
    """
    merged: dict[str, T.StructField] = {}
    for schema in RECORDS.values():
        for field in schema.fields:
            if merged.setdefault(field.name, field).dataType != field.dataType:
                raise TypeError(f"two types of record disagree about the type of {field.name}")
    return T.StructType(list(merged.values()))


class Table(Struct, frozen=True):
    """One table: `<audit>/<name>/event_date=…/*.parquet` or `<audit>/<name>/event_month=…/*.parquet`."""

    name: str
    schema: T.StructType
    time: str
    """The column whose UTC date is `event_date`."""
    order: tuple[str, ...]
    """The columns by which the rows of one file are sorted."""
    first: tuple[str, ...]
    """The first row by these columns is kept of several with one id."""

    @property
    def partition(self) -> str:
        """The column that is in the names of its folders."""
        return partition_column(self.name)

    @property
    def file_schema(self) -> T.StructType:
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
