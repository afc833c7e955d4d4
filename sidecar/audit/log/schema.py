"""The Spark schemas of the audit tables, derived from the Structs in `sidecar.core.records`."""

from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sidecar.audit.log.manifest import SOURCES
from sidecar.core.moment import Timestamp
from sidecar.core.records import AnyRecord

EVENT_DATE: Final = "event_date"
"""The UTC date of `observed_at`. Of a table with a folder for each date it is in the folder's name, not in the files."""
EVENT_MONTH: Final = "event_month"
"""The month of `event_date`, in the folder's name of a table with a folder for each month. Its files have `event_date`."""

_SCALARS: Final[dict[object, DataType]] = {
    str: StringType(),
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    Timestamp: TimestampType(),
}


def spark_type(annotation: Any) -> DataType:
    """The Spark type for a field of a record. Every column is nullable: rows of an older schema lack the newer fields."""
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return struct_type(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict and arguments[0] is str:
        return MapType(StringType(), spark_type(arguments[1]))
    if origin is list:
        return ArrayType(spark_type(arguments[0]))
    if origin in {Union, UnionType}:
        types = [argument for argument in arguments if argument is not NoneType]
        if len(types) == 1:
            return spark_type(types[0])
    raise TypeError(f"the audit tables have no column type for {annotation}")


def struct_type(struct: type[Struct]) -> StructType:
    """The fields of `struct` by their JSON names, in order; of a record's line, `type` comes first."""
    tag = struct.__struct_config__.tag_field
    columns = [StructField(tag, StringType())] if tag else []
    return StructType(columns + [StructField(field.encode_name, spark_type(field.type)) for field in fields(struct)])


RECORDS: Final[dict[str, StructType]] = {
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

_PLURALS: Final = {"coverage": "coverage", "evidence": "evidence", "recovery": "recoveries", "status": "statuses"}


def table_of(record_type: str) -> str:
    """The name of the table and of the view with the records of a type."""
    return _PLURALS.get(record_type, f"{record_type}s")


BASE_VIEWS: Final[dict[str, StructType]] = {
    **{table_of(record_type): StructType(line.fields[1:]) for record_type, line in RECORDS.items()},
    "quarantine": QUARANTINE,
}
"""The schema of every table, whether it exists yet or not. The `type` of a line is the table's name, and no column."""


def partition_column(table: str) -> str:
    """The column that is in the names of a table's folders.

    Materialised answers, and what they are made of, have a folder for each date: dates are closed one by one, and of a large fleet these
    are nearly all rows. All else has one for each month: a file costs more than the few rows of a date (docs/project/adr/0051-months.md).
    """
    return EVENT_MONTH if table in BASE_VIEWS and table not in SOURCES else EVENT_DATE


def with_event_date(schema: StructType) -> StructType:
    """The columns of a table as readers see them."""
    return StructType([*schema.fields, StructField(EVENT_DATE, DateType())])


def any_record() -> StructType:
    """One schema that fits every type of record, so that a line is parsed once.

    Raises TypeError when two types of record have a field with one name and different types.
    """
    merged: dict[str, StructField] = {}
    for schema in RECORDS.values():
        for field in schema.fields:
            if merged.setdefault(field.name, field).dataType != field.dataType:
                raise TypeError(f"two types of record disagree about the type of {field.name}")
    return StructType(list(merged.values()))
