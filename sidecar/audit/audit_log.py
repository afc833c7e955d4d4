"""An audit log that is there, for those who look after it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Final

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.schema import BASE_VIEWS, EVENT_DATE
from sidecar.audit.session import own_session
from sidecar.audit.storage import Storage
from sidecar.audit.tables import OURS

_DATE: Final = re.compile(rf"{EVENT_DATE}=(\d{{4}}-\d{{2}}-\d{{2}})")


@contextmanager
def open_audit_log(spark: SparkSession, audit: str, do_what: str) -> Iterator[tuple[SparkSession, Storage]]:
    """The folder of the audit log at `audit`, and a session of its own; what fails within becomes "cannot `do_what` `audit`: the reason".

    Raises AuditError, also when there is no audit log.
    """
    with failing_to(f"{do_what} {audit}"):
        session = own_session(spark)
        folder = Storage(session, audit)
        if not folder.is_folder():
            raise AuditError(f"cannot {do_what} {audit}: there is no such folder")
        if not OURS.intersection(folder.names()):
            raise AuditError(f"cannot {do_what} {audit}: it holds no audit log")
        yield session, folder


def dates(audit: Storage, table: str) -> dict[str, date]:
    """The folders of a table, relative to the audit log, by date."""
    found = {}
    for name in audit.names(table) if audit.is_folder(table) else []:
        if (day := date_of(name)) is not None:
            found[f"{table}/{name}"] = day
    return found


def tables(audit: Storage) -> list[str]:
    """Which tables there are."""
    return [name for name in audit.names() if name in BASE_VIEWS]


def date_of(folder: str) -> date | None:
    """The date of `event_date=2026-11-20`; None for any other name."""
    match = _DATE.fullmatch(folder)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None
