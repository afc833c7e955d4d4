"""What can be asked: one view for each table, and one for each answer (`views/*.sql`)."""

import re
from collections.abc import Collection
from importlib.resources import files
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.schema import BASE_VIEWS, with_event_date
from sidecar.audit.storage import Storage
from sidecar.audit.tables import OURS

ANSWERS: Final = (
    "leadership",
    "known_until",
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


def register_views(spark: SparkSession, audit: str, named: Collection[str] | None = None) -> None:
    """Make the views of the audit log at `audit` known to the session: those that are `named`, with those that these ask, or all.

    A query asks three of the nineteen, and Spark takes most of a second to make them all. Raises AuditError when there is no audit log.
    """
    with failing_to(f"open the audit log {audit}"):
        folder = _opened(spark, audit)
        asked = {*BASE_VIEWS, *ANSWERS} if named is None else _asked(named)
        for name in BASE_VIEWS:
            if name in asked:
                _table(spark, folder, name).createOrReplaceTempView(name)
        for name in ANSWERS:
            if name in asked:
                spark.sql(answer(name)).createOrReplaceTempView(name)


def _asked(named: Collection[str]) -> set[str]:
    """These views, and those that they ask."""
    asked = {*named}
    for name in reversed(ANSWERS):
        if name in asked:
            asked.update(re.findall(r"\w+", _bare_answer(name)))
    return asked


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
        path = audit.full_url(name).replace("\\", "\\\\").replace("'", "\\'")
        given = f"({', '.join(' '.join(column) for column in columns)}) USING parquet OPTIONS (path '{path}')"
        # The files as they are could be written to by INSERT INTO; a query over them cannot.
        return f"{create}_files {given};\n{create} AS TABLE {name}_files"
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns)
    return f"{create} AS SELECT {nothing} WHERE false"


def _answer_statement(name: str) -> str:
    return f"CREATE OR REPLACE TEMPORARY VIEW {name} AS\n{_bare_answer(name)}"


def _bare_answer(name: str) -> str:
    """Without its comments: they name other views, and command lines look for the end of a statement in them."""
    return re.sub(r"^\s*--.*\n|\s+--.*$", "", answer(name), flags=re.MULTILINE).strip()


def _table(spark: SparkSession, audit: Storage, name: str) -> DataFrame:
    """The table as it is now: columns that an older file lacks are null, those of a newer schema are not shown."""
    schema = with_event_date(BASE_VIEWS[name])
    if audit.is_folder(name):
        # The files as they are could be written to by INSERT INTO; a query over them cannot.
        return spark.read.schema(schema).parquet(audit.full_url(name)).select("*")
    return spark.createDataFrame([], schema).where(
        "false"
    )  # so that Spark knows it, and does not plan what it would do with rows
