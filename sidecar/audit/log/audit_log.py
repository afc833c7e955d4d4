"""Opens an existing audit log."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.log.file_systems import open_storage
from sidecar.audit.log.schema import BASE_VIEWS
from sidecar.audit.log.storage import Storage
from sidecar.audit.log.tables import ENTRIES, Period, period_of
from sidecar.audit.spark.session import own_session


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
    if not folder.is_folder():
        raise AuditError(f"cannot {do_what} {audit}: there is no such folder")
    if not ENTRIES.intersection(folder.names()):
        raise AuditError(f"cannot {do_what} {audit}: it is not an audit log")
    return folder


def periods_of(audit: Storage, table: str) -> dict[str, Period]:
    """The folders of a table, relative to the audit log, with their dates, in order; none if the table does not exist."""
    if not audit.is_folder(table):
        return {}
    # Through the JVM, a year of names takes 0.3 s.
    names = (path.name for path in (audit.local / table).iterdir()) if audit.local else audit.names(table)
    return {f"{table}/{name}": period for name in sorted(names) if (period := period_of(table, name))}


def all_periods(audit: Storage) -> dict[str, Period]:
    """The folders of all tables, as `periods_of`."""
    return {folder: period for table in table_names(audit) for folder, period in periods_of(audit, table).items()}


def table_names(audit: Storage) -> list[str]:
    """The tables that exist."""
    return [name for name in audit.names() if name in BASE_VIEWS]
