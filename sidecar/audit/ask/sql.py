"""Queries the audit log, joined with tables of the operator's own, and writes the answer as a table, JSON lines or CSV."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, Final, Literal, TextIO, get_args

import msgspec
from msgspec import Struct
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention

from sidecar.audit.ask.query_check import NO_FILES, check_query, query_session
from sidecar.audit.ask.query_check import answer as answer_of
from sidecar.audit.ask.registration import RecentLeadership, leadership_reads, register_views
from sidecar.audit.audit_error import AuditError, failing_to, retried
from sidecar.audit.spark.spark_session import own_session, sizes_to_read, tune
from sidecar.audit.views.catalog import catalog
from sidecar.core.counted import counted
from sidecar.core.sanitize import clean, escaped

_BETWEEN_ROWS: Final = "\0"
Output = Literal["table", "vertical", "json", "csv"]
OUTPUTS: Final[Sequence[Output]] = get_args(Output)
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Spreadsheets interpret a cell that begins with one of these as a formula."""
_CSV_END: Final = "\r\n"
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WIDTH_ROWS: Final = 1000
"""The number of rows that are buffered to compute the widths of a table's columns."""
Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
"""A JSON value."""
_SCALARS: Final[dict[type[T.DataType], Callable[[Any], Plain]]] = {
    T.TimestampType: lambda value: value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    T.TimestampNTZType: lambda value: value.isoformat(timespec="microseconds"),
    T.DateType: lambda value: value.isoformat(),
    T.BinaryType: lambda value: bytes(value).hex(),
}
"""Conversions of types whose text is not that of Python."""


class OwnTable(Struct, frozen=True):
    """The rows of a file, in the memory of Spark's driver."""

    name: str
    file: Path
    rows: Any
    """A `java.util.List` of Spark's rows."""
    schema: Any
    """Spark's `T.StructType`."""

    def register(self, session: SparkSession) -> None:
        """Make it a view of the session."""
        jsession: Any = session._jsparkSession  # noqa: SLF001  from Python's rows Spark makes a table of unknown size, which counts as large
        DataFrame(jsession.createDataFrame(self.rows, self.schema), session).createOrReplaceTempView(self.name)


def read_own_tables(spark: SparkSession, files: Mapping[str, Path]) -> list[OwnTable]:
    """The tables of these CSV files, by name. Raises AuditError when a file cannot be read, or the audit log has a table of that name.

    Read before any query: a query itself reads no files (`query_check`), and executors on other machines do not have them.
    """
    return [_read(own_session(spark), name, file) for name, file in files.items()]


def _read(session: SparkSession, name: str, file: Path) -> OwnTable:
    do_what = f"read {file} as {name}"
    if name.lower() in {relation.name for relation in catalog()}:
        raise AuditError(f"cannot {do_what}: the audit log has a table or view of that name; choose another one")
    with failing_to(do_what):
        header, rows = _parsed(file)
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001  no worker of Python has to start
        # A single call, where Py4J would make one for each row of a list.
        lines = jvm.org.apache.hadoop.util.StringUtils.getStringCollection(_BETWEEN_ROWS.join(rows), _BETWEEN_ROWS)
        jsession: Any = session._jsparkSession  # noqa: SLF001  the same
        texts = jsession.createDataset(lines, jvm.org.apache.spark.sql.Encoders.STRING())
        reader: Any = session.read.options(inferSchema=True, escape='"')._jreader  # noqa: SLF001  the same
        table: Any = DataFrame(reader.csv(texts), session).toDF(*header)._jdf  # noqa: SLF001  the same
        return OwnTable(name, file, table.collectAsList(), table.schema())


def _parsed(file: Path) -> tuple[Sequence[str], list[str]]:
    """The names of the columns, and each row as CSV, whatever lines it had (RFC 4180). Raises ValueError."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        text = stream.read()
    if _BETWEEN_ROWS in text:
        raise ValueError("it is not a text")
    header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[""]]
    if not all(header) or len({name.lower() for name in header}) < len(header):
        raise ValueError("its first line has to name every column, each once")
    if not rows:
        raise ValueError("it has no rows below its header")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise ValueError(f"row {number} has {len(row)} values, the header {len(header)} names")
    return header, [_line(row) for row in rows]


def _line(row: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(row)
    return line.getvalue().removesuffix("\r\n")


class QueryResult(Struct, frozen=True):
    """The answer to a query. Valid as long as its Spark session."""

    columns: Sequence[str]
    numeric: Sequence[bool]
    """Which columns are numbers."""
    rows: Iterator[list[Plain]]
    """Fetched lazily, so that an answer may exceed the memory; fetching may raise AuditError. Instants are RFC 3339."""
    is_plan: bool = False
    """Whether it is one text of many lines, Spark's plan of a query."""


def run_sql(
    spark: SparkSession,
    audit: str,
    query: str,
    recent: RecentLeadership | None = None,
    own_tables: Collection[OwnTable] = (),
) -> QueryResult:
    """Query the audit log at `audit` (a path or any URL that Spark supports), in a session of its own.

    The query can read only the views and `own_tables`. Queries with the same `recent` compute the recent leadership once. Raises AuditError
    when there is no audit log, when it is more than a query, or when Spark rejects it.
    """

    def ask() -> DataFrame:
        for table in own_tables:
            table.register(session)
        register_views(session, audit, asked.views, commented=asked.described, recent=leadership)
        try:
            return answer_of(session, query)
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                raise
            name = clean((error.getMessageParameters() or {}).get("relationName"))
            problem = f"the table or view {name} cannot be found; SHOW TABLES lists them, and {NO_FILES}"
            raise AuditError(f"cannot run the query: {problem}") from error

    with failing_to("run the query"):
        session = query_session(spark)
        asked = check_query(session, query)
        once = RecentLeadership() if leadership_reads(asked.views or ()) > 1 else None
        leadership = None if asked.described else recent or once
        answer = ask()
        tune(session, sizes_to_read(answer))
        fields = answer.schema.fields
        return QueryResult(
            columns=[field.name for field in fields],
            numeric=[isinstance(field.dataType, T.NumericType) for field in fields],
            rows=_rows(answer, ask),
            is_plan=asked.explained,
        )


def render(result: QueryResult, output: Output, stream: TextIO) -> None:
    """Write a result as `table`, `vertical` (a line for each value), `json`, one object per line, or as `csv` with a header.

    A null is `null`, in `csv` it is empty. For people, a plan is the lines that Spark makes of it.
    """
    if result.is_plan and output in {"table", "vertical"}:
        stream.writelines(escaped(_text(plan), keep="\n") for (plan,) in result.rows)
    elif result.columns:
        _RENDERERS[output](result, stream)


def _rows(answer: DataFrame, ask: Callable[[], DataFrame]) -> Iterator[list[Plain]]:
    """The rows of an answer; asks again if the first row cannot be read."""
    converters = [_converter(field.dataType) for field in answer.schema.fields]
    answers = chain([answer], (ask() for _ in repeat(None)))

    def begin() -> tuple[list[Row], Iterator[Row]]:
        rows = next(answers).toLocalIterator()
        return list(islice(rows, 1)), rows

    with failing_to("run the query"):
        for row in chain(*retried(begin)):
            yield [convert(value) for convert, value in zip(converters, row, strict=True)]


def _converter(kind: T.DataType) -> Callable[[Any], Plain]:
    """Converts values of Spark's type `kind`, or null, to JSON values."""
    convert = _converter_of_values(kind)
    return lambda value: None if value is None else convert(value)


def _converter_of_values(kind: T.DataType) -> Callable[[Any], Plain]:
    match kind:
        case T.ArrayType(elementType=element):
            of = _converter(element)
            return lambda value: [of(item) for item in value]
        case T.MapType(keyType=keys, valueType=values):
            key, of = _converter(keys), _converter(values)
            return lambda value: {str(key(name)): of(item) for name, item in value.items()}
        case T.StructType(fields=fields):
            parts = [(field.name, _converter(field.dataType)) for field in fields]
            return lambda value: {name: part(item) for (name, part), item in zip(parts, value, strict=True)}
        case T.StringType() | T.BooleanType() | T.IntegralType() | T.FractionalType():
            return lambda value: value if isinstance(value, bool | int | float | str) else str(value)
        case _:
            return _SCALARS.get(type(kind), str)


def _text(value: Plain) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _render_json(result: QueryResult, stream: TextIO) -> None:
    if len(set(result.columns)) < len(result.columns):
        raise AuditError("cannot write the answer as JSON: two of its columns have one name; give one another with AS")
    stream.writelines(escaped(_text(dict(zip(result.columns, row, strict=True)))) + "\n" for row in result.rows)


def _render_csv(result: QueryResult, stream: TextIO) -> None:
    writer = csv.writer(_LineWriter(stream), lineterminator=_CSV_END)
    on_terminal = stream.isatty()

    def cell(value: Plain) -> str:
        text = "" if value is None else _no_formula(value) if isinstance(value, str) else _text(value)
        return escaped(text, keep="\t\r\n") if on_terminal else text

    writer.writerow([cell(name) for name in result.columns])
    writer.writerows([cell(value) for value in row] for row in result.rows)


class _LineWriter:
    """Ends rows with a newline. The csv module quotes only characters of its line terminator, so that has to contain `\\r` too."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, row: str) -> int:
        return self._stream.write(row.removesuffix(_CSV_END) + "\n")


def _no_formula(text: str) -> str:
    """The text, marked so that a spreadsheet does not interpret it as a formula (OWASP); numbers stay numbers."""
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
    stream.write(_count(count))


def _render_vertical(result: QueryResult, stream: TextIO) -> None:
    names = [escaped(name) for name in result.columns]
    width = max(map(len, names))
    count = 0
    for count, row in enumerate(result.rows, start=1):
        stream.write(f"-[ RECORD {count} ]-\n")
        cells = (f"{name.ljust(width)}  {escaped(_text(value))}" for name, value in zip(names, row, strict=True))
        stream.writelines(f"{cell.rstrip()}\n" for cell in cells)
    stream.write(_count(count))


def _count(rows: int) -> str:
    return f"({counted(rows, 'row')})\n"


_RENDERERS: Final[dict[Output, Callable[[QueryResult, TextIO], None]]] = {
    "table": _render_table,
    "vertical": _render_vertical,
    "json": _render_json,
    "csv": _render_csv,
}
