"""docs/reference/audit-schema.md and docs/reference/audit-tables.sql, made from the records and the views.

`python -m tests.kit.audit_schema` writes them; tests hold them to the code.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import fields
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sidecar.audit import open_audit
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.tables import BASE_VIEWS, EVENT_DATE, partition_column, with_event_date
from sidecar.audit.log.tables import TABLES as LOGGED
from sidecar.audit.spark.spark_session import spark_session
from sidecar.audit.views.catalog import ANSWERS, comments, explained_elsewhere, struct_comments
from sidecar.core.records import PositionRecord, Record
from tests import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "audit-schema.md"
TABLES: Final = ROOT / "docs" / "reference" / "audit-tables.sql"
_ENVELOPE: Final = (*(field.encode_name for field in fields(Record)), EVENT_DATE)
_BEGIN: Final = """\
# The schema of the audit log

Made from the code by `python -m tests.kit.audit_schema`. `DESCRIBE NAME` in `audit sql`, and `\\d NAME` in `audit shell`, show the same.

- Types are those of Spark. Times have microseconds, in UTC.
- A newer column is null in records of older sidecars.
- `event_date` is in the names of folders or, where these are months, in the files ([which](../explanation/audit.md)).
  [Conditions](../explanation/audit.md#materialized-answers) on it and on `day` read only what is needed of those dates.
"""


def page(session: SparkSession) -> str:
    """The whole page. An audit log is open in the session, which one does not matter."""
    return _BEGIN + "".join([*_contents(), *_tables(), *_views(session), *_materialized(session)])


def tables() -> Iterator[str]:
    """The statements that make external tables of the log for Athena, in the DDL of Hive."""
    yield "CREATE DATABASE IF NOT EXISTS flink_ha"
    answers = {name: with_event_date(schema) for name, schema in CLOSED_TABLES.items()}
    for name, schema in ({name: table.file_schema for name, table in LOGGED.items()} | answers).items():
        columns = ",\n".join(f"  `{field.name}` {field.dataType.simpleString()}" for field in schema)
        partition = partition_column(name)
        dated = partition == EVENT_DATE
        projection = {
            "enabled": "true",
            f"{partition}.type": "date",
            f"{partition}.format": "yyyy-MM-dd" if dated else "yyyy-MM",
            f"{partition}.range": "2020-01-01,NOW" if dated else "2020-01,NOW",
            **({} if dated else {f"{partition}.interval": "1", f"{partition}.interval.unit": "MONTHS"}),
        }
        properties = ",\n".join(f"  'projection.{key}' = '{value}'" for key, value in projection.items())
        yield (
            f"CREATE EXTERNAL TABLE flink_ha.{name} (\n{columns}\n)\n"
            f"PARTITIONED BY (`{partition}` {'date' if dated else 'string'})\n"
            f"STORED AS PARQUET\nLOCATION 's3://BUCKET/PREFIX/{name}/'\nTBLPROPERTIES (\n{properties}\n)"
        )


def _contents() -> Iterator[str]:
    for kind, names in (("Tables", BASE_VIEWS), ("Views", ANSWERS)):
        yield f"\n{kind}: {', '.join(f'[{name}](#{name})' for name in names)}.\n"


def _tables() -> Iterator[str]:
    yield "\n## Tables\n\nFolders of Parquet files, one row for each record: [the audit log](../explanation/audit.md).\n\n"
    yield "### Every record\n\nThe first columns of every table but `quarantine`, and its last one. "
    yield "A line of the spool also has a `type`.\n\n"
    schema = with_event_date(BASE_VIEWS["transitions"])
    yield from _columns(schema, {name: comments("transitions").columns[name] for name in _ENVELOPE})
    for name, schema in BASE_VIEWS.items():
        yield from _heading(name)
        own = name == "quarantine"
        yield from _columns(
            with_event_date(schema),
            {column: text for column, text in comments(name).columns.items() if own or column not in _ENVELOPE},
        )


def _views(session: SparkSession) -> Iterator[str]:
    yield "\n## Views\n\nAnswers, computed from the tables: [the cookbook](../how-to/audit-cookbook.md) has examples.\n"
    for name in ANSWERS:
        yield from _heading(name)
        elsewhere = explained_elsewhere(name)
        about = {column: text for column, text in comments(name).columns.items() if column not in elsewhere}
        yield from _columns(session.table(name).schema, about)
        for other in dict.fromkeys(elsewhere.values()):
            columns = ", ".join(f"`{column}`" for column, where in elsewhere.items() if where == other)
            yield f"\nAs in [{other}](#{other}): {columns}.\n"


def _materialized(session: SparkSession) -> Iterator[str]:
    yield "\n## Materialized tables\n\n[Answers about closed dates](../explanation/audit.md#materialized-answers), "
    yield "as Parquet files for other readers.\n\n"
    for name, closed in CLOSED_TABLES.items():
        if name in ANSWERS:
            left_out = [column for column in session.table(name).columns if column not in with_event_date(closed).names]
            without = f", without {', '.join(f'`{column}`' for column in left_out)}" if left_out else ""
            yield f"- `{name}`: the columns of [the view]({'#' + name}){without}.\n"
    for name, closed in CLOSED_TABLES.items():
        if name not in ANSWERS:
            yield from _heading(name)
            yield from _columns(with_event_date(closed), comments(name).columns)


def _heading(name: str) -> Iterator[str]:
    about = comments(name)
    yield f"\n### {name}\n\n{_linked(about.about)}\n\n"
    if about.more:
        yield f"{_linked(about.more)}\n\n"


def _columns(schema: StructType, about: Mapping[str, str]) -> Iterator[str]:
    yield "| column | type | |\n|---|---|---|\n"
    for name, text in about.items():
        kind = schema[name].dataType
        yield f"| `{name}` | `{kind.typeName() if isinstance(kind, StructType) else kind.simpleString()}` | {_linked(text)} |\n"
        if isinstance(kind, StructType):
            nested = struct_comments(PositionRecord).columns  # the only one
            yield from (
                f"| `{name}.{column.name}` | `{column.dataType.simpleString()}` | {_linked(nested[column.name])} |\n"
                for column in kind
            )


def _linked(text: str) -> str:
    """The pages that it names become links from the page's own folder."""
    linked = re.sub(r"docs/([\w-]+)/([\w-]+)\.md(#[\w-]+)?", r"[\2](../\1/\2.md\3)", text)
    return linked.replace(f"(../{PAGE.parent.name}/", "(")


if __name__ == "__main__":
    with spark_session("local[2]") as spark, tempfile.TemporaryDirectory() as audit:
        (Path(audit) / "transitions").mkdir()
        open_audit(spark, audit)
        PAGE.write_text(page(spark), encoding="utf-8")
        TABLES.write_text("".join(f"{statement};\n\n" for statement in tables()), encoding="utf-8")
