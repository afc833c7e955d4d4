"""Reads records back from the journal, while it is being written."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import DecodeError, json

from sidecar.core.records import AnyRecord, Record
from sidecar.journal.file import FILE, DamagedError, connect_to_read, journal_error

_READ_TOGETHER: Final = 200

_R = TypeVar("_R", bound=Record)


class JournalReader:
    """Reads records back, from any one thread, while the journal is being written. `damaged` is called where the file is found to be."""

    def __init__(self, folder: Path, damaged: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._path = folder / FILE
        self._damaged = damaged
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Which file is open: a damaged journal is replaced by another one."""

    def records(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """At most `limit` records behind sequence number `after`: number and JSON line, in order. Raises JournalError."""
        return self._rows("SELECT seq, line FROM record WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))

    def remembered(self) -> Iterator[AnyRecord]:
        """All records that are still there and understood, the oldest first; few of them at a time are in memory. Raises JournalError."""
        last = 0
        while found := self.records(last, _READ_TOGETHER):
            yield from _decoded(found, AnyRecord)
            last = found[-1][0]

    def latest(self, kind: type[_R], limit: int) -> list[_R]:
        """At most `limit` records of one kind, the newest first. Raises JournalError."""
        begin = f'{{"type":"{kind.__struct_config__.tag}",'.encode()
        query = "SELECT seq, line FROM record WHERE substr(line, 1, ?) = ? ORDER BY seq DESC LIMIT ?"
        return list(_decoded(self._rows(query, (len(begin), begin, limit)), kind))

    def sealed(self) -> int:
        """Up to which record the journal knows of segments. Raises JournalError."""
        rows = self._rows("SELECT CAST(CAST(value AS TEXT) AS INTEGER), value FROM state WHERE kind = 'sealed'", ())
        return rows[0][0] if rows else 0

    def newest(self) -> int:
        """The number of the last record that was written. Raises JournalError."""
        rows = self._rows("SELECT seq, name FROM sqlite_sequence WHERE name = 'record'", ())
        return rows[0][0] if rows else 0

    def numbers(self, after: int) -> dict[str, int]:
        """The sequence numbers of all records behind `after`, by their ids. Raises JournalError."""
        return {str(found): seq for seq, found in self._rows("SELECT seq, id FROM record WHERE seq > ?", (after,))}

    def close(self) -> None:
        """May be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[int | bytes, ...]) -> list[tuple[int, Any]]:
        try:
            return self._opened().execute(query, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            self.close()
            found = journal_error("read", self._path, error)
            if isinstance(found, DamagedError):
                self._damaged()
            raise found from error

    def _opened(self) -> sqlite3.Connection:
        known = self._path.stat()
        file = (known.st_dev, known.st_ino)
        if self._connection is None or file != self._file:
            self.close()
            self._connection = connect_to_read(self._path)
            self._file = file
        return self._connection


def _decoded(lines: list[tuple[int, bytes]], kind: Any) -> Iterator[Any]:
    """The records in the lines, but for those of another version."""
    for _, line in lines:
        with suppress(DecodeError):
            yield json.decode(line, type=kind)
