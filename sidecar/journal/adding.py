"""Adds records to the journal, and never overwrites one; also from another process, while a sidecar has it open."""

import logging
import sqlite3
from collections.abc import Collection, Container, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import DecodeError, json
from msgspec.structs import replace

from sidecar.core.journal_rows import FORMAT
from sidecar.core.records import AnyRecord, record_id
from sidecar.journal.file import FILE, JournalError, connect, execute_rows, format_in, journal_error, newest_in

log = logging.getLogger("sidecar.journal")

_INSERT: Final = "INSERT INTO record (id, line) VALUES (?)"
_NUMBERS: Final = "SELECT seq FROM record WHERE seq > ? AND seq <= ? ORDER BY seq"


def insert(cursor: sqlite3.Cursor, record: AnyRecord) -> str | None:
    """Add `record`, unless it exists. If a different record has its id, the record gets another id: returns one line for the log.

    Ids are derived from what happened, so two different records with one id are a bug.
    """
    try:
        execute_rows(cursor, _INSERT, [(record.id, json.encode(record))])
    except sqlite3.IntegrityError:
        row = cursor.execute("SELECT line FROM record WHERE id = ?", (record.id,)).fetchone()
        content = _content(json.encode(record))
        if row and _content(row[0]) == content:
            return None
        other = replace(record, id=record_id("collision", record.id, json.encode(content, order="deterministic")))
        with suppress(sqlite3.IntegrityError):  # this collision is already recorded
            execute_rows(cursor, _INSERT, [(other.id, json.encode(other))])
        kind = record.__struct_config__.tag
        return f"two different {kind} records have the id {record.id}: the later one is recorded as {other.id}; please report this bug"
    return None


def insert_all(cursor: sqlite3.Cursor, records: Collection[AnyRecord]) -> list[str]:
    """`insert` for each of them, many at a time. Returns the lines for the log."""
    try:
        execute_rows(cursor, _INSERT, ((record.id, json.encode(record)) for record in records))
    except sqlite3.IntegrityError:  # an id exists: each by itself, which leaves those that were added as they are
        return [line for record in records if (line := insert(cursor, record))]
    return []


def _content(line: bytes) -> dict[str, Any] | None:
    """The fields of a record, without those that depend on when and by which version it was written. None: unreadable."""
    try:
        fields = json.decode(line, type=dict[str, Any])
    except DecodeError:
        return None
    return {name: value for name, value in fields.items() if name not in {"schema_version", "recorded_at"}}


def append(folder: Path, record: AnyRecord) -> None:
    """Make one record durable in the journal in `folder`, whether or not a sidecar has it open. Raises JournalError."""
    with _transaction(folder / FILE) as cursor:
        collision = insert(cursor, record)
    if collision:
        log.error("%s", collision)


def continue_behind(folder: Path, after: int, reached: int, held: Container[int]) -> int:
    """Give the next record a number above `reached`, whether or not a sidecar has the journal in `folder` open.

    Also renumber the records above `after` and up to `reached` that no segment holds (`held`). Returns their number. Raises JournalError.
    """
    with _transaction(folder / FILE) as cursor:
        numbers = [seq for (seq,) in cursor.execute(_NUMBERS, (after, reached)) if seq not in held]
        behind = max(newest_in(cursor.connection), reached)
        moved = [(behind + step, number) for step, number in enumerate(numbers, start=1)]
        cursor.executemany("UPDATE record SET seq = ? WHERE seq = ?", moved)
        cursor.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'record'", (behind + len(moved),))
    return len(moved)


@contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Cursor]:
    """Run one transaction between those of the owner. Raises JournalError."""
    try:
        with closing(connect(path, "rw")) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            if (number := format_in(connection)) != FORMAT:
                raise JournalError(f"cannot write {path}: its format is {number}, this version writes {FORMAT}")
            connection.execute("BEGIN IMMEDIATE")
            yield connection.cursor()
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise journal_error("write", path, error) from error
