"""Reads records from the journal, while it is being written."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from msgspec import DecodeError, json

from sidecar.core.journal_rows import FORMAT, Row, assemble
from sidecar.core.records import Annotation, AnyRecord, Death, Record, Recovery, StatusRecord
from sidecar.core.state_and_effects import State
from sidecar.journal.file import FILE, DamagedError, JournalError, connect, format_in, journal_error

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
        begin = f'{{"type":"{kind.__struct_config__.tag}",'.encode()
        query = "SELECT seq, line FROM record WHERE substr(line, 1, ?) = ? ORDER BY seq DESC LIMIT ?"
        values = (len(begin), begin, limit)
        lines = self._asked(lambda connection: list(_fitting(connection.execute(query, values), most_bytes)))
        return list(_decoded(lines, kind))

    def newest_first(self, kind: type[_R], after: int, until: int, containing: bytes = b"") -> Iterator[_R]:
        """The records of one kind after sequence number `after`, up to `until`, whose lines contain these bytes, newest first; only a
        few are in memory. Raises JournalError.
        """
        begin = f'{{"type":"{kind.__struct_config__.tag}",'.encode()
        query = (
            "SELECT seq, line FROM record WHERE seq > ? AND seq < ? AND substr(line, 1, ?) = ? AND instr(line, ?) > 0 "
            "ORDER BY seq DESC LIMIT ?"
        )
        last = until + 1
        while batch := self._rows(query, (after, last, len(begin), begin, containing, _BATCH)):
            yield from _decoded(batch, kind)
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
        return assemble(Row(*row) for row in rows)[0]

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


def _decoded(lines: list[tuple[int, bytes]], kind: Any) -> Iterator[Any]:
    """The records in the lines, without those of another version."""
    decoder = _DECODERS[kind]
    for _, line in lines:
        with suppress(DecodeError):
            yield decoder.decode(line)
