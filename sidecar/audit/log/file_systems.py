"""Opens folders, wherever they are."""

from pyspark.sql import SparkSession

from sidecar.audit.log.bucket.connection import is_object_store
from sidecar.audit.log.local_storage import LocalStorage
from sidecar.audit.log.storage import Storage


def open_storage(spark: SparkSession, url: str) -> Storage:
    """The folder at a path or URL, which need not exist. Raises AuditError when it cannot be used."""
    if is_object_store(url):
        from sidecar.audit.log.bucket.storage import ObjectStorage  # noqa: PLC0415  imports obstore, an extra

        # One log has one name, by which its lock and its files are known.
        return ObjectStorage(spark, f"s3://{url.removeprefix('s3a://')}" if url.startswith("s3a://") else url)
    found = Storage(spark, url)
    return LocalStorage(spark, url) if found.url.startswith("file:") else found
