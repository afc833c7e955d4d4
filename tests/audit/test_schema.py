"""The tables follow from the records."""

from typing import Any, get_args

import msgspec
import pytest
from pyspark.sql.types import ArrayType, DoubleType, LongType, MapType, StringType, StructType, TimestampType

from sidecar.audit.log.tables import BASE_VIEWS, RECORDS, any_record, spark_type, table_of
from sidecar.core.moment import Timestamp
from sidecar.core.records import AnyRecord, PositionRecord
from tests.audit.spooling import (
    annotation,
    contention,
    coverage,
    death,
    drill,
    episode,
    evidence,
    ha_check,
    line,
    notification,
    recovery,
    status,
    transition,
)

WRITTEN: list[AnyRecord] = [
    *(transition(1), coverage(1), contention(1), notification(1), episode(1), annotation(1)),
    *(evidence(1), death(1), recovery(1), status(1), ha_check(1), drill(1)),
]


def test_every_type_of_record_has_a_table_and_a_view() -> None:
    """A type of record that the core learns to write is a table without a change here."""
    tags = {struct.__struct_config__.tag for struct in get_args(AnyRecord)}
    assert set(RECORDS) == tags == {record.__struct_config__.tag for record in WRITTEN}
    assert {table_of(tag) for tag in RECORDS} == set(BASE_VIEWS) - {"quarantine"}
    assert set(BASE_VIEWS) == {
        *("transitions", "episodes", "notifications", "evidence", "coverage", "annotations"),
        *("contentions", "deaths", "recoveries", "statuses", "ha_checks", "drills", "quarantine"),
    }


@pytest.mark.parametrize("record", WRITTEN, ids=lambda record: record.__struct_config__.tag)
def test_a_table_has_the_fields_of_the_json_line(record: AnyRecord) -> None:
    """What stands in a line stands in the table: the same names, in the same order. Its type is the table."""
    fields: dict[str, Any] = msgspec.json.decode(line(record))
    assert RECORDS[fields["type"]].names == list(fields)
    assert ["type", *BASE_VIEWS[table_of(fields["type"])].names] == list(fields)


def test_a_field_becomes_the_column_that_its_type_says() -> None:
    """Numbers, instants, maps and structs keep what they are."""
    assert spark_type(int | None) == LongType()
    assert spark_type(float | None) == DoubleType()
    assert spark_type(Timestamp | None) == TimestampType()
    assert spark_type(list[str]) == ArrayType(StringType())
    assert spark_type(dict[str, int]) == MapType(StringType(), LongType())
    position = spark_type(PositionRecord | None)
    assert isinstance(position, StructType)
    assert position["czxid"].dataType == LongType()


def test_a_type_that_no_column_can_hold_is_an_error() -> None:
    """Rather than a column that holds it as something else."""
    with pytest.raises(TypeError, match=r"no column type for int \| str"):
        spark_type(int | str)


def test_one_name_means_one_thing_in_all_records() -> None:
    """So that a line can be parsed before it is known what it is."""
    merged = any_record()
    for schema in RECORDS.values():
        assert all(merged[field.name] == field for field in schema)
