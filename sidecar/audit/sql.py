"""Ask the audit log, and write the answer as a table, JSON lines or CSV."""

import csv
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC
from itertools import chain, islice
from typing import Any, Final, Literal, TextIO, TypeVar

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sidecar.audit.audit_error import FILE_UNREADABLE, AuditError, failing_to
from sidecar.audit.query_check import check_query
from sidecar.audit.session import own_session
from sidecar.audit.views import register_views
from sidecar.core.sanitize import escaped

Output = Literal["table", "json", "csv"]
_T = TypeVar("_T")

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 1.0
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""With these, spreadsheets take a cell for a formula."""
_CSV_END: Final = "\r\n"
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WIDTH_ROWS: Final = 1000
"""So many rows of a table are held back to find out how wide its columns are."""

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
"""A value that JSON knows."""

_SCALARS: Final[dict[type[DataType], Callable[[Any], Plain]]] = {
    TimestampType: lambda value: value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    TimestampNTZType: lambda value: value.isoformat(timespec="microseconds"),
    DateType: lambda value: value.isoformat(),
    BinaryType: lambda value: bytes(value).hex(),
}
"""How those values become plain whose text is not Python's."""


class QueryResult(Struct, frozen=True):
    """The answer to a query. Valid while its Spark session is."""

    columns: Sequence[str]
    numeric: Sequence[bool]
    """Which columns are numbers."""
    rows: Iterator[list[Plain]]
    """Fetched piece by piece, so that an answer may be larger than the memory; fetching may raise AuditError. Instants are RFC 3339."""


def run_sql(spark: SparkSession, audit: str, query: str) -> QueryResult:
    """Ask the audit log at `audit` (a path or any URL that Spark takes), in a session of its own in which the views are known.

    The query sees nothing but the views. Raises AuditError when there is no audit log, when the query is a command, or when Spark does not
    understand it.
    """
    session = own_session(spark)
    session.conf.set("spark.sql.runSQLOnFiles", "false")  # a path is no table

    def ask() -> DataFrame:
        register_views(session, audit, named)
        return session.sql(query)

    with failing_to("run the query"):
        named = check_query(session, query)
        answer = ask()
        fields = answer.schema.fields
        return QueryResult(
            columns=[field.name for field in fields],
            numeric=[isinstance(field.dataType, NumericType) for field in fields],
            rows=_rows(answer, ask),
        )


def render(result: QueryResult, output: Output, stream: TextIO) -> None:
    """Write a result: `table` for people (a null is `null`), `json` one object a line, `csv` with a header (a null is empty)."""
    if result.columns:
        {"table": _render_table, "json": _render_json, "csv": _render_csv}[output](result, stream)


def answered(ask: Callable[[], _T]) -> _T:
    """What `ask` returns, which reads the audit log; asks again when a compaction has come between."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            return ask()
        except Exception as error:
            if not attempts_left or FILE_UNREADABLE not in str(error):
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _rows(answer: DataFrame, ask: Callable[[], DataFrame]) -> Iterator[list[Plain]]:
    """The rows of an answer; asks anew when it cannot even begin."""
    plain = [_plain(field.dataType) for field in answer.schema.fields]
    answers = chain([answer], (ask() for _ in range(_ATTEMPTS)))

    def begin() -> tuple[list[Row], Iterator[Row]]:
        rows = next(answers).toLocalIterator()
        return list(islice(rows, 1)), rows

    with failing_to("run the query"):
        for row in chain(*answered(begin)):
            yield [None if value is None else of(value) for of, value in zip(plain, row, strict=True)]


def _plain(kind: DataType) -> Callable[[Any], Plain]:
    """What makes a value of Spark's type `kind` plain."""
    match kind:
        case ArrayType(elementType=element):
            of = _nullable(element)
            return lambda value: [of(item) for item in value]
        case MapType(keyType=keys, valueType=values):
            key, of = _plain(keys), _nullable(values)
            return lambda value: {str(key(name)): of(item) for name, item in value.items()}
        case StructType(fields=fields):
            parts = [(field.name, _nullable(field.dataType)) for field in fields]
            return lambda value: {name: part(item) for (name, part), item in zip(parts, value, strict=True)}
        case StringType() | BooleanType() | IntegralType() | FractionalType():
            return lambda value: value if isinstance(value, bool | int | float | str) else str(value)
        case _:
            return _SCALARS.get(type(kind), str)


def _nullable(kind: DataType) -> Callable[[Any], Plain]:
    plain = _plain(kind)
    return lambda value: None if value is None else plain(value)


def _text(value: Plain) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _render_json(result: QueryResult, stream: TextIO) -> None:
    if len(set(result.columns)) < len(result.columns):
        raise AuditError("cannot write the answer as JSON: two of its columns have one name; give one another with AS")
    stream.writelines(escaped(_text(dict(zip(result.columns, row, strict=True)))) + "\n" for row in result.rows)


def _render_csv(result: QueryResult, stream: TextIO) -> None:
    writer = csv.writer(_Lines(stream), lineterminator=_CSV_END)
    on_terminal = stream.isatty()

    def cell(value: Plain) -> str:
        text = "" if value is None else _no_formula(value) if isinstance(value, str) else _text(value)
        return escaped(text, keep="\t\r\n") if on_terminal else text

    writer.writerow([cell(name) for name in result.columns])
    writer.writerows([cell(value) for value in row] for row in result.rows)


class _Lines:
    """Writes rows as lines. Only what may end a row is quoted by the csv module, so it is told more ends than these have."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> int:
        return self._stream.write(row.removesuffix(_CSV_END) + "\n")


def _no_formula(text: str) -> str:
    """A text that a spreadsheet shows as text, as OWASP advises; what looks like a number stays one."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(text) else text


def _render_table(result: QueryResult, stream: TextIO) -> None:
    rows = ([escaped(_text(value)) for value in row] for row in result.rows)
    head = list(islice(rows, _WIDTH_ROWS))
    names = [escaped(name) for name in result.columns]
    widths = [max(map(len, column)) for column in zip(names, *head, strict=True)]
    count = 0

    def line(cells: Sequence[str], numeric: Sequence[bool]) -> str:
        padded = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip() + "\n"

    stream.write(line(names, result.numeric))
    stream.write(line(["-" * width for width in widths], result.numeric))
    for count, row in enumerate(chain(head, rows), start=1):  # noqa: B007  its last value is the number of rows
        stream.write(line(row, result.numeric))
    stream.write(f"({count} row{'' if count == 1 else 's'})\n")
