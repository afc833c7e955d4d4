"""Opens folders, wherever they are."""

from typing import Any

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError
from sidecar.audit.log.bucket.connection import is_object_store
from sidecar.audit.log.local_storage import LocalStorage
from sidecar.audit.log.paths import check_path
from sidecar.audit.log.storage import Storage


def open_storage(spark: SparkSession, url: str) -> Storage:
    """The folder at a path or URL, which need not exist. Raises AuditError when it cannot be used."""
    if is_object_store(url):
        from sidecar.audit.log.bucket.storage import ObjectStorage  # noqa: PLC0415  imports obstore, an extra

        # One log has one name, by which its lock and its files are known.
        return ObjectStorage(spark, f"s3://{url.removeprefix('s3a://')}" if url.startswith("s3a://") else url)
    check_path(url)
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs  # noqa: SLF001  Hadoop's FileSystem has no Python API
    default = hadoop.FileSystem.getDefaultUri(context._jsc.hadoopConfiguration())  # noqa: SLF001  the same
    scheme = hadoop.Path(url).toUri().getScheme() or default.getScheme()
    if scheme == "file":
        return LocalStorage(spark, url)
    raise AuditError(
        f"cannot use {url}: {scheme}:// is not supported; use a folder of this machine, s3://, gs:// or abfss://"
    )
