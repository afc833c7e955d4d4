"""The audit log: sealed spool segments become Parquet tables that people keep for years, and answers in SQL.

Everything here needs the `audit` extra and a Java 17 or newer; importing this package does not.

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
    """Register the views of the audit log at `audit` (a path or any URL that Spark takes) in the given session.

    They show the log as it is now: call it again to see what was ingested since. Instants are shown in the session's time zone. Raises
    AuditError when there is no audit log.
    """
    from sidecar.audit.views import register_views  # noqa: PLC0415  importing this package must not need PySpark

    register_views(spark, audit)
