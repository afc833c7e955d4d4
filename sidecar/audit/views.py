"""The views of the audit log: one for each table, and one for each answer (`views/*.sql`)."""

import re
from collections.abc import Collection
from importlib.resources import files
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import failing_to
from sidecar.audit.audit_log import audit_folder
from sidecar.audit.schema import BASE_VIEWS, with_event_date
from sidecar.audit.storage import Storage

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
"""In this order: a view may query those before it."""

_OPEN: Final = "open the audit log"


def register_views(spark: SparkSession, audit: str, named: Collection[str] | None = None) -> None:
    """Register the views of the audit log at `audit` in the session: those `named` and their dependencies, or all.

    Spark takes most of a second for all nineteen; a query needs about three. Raises AuditError when there is no audit log.
    """
    with failing_to(f"{_OPEN} {audit}"):
        folder = audit_folder(spark, audit, _OPEN)
        wanted = {*BASE_VIEWS, *ANSWERS} if named is None else _with_dependencies(named)
        for name in BASE_VIEWS:
            if name in wanted:
                _table(spark, folder, name).createOrReplaceTempView(name)
        for name in ANSWERS:
            if name in wanted:
                spark.sql(answer(name)).createOrReplaceTempView(name)


def tables_unread(named: Collection[str]) -> set[str]:
    """The tables of records that these views do not read."""
    return BASE_VIEWS.keys() - {name.removeprefix("_") for name in _with_dependencies(named)}


def _with_dependencies(named: Collection[str]) -> set[str]:
    """These views, and those that they query."""
    wanted = {*named}
    for name in reversed(ANSWERS):
        if name in wanted:
            wanted.update(re.findall(r"\w+", _without_comments(answer(name))))
    return wanted


def views_script(spark: SparkSession, audit: str) -> str:
    """The statements that create every view of the audit log at `audit` in spark-sql or beeline (`-i FILE`).

    A table that does not exist yet becomes an empty view; create a new script after its first row. Raises AuditError when there is no
    audit log.
    """
    with failing_to(f"{_OPEN} {audit}"):
        folder = audit_folder(spark, audit, _OPEN)
        statements = [_table_statement(folder, name) for name in BASE_VIEWS]
    statements += [f"CREATE OR REPLACE TEMPORARY VIEW {name} AS\n{_without_comments(answer(name))}" for name in ANSWERS]
    return "".join(f"{statement};\n" for statement in statements)


def answer(name: str) -> str:
    """The query of an answer. It begins with the question, as a comment."""
    return (files("sidecar.audit") / "views" / f"{name}.sql").read_text(encoding="utf-8")


def _table_statement(audit: Storage, name: str) -> str:
    columns = [(f"`{field.name}`", field.dataType.simpleString()) for field in with_event_date(BASE_VIEWS[name])]
    create = f"CREATE OR REPLACE TEMPORARY VIEW {name}"
    if audit.is_folder(name):
        path = audit.full_url(name).replace("\\", "\\\\").replace("'", "\\'")
        definition = f"({', '.join(' '.join(column) for column in columns)}) USING parquet OPTIONS (path '{path}')"
        # INSERT INTO could write to a view of the files, but not to a query over them.
        return f"{create}_files {definition};\n{create} AS TABLE {name}_files"
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in columns)
    return f"{create} AS SELECT {nulls} WHERE false"


def _without_comments(query: str) -> str:
    """Comments name other views, and command lines search them for the end of a statement."""
    return re.sub(r"^\s*--.*\n|\s+--.*$", "", query, flags=re.MULTILINE).strip()


def _table(spark: SparkSession, audit: Storage, name: str) -> DataFrame:
    """The table now: columns that an older file lacks are null, columns of a newer schema are not shown."""
    schema = with_event_date(BASE_VIEWS[name])
    if audit.is_folder(name):
        # INSERT INTO could write to a view of the files, but not to a query over them.
        return spark.read.schema(schema).parquet(audit.full_url(name)).select("*")
    # `false` lets Spark's optimizer remove the table from every plan.
    return spark.createDataFrame([], schema).where("false")
