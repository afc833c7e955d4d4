"""Adds records to the journal, and never overwrites one, and reads them; also from another process, while a sidecar has it open."""

import logging
import sqlite3
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from msgspec import DecodeError, json
from msgspec.structs import replace

from sidecar.core.journal_rows import FORMAT, JournalRow, assemble
from sidecar.core.records import Annotation, AnyRecord, Death, Record, Recovery, StatusRecord, record_id
from sidecar.core.state import State
from sidecar.journal.file import (
    FILE,
    DamagedError,
    JournalError,
    connect,
    execute_rows,
    format_in,
    journal_error,
    newest_in,
)

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


_BATCH: Final = 200
_DECODERS: Final = {kind: json.Decoder(kind) for kind in (AnyRecord, *get_args(AnyRecord))}

_R = TypeVar("_R", bound=Record)
_T = TypeVar("_T")


class JournalReader:
    """Reads records, in one thread at a time, while the journal is being written. Calls `damaged` if the file is."""

    def __init__(self, folder: Path, damaged: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._path = folder / FILE
        self._damaged = damaged
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Identifies the open file: a damaged journal is replaced."""

    def records(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """At most `limit` records after sequence number `after`: number and JSON line, in order. Raises JournalError."""
        return self._rows("SELECT seq, line FROM record WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))

    def remembered(self) -> Iterator[AnyRecord]:
        """All records that exist and are understood, oldest first; only a few are in memory. Raises JournalError."""
        return (record for _, record in self.numbered())

    def numbered(self, after: int = 0) -> Iterator[tuple[int, AnyRecord]]:
        """All records that exist and are understood, with their sequence numbers, from the first one after `after`. Raises JournalError."""
        while batch := self.records(after, _BATCH):
            for seq, line in batch:
                with suppress(DecodeError):
                    yield seq, _DECODERS[AnyRecord].decode(line)
            after = batch[-1][0]

    def latest(self, kind: type[_R], limit: int, most_bytes: int | None = None) -> list[_R]:
        """At most `limit` records of one kind, and at most `most_bytes` of their lines, newest first. Raises JournalError."""
        lines = _fitting(islice(self._newest_lines(kind, 0, self.newest()), limit), most_bytes)
        return list(_decoded(lines, kind))

    def newest_first(self, kind: type[_R], after: int, until: int, containing: bytes = b"") -> Iterator[_R]:
        """The records of one kind after sequence number `after`, up to `until`, whose lines contain these bytes, newest first; only a
        few are in memory. Raises JournalError.
        """
        return _decoded(self._newest_lines(kind, after, until, containing), kind)

    def _newest_lines(
        self, kind: type[Record], after: int, until: int, containing: bytes = b""
    ) -> Iterator[tuple[int, bytes]]:
        begin = f'{{"type":"{kind.__struct_config__.tag}",'.encode()
        query = (
            "SELECT seq, line FROM record WHERE seq > ? AND seq < ? AND substr(line, 1, ?) = ? AND instr(line, ?) > 0 "
            "ORDER BY seq DESC LIMIT ?"
        )
        last = until + 1
        while batch := self._rows(query, (after, last, len(begin), begin, containing, _BATCH)):
            yield from batch
            last = batch[-1][0]

    def outcomes(self, after: int, until: int) -> Iterator[Death | Recovery | Annotation | StatusRecord]:
        """The records about the outcome of failovers after sequence number `after`, up to `until`, without those of single jobs. Raises
        JournalError."""
        yield from self.newest_first(Death, after, until)
        yield from self.newest_first(Recovery, after, until, b'"job_id":null')
        yield from self.newest_first(Annotation, after, until)
        yield from self.newest_first(StatusRecord, after, until)

    def sealed(self) -> int:
        """The number of the last record that is in a segment, as far as the journal knows. Raises JournalError."""
        rows = self._rows("SELECT CAST(CAST(value AS TEXT) AS INTEGER), value FROM state WHERE kind = 'sealed'", ())
        return rows[0][0] if rows else 0

    def newest(self) -> int:
        """The number of the last record. Raises JournalError."""
        rows = self._rows("SELECT seq, name FROM sqlite_sequence WHERE name = 'record'", ())
        return rows[0][0] if rows else 0

    def numbers(self, after: int) -> dict[str, int]:
        """The sequence numbers of all records after `after`, by id. Raises JournalError."""
        rows = self._rows("SELECT seq, id FROM record WHERE seq > ?", (after,))
        return {str(name): seq for seq, name in rows}

    def state(self) -> State:
        """The state of the sidecar as of its last commit, without rows that cannot be decoded. Raises JournalError."""
        number = self._asked(format_in)
        if number != FORMAT:
            raise JournalError(f"cannot use {self._path}: its format is {number}, this version reads {FORMAT}")
        rows = self._rows("SELECT kind, key, value FROM state", ())
        return assemble(JournalRow(*row) for row in rows)[0]

    def close(self) -> None:
        """May be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[int | bytes, ...]) -> list[Any]:
        return self._asked(lambda connection: connection.execute(query, values).fetchall())

    def _asked(self, ask: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return ask(self._opened())
        except (sqlite3.Error, OSError) as error:
            self.close()
            problem = journal_error("read", self._path, error)
            if isinstance(problem, DamagedError):
                self._damaged()
            raise problem from error

    def _opened(self) -> sqlite3.Connection:
        status = self._path.stat()
        file = (status.st_dev, status.st_ino)
        if self._connection is None or file != self._file:
            self.close()
            self._connection = connect(self._path, "ro")
            self._file = file
        return self._connection


def _fitting(lines: Iterator[tuple[int, bytes]], most_bytes: int | None) -> Iterator[tuple[int, bytes]]:
    """The first lines, as many as have at most so many bytes together."""
    total = 0
    for seq, line in lines:
        total += len(line)
        if most_bytes is not None and total > most_bytes:
            return
        yield seq, line


def _decoded(lines: Iterable[tuple[int, bytes]], kind: Any) -> Iterator[Any]:
    """The records in the lines, without those of another version."""
    decoder = _DECODERS[kind]
    for _, line in lines:
        with suppress(DecodeError):
            yield decoder.decode(line)
