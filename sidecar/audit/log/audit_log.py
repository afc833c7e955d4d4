"""Opens folders, wherever they are, and audit logs in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.log.bucket_client import is_object_store
from sidecar.audit.log.closed_tables import CLOSED_TABLES
from sidecar.audit.log.local_storage import LocalStorage
from sidecar.audit.log.manifest import CHECKPOINTS, CLOSED
from sidecar.audit.log.storage import INGESTING, LOCK, REPLACED, STAGING, Storage, check_path
from sidecar.audit.log.tables import BASE_VIEWS, Period, period_of
from sidecar.audit.spark.spark_session import own_session

ENTRIES: Final = frozenset({*BASE_VIEWS, *CLOSED_TABLES, CLOSED, CHECKPOINTS, STAGING, REPLACED, LOCK, INGESTING})
"""The names in the folder of an audit log. A folder without any of them is not an audit log."""


def open_storage(spark: SparkSession, url: str) -> Storage:
    """The folder at a path or URL, which need not exist. Raises AuditError when it cannot be used."""
    if is_object_store(url):
        from sidecar.audit.log.bucket_storage import ObjectStorage  # noqa: PLC0415  imports obstore, an extra

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


@contextmanager
def open_audit_log(spark: SparkSession, audit: str, do_what: str) -> Iterator[tuple[SparkSession, Storage]]:
    """A session of its own and the folder of the audit log at `audit`.

    An exception in the block becomes an AuditError: "cannot `do_what` `audit`: reason". Raises AuditError when there is no audit log.
    """
    with failing_to(f"{do_what} {audit}"):
        session = own_session(spark)
        yield session, audit_folder(session, audit, do_what)


def audit_folder(session: SparkSession, audit: str, do_what: str) -> Storage:
    """The folder of the audit log at `audit`. Raises AuditError when there is no audit log."""
    folder = open_storage(session, audit)
    if ENTRIES.isdisjoint(folder.names()):
        problem = "it is not an audit log" if folder.is_folder() else "there is no such folder"
        raise AuditError(f"cannot {do_what} {audit}: {problem}")
    return folder


def periods_of(audit: Storage, table: str) -> dict[str, Period]:
    """The folders of a table, relative to the audit log, with their dates, in order; none if the table does not exist."""
    if audit.local is None:
        names = audit.names(table)
    else:  # through the JVM, a year of names takes 0.3 s
        folder = audit.local / table
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {f"{table}/{name}": period for name in sorted(names) if (period := period_of(table, name))}


def all_periods(audit: Storage) -> dict[str, Period]:
    """The folders of all tables, as `periods_of`."""
    return {folder: period for table in table_names(audit) for folder, period in periods_of(audit, table).items()}


def table_names(audit: Storage) -> list[str]:
    """The tables that exist."""
    return [name for name in audit.names() if name in BASE_VIEWS]
