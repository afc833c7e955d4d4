"""The audit log: sealed spool segments become Parquet tables, and views answer questions in SQL.

Everything here needs the `audit` extra and Java 17 or newer, except the import of this package.

    spark = SparkSession.builder.getOrCreate()
    open_audit(spark, "s3a://bucket/audit")
    spark.sql("SELECT * FROM failovers ORDER BY opened_at DESC").show()
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from sidecar.audit.audit_error import AuditError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditError", "open_audit"]


def open_audit(spark: "SparkSession", audit: str, views: Collection[str] | None = None) -> None:
    """Register the views of the audit log at `audit` (a path or any URL that Spark supports) in the given session.

    All, or the given `views` and those that they read: `["failovers"]` takes half the time. The views show the log as it is now: call this
    again after an ingest. Instants are shown in the session's time zone. Raises AuditError when there is no audit log, or no such view.
    """
    from sidecar.audit.ask.registration import register_views  # noqa: PLC0415  importing this package must not need PySpark
    from sidecar.audit.views.catalog import catalog  # noqa: PLC0415  the same

    if missing := {*(views or ())}.difference(relation.name for relation in catalog()):
        raise AuditError(f"cannot open the audit log {audit}: there is no table or view {', '.join(sorted(missing))}")
    register_views(spark, audit, views, commented=True)
