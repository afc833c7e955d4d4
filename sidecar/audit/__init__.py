"""The audit log: sealed spool segments become Parquet tables, and views answer questions in SQL.

Everything here needs the `audit` extra and Java 17 or newer, except the import of this package.

    spark = SparkSession.builder.getOrCreate()
    open_audit(spark, "s3a://bucket/audit")
    spark.sql("SELECT * FROM failovers ORDER BY at DESC").show()
"""

from typing import TYPE_CHECKING

from sidecar.audit.audit_error import AuditError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditError", "open_audit"]


def open_audit(spark: "SparkSession", audit: str) -> None:
    """Register the views of the audit log at `audit` (a path or any URL that Spark supports) in the given session.

    The views show the log as it is now: call this again after an ingest. Instants are shown in the session's time zone. Raises AuditError
    when there is no audit log.
    """
    from sidecar.audit.ask.registration import register_views  # noqa: PLC0415  importing this package must not need PySpark

    register_views(spark, audit)
