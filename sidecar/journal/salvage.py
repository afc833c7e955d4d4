"""Reads what is left of a damaged journal: almost everything if single pages are damaged."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, json

from sidecar.core.cluster.cluster_state import View
from sidecar.core.journal_rows import KINDS, JournalRow
from sidecar.core.moment import Moment
from sidecar.journal.file import connect, execute_rows, newest_in, sealed_in

_ALIVE: Final = json.Decoder(Moment)
_NAME: Final = json.Decoder(tuple[str, msgspec.Raw])
_MOST_PROBES: Final = 20_000
"""The limit of reads between damaged pages."""
_MOST_RECORDS: Final = 20_000
"""The range to search if one end of the records is damaged: more than a journal keeps."""


class Salvaged(Struct, frozen=True):
    """Rows of the state, records with their numbers, and the last record in a segment (None: unreadable)."""

    rows: list[JournalRow]
    records: list[tuple[int, str, bytes]]
    """Number, id and JSON line, in order."""
    sealed: int | None
    newest: int | None
    """The number of the last record, readable or not; None: unknown."""

    @property
    def missing(self) -> int | None:
        """The number of unreadable unsealed records; None: unknown."""
        if self.sealed is None or self.newest is None:
            return None
        return max(0, self.newest - self.sealed - sum(1 for number, _, _ in self.records if number > self.sealed))


NOTHING: Final = Salvaged([], [], None, None)


def salvage(path: Path, *, read_only: bool = False) -> Salvaged:
    """Everything readable of the journal at `path`. Changes nothing. Raises sqlite3.Error."""
    # Read-only: closing a connection that may write deletes the write-ahead log.
    with closing(connect(path, "ro&immutable=1" if read_only else "ro")) as connection:
        sealed = newest = None
        with suppress(sqlite3.Error, ValueError):
            sealed = sealed_in(connection)
        with suppress(sqlite3.Error, TypeError):
            newest = newest_in(connection)
        return Salvaged(list(_state(connection)), sorted(_records(connection, newest)), sealed, newest)


def refill(connection: sqlite3.Connection, salvaged: Salvaged, rows: Iterable[JournalRow], left_out: int) -> None:
    """Put the records and `rows` into a new journal. Records keep their numbers; the next `left_out` numbers are skipped.

    Raises sqlite3.Error.
    """
    start = newest_in(connection)
    numbers = [number for number, _, _ in salvaged.records]
    numbers_left = [number for number in (salvaged.newest, salvaged.sealed, *numbers[-1:]) if number is not None]
    newest = max(numbers_left, default=start)
    sealed = salvaged.sealed
    if sealed is None:  # treat all as unsealed: a record that is sealed twice is still one record
        sealed = numbers[0] - 1 if numbers else newest
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        execute_rows(cursor, "INSERT OR IGNORE INTO record (seq, id, line) VALUES (?)", salvaged.records)
        cursor.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'record'", (newest + left_out,))
        state = [(row.kind, row.key, row.value) for row in rows if row.value is not None]
        execute_rows(cursor, "INSERT OR REPLACE INTO state VALUES (?)", state)
        cursor.execute("INSERT OR REPLACE INTO state VALUES ('sealed', '', ?)", (str(sealed),))
        cursor.execute("COMMIT")


def _state(connection: sqlite3.Connection) -> Iterator[JournalRow]:
    """Rows from both ends of each kind, up to where a page is damaged."""
    rows: dict[tuple[str, bytes], JournalRow] = {}
    for kind in KINDS:
        for order in ("ASC", "DESC"):
            query = f"SELECT kind, key, value FROM state WHERE kind = ? ORDER BY key {order}"  # noqa: S608  one of two words
            with suppress(sqlite3.Error):
                for row in connection.execute(query, (kind,)):
                    rows[row[0], row[1]] = JournalRow(*row)
    yield from rows.values()
    yield from _views(rows)


def _views(rows: Mapping[tuple[str, bytes], JournalRow]) -> Iterator[JournalRow]:
    """Substitutes for unreadable views: without its view, a cluster's leaders would be forgotten."""
    with suppress(msgspec.DecodeError, KeyError, TypeError):
        alive = _ALIVE.decode(rows["alive", json.encode("")].value or b"")
        names = {_NAME.decode(key)[0] for kind, key in rows if kind == "component"}
        for key in map(json.encode, names):
            if ("view", key) not in rows:
                yield JournalRow("view", key, json.encode(View(since=alive, turned_at=alive)))


def _records(connection: sqlite3.Connection, newest: int | None) -> Iterator[tuple[int, str, bytes]]:
    """Records from both ends, and from between damaged pages."""
    rows: dict[int, tuple[int, str, bytes]] = {}
    ends: dict[str, int] = {}
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error):
            for row in connection.execute(f"SELECT seq, id, line FROM record ORDER BY seq {order}"):  # noqa: S608  one of two words
                rows[row[0]] = row
                ends[order] = row[0]
            break  # no page was damaged
    else:
        last = ends.get("DESC", (newest or ends.get("ASC", 0)) + 1) - 1
        first = ends.get("ASC", last - _MOST_RECORDS) + 1
        rows |= {row[0]: row for row in _records_between(connection, first, last)}
    yield from (row for row in rows.values() if _is_whole(*row))


def _records_between(connection: sqlite3.Connection, first: int, last: int) -> Iterator[tuple[int, str, bytes]]:
    """Records with these numbers: a range that cannot be read is halved, and each half is tried."""
    waiting = [(first, last)]
    for _ in range(_MOST_PROBES):
        if not waiting:
            return
        low, high = waiting.pop()
        if low > high:
            continue
        try:
            query = "SELECT seq, id, line FROM record WHERE seq BETWEEN ? AND ?"
            yield from connection.execute(query, (low, high)).fetchall()
        except sqlite3.Error:
            if low < high:
                middle = (low + high) // 2
                waiting += [(low, middle), (middle + 1, high)]


def _is_whole(number: object, record_id: object, line: object) -> bool:
    """True if the line is the record of this row: a damaged page may hold anything."""
    if not (isinstance(number, int) and isinstance(record_id, str) and isinstance(line, bytes)):
        return False
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        return json.decode(line, type=dict[str, Any]).get("id") == record_id
    return False
