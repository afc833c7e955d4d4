"""Tables of the operator's own, from CSV files, that a query can join with those of the audit log.

The driver reads the files before any query: a query itself reads none (`query_check`), and executors on other machines do not have them.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.spark.session import own_session
from sidecar.audit.views.catalog import catalog

_BETWEEN_ROWS: Final = "\0"


class OwnTable(Struct, frozen=True):
    """The rows of a file, in the memory of Spark's driver."""

    name: str
    file: Path
    rows: Any
    """A `java.util.List` of Spark's rows."""
    schema: Any
    """Spark's `StructType`."""

    def register(self, session: SparkSession) -> None:
        """Make it a view of the session."""
        jsession: Any = session._jsparkSession  # noqa: SLF001  from Python's rows Spark makes a table of unknown size, which counts as large
        DataFrame(jsession.createDataFrame(self.rows, self.schema), session).createOrReplaceTempView(self.name)


def read_own_tables(spark: SparkSession, files: Mapping[str, Path]) -> list[OwnTable]:
    """The tables of these files, by name. Raises AuditError when a file cannot be read, or the audit log has a table of that name."""
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
