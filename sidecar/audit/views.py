"""What can be asked: one view for each table, and one for each answer (`views/*.sql`)."""

from importlib.resources import files
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.errors import AuditError, failing_to
from sidecar.audit.schema import BASE_VIEWS, with_event_date
from sidecar.audit.storage import Storage
from sidecar.audit.tables import OURS

ANSWERS: Final = ("failovers",)
"""In this order: a later one may ask an earlier one."""


def register_views(spark: SparkSession, audit: str) -> None:
    """Make every view of the audit log at `audit` known to the session. Raises AuditError when there is no audit log."""
    with failing_to(f"open the audit log {audit}"):
        folder = Storage(spark, audit)
        if not folder.is_folder():
            raise AuditError(f"cannot open the audit log {audit}: there is no such folder")
        if not OURS.intersection(folder.names()):
            raise AuditError(f"{audit} holds no audit log: neither transitions nor anything else of one is there")
        for name in BASE_VIEWS:
            _table(spark, folder, name).createOrReplaceTempView(name)
        for name in ANSWERS:
            spark.sql(answer(name)).createOrReplaceTempView(name)


def answer(name: str) -> str:
    """The query behind an answer. It begins with the question."""
    return (files("sidecar.audit") / "views" / f"{name}.sql").read_text(encoding="utf-8")


def _table(spark: SparkSession, audit: Storage, name: str) -> DataFrame:
    """The table as it is now: columns that an older file lacks are null, those of a newer schema are not shown."""
    schema = with_event_date(BASE_VIEWS[name])
    if audit.is_folder(name):
        return spark.read.schema(schema).parquet(audit.at(name))
    return spark.createDataFrame([], schema)
