"""What can be asked: one view for each table, and one for each answer (`views/*.sql`)."""

import re
from importlib.resources import files
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.errors import AuditError, failing_to
from sidecar.audit.schema import BASE_VIEWS, with_event_date
from sidecar.audit.storage import Storage
from sidecar.audit.tables import OURS

ANSWERS: Final = (
    "leadership",
    "sight",
    "leader_timeline",
    "failovers",
    "mttr",
    "availability",
    "flapping",
    "unobserved",
    "alert_deliveries",
    "weekly_report",
)
"""In this order: a later one may ask an earlier one."""


def register_views(spark: SparkSession, audit: str) -> None:
    """Make every view of the audit log at `audit` known to the session. Raises AuditError when there is no audit log."""
    with failing_to(f"open the audit log {audit}"):
        folder = _opened(spark, audit)
        for name in BASE_VIEWS:
            _table(spark, folder, name).createOrReplaceTempView(name)
        for name in ANSWERS:
            spark.sql(answer(name)).createOrReplaceTempView(name)


def views_script(spark: SparkSession, audit: str) -> str:
    """The statements that make every view of the audit log at `audit` known to a session of spark-sql or beeline (`-i FILE`).

    A table that is not there yet is an empty view: what is written to it later needs a new script. Raises AuditError when there is no
    audit log.
    """
    with failing_to(f"open the audit log {audit}"):
        folder = _opened(spark, audit)
        statements = [_table_statement(folder, name) for name in BASE_VIEWS]
    return "".join(f"{statement};\n" for statement in [*statements, *map(_answer_statement, ANSWERS)])


def answer(name: str) -> str:
    """The query behind an answer. It begins with the question."""
    return (files("sidecar.audit") / "views" / f"{name}.sql").read_text(encoding="utf-8")


def _opened(spark: SparkSession, audit: str) -> Storage:
    folder = Storage(spark, audit)
    if not folder.is_folder():
        raise AuditError(f"cannot open the audit log {audit}: there is no such folder")
    if not OURS.intersection(folder.names()):
        raise AuditError(f"{audit} holds no audit log: neither transitions nor anything else of one is there")
    return folder


def _table_statement(audit: Storage, name: str) -> str:
    columns = [(f"`{field.name}`", field.dataType.simpleString()) for field in with_event_date(BASE_VIEWS[name])]
    create = f"CREATE OR REPLACE TEMPORARY VIEW {name}"
    if audit.is_folder(name):
        path = audit.at(name).replace("\\", "\\\\").replace("'", "\\'")
        return f"{create} ({', '.join(' '.join(column) for column in columns)}) USING parquet OPTIONS (path '{path}')"
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns)
    return f"{create} AS SELECT {nothing} WHERE false"


def _answer_statement(name: str) -> str:
    """Without its comments: command lines look for the end of a statement in them."""
    query = re.sub(r"^\s*--.*\n|\s+--.*$", "", answer(name), flags=re.MULTILINE)
    return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS\n{query.strip()}"


def _table(spark: SparkSession, audit: Storage, name: str) -> DataFrame:
    """The table as it is now: columns that an older file lacks are null, those of a newer schema are not shown."""
    schema = with_event_date(BASE_VIEWS[name])
    if audit.is_folder(name):
        return spark.read.schema(schema).parquet(audit.at(name))
    return spark.createDataFrame([], schema).where(
        "false"
    )  # so that Spark knows it, and does not plan what it would do with rows
