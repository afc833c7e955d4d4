"""The journal: one SQLite file, in which a single transaction holds new state, records and outbox rows.

Written by the owner's thread (`commit`), and by who has a record to add from outside (`append`); records are read back by whoever has a
`JournalReader`. While the disk refuses, nothing stops: state and records wait in memory, the next `commit` tries all of it again, and
`problem` says why in one line.
"""

import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import DecodeError, json

from sidecar.core.errors import OperatorError
from sidecar.core.records import AnyRecord, Record
from sidecar.core.rows import Row, assemble, changes
from sidecar.core.state import State

log = logging.getLogger("sidecar.journal")

FILE: Final = "journal.db"
FORMAT: Final = 1
"""`PRAGMA user_version` of the file. A file of another format is set aside, never guessed at."""
KEPT_RECORDS: Final = 10_000
"""Records that stay in the journal after they were sealed into a segment, for questions about the recent past."""
MOST_UNSAVED: Final = 100_000
"""Records that may wait in memory for a disk that refuses (some 60 MB). Beyond it the oldest are lost, and counted."""
_BUSY_SECONDS: Final = 5.0
_READ_TOGETHER: Final = 200

_R = TypeVar("_R", bound=Record)

_TABLES: Final = f"""
    CREATE TABLE state (kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
    CREATE TABLE record (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL);
    PRAGMA user_version = {FORMAT};
"""


class JournalError(OperatorError):
    """The journal cannot be read or written."""


class Journal:
    """`open`, then `commit` from one thread, then `close`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.problem: str | None = None
        """Why the last commit failed; None while all is on disk."""
        self.lost = 0
        """Records given up because too many waited."""
        self._newest = 0
        self._saved = State()
        self._unsaved: deque[AnyRecord] = deque()
        self._sealed = 0
        self._connection: sqlite3.Connection | None = None

    @property
    def unsaved(self) -> int:
        """Records that wait in memory."""
        return len(self._unsaved)

    @property
    def unsealed(self) -> int:
        """Records on disk that are in no segment yet, as far as commits were told."""
        return self._newest - self._sealed

    def open(self) -> State:
        """The state that the last process left; an empty one where there was none, or none can be read (then `problem` says why)."""
        try:
            self._connect()
        except JournalError as error:
            self._fail(error)
            self._saved = self._read_only_state()
        return self._saved

    def commit(self, state: State, records: Sequence[AnyRecord], sealed: int = 0) -> bool:
        """Make `state` and `records` durable, together with all that an earlier commit could not.

        `sealed`: up to which record the segments reach. False when the disk refuses: see `problem`.
        """
        self._unsaved.extend(records)
        while len(self._unsaved) > MOST_UNSAVED:
            self._unsaved.popleft()
            self.lost += 1
        if not self._unsaved and state is self._saved and sealed <= self._sealed:
            return self.problem is None
        try:
            connection = self._connection or self._connect(loading=False)
            self._write(connection, state, sealed)
        except (JournalError, sqlite3.Error) as error:
            self._fail(error if isinstance(error, JournalError) else JournalError(f"cannot write {self.path}: {error}"))
            return False
        if self.problem is not None:
            log.warning(
                "the journal %s is written again: %d records that waited are on disk", self.path, len(self._unsaved)
            )
            self.problem = None
        self._unsaved.clear()
        self._saved, self._sealed = state, max(sealed, self._sealed)
        return True

    def close(self) -> None:
        """May be called twice, and before `open`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, connection: sqlite3.Connection, state: State, sealed: int) -> None:
        rows = list(changes(self._saved, state))
        if not rows and not self._unsaved and sealed <= self._sealed:
            return  # what changed is no row: a lease that was renewed
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                gone = [(row.kind, row.key) for row in rows if row.value is None]
                put = [(row.kind, row.key, row.value) for row in rows if row.value is not None]
                cursor.executemany("DELETE FROM state WHERE kind = ? AND key = ?", gone)
                cursor.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?)", put)
                lines = [(record.id, json.encode(record)) for record in self._unsaved]
                # The same id is the same happening: a second time says nothing new.
                cursor.executemany("INSERT OR IGNORE INTO record (id, line) VALUES (?, ?)", lines)
                self._newest = _newest(connection)  # `append` may have added some
                if sealed > self._sealed:
                    cursor.execute("INSERT OR REPLACE INTO state VALUES ('sealed', '', ?)", (str(sealed),))
                    cursor.execute("DELETE FROM record WHERE seq <= ?", (sealed - KEPT_RECORDS,))
                cursor.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.rollback()
                raise

    def _connect(self, *, loading: bool = True) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = self._opened()
            if loading:
                self._saved = _load(connection)
            self._sealed, self._newest = _sealed(connection), _newest(connection)
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"cannot open {self.path}: {error}") from error
        self._connection = connection
        return connection

    def _opened(self) -> sqlite3.Connection:
        """The file, made or taken up; one that is no journal of this format is set aside under another name."""
        try:
            return self._try_open()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = self.path.with_name(f"{FILE}.unreadable-{os.getpid()}")
            self.path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(FILE + suffix).unlink(missing_ok=True)
            log.error(
                "%s cannot be used (%s): it was set aside as %s, and a new journal begins", self.path, error, aside.name
            )
            return self._try_open()

    def _try_open(self) -> sqlite3.Connection:
        # The owner's thread is another one than the one that opens: there is still only one at a time.
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -512")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found not in {0, FORMAT}:
                raise sqlite3.DatabaseError(f"its format is {found}, this version writes {FORMAT}")
            if found == 0:
                self._begin(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _begin(self, connection: sqlite3.Connection) -> None:
        # Numbers begin at the present microsecond, so that a journal that replaces a lost one does not use its numbers again:
        # segments are named by them.
        start = time.time_ns() // 1000
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('record', ?)", (start,))
        connection.execute("INSERT INTO state VALUES ('sealed', '', ?)", (str(start),))
        connection.execute("COMMIT")

    def _read_only_state(self) -> State:
        if not self.path.exists():
            return State()
        try:
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            ) as connection:
                return _load(connection)
        except sqlite3.Error as error:
            log.error("cannot read the state of an earlier run from %s: %s", self.path, error)
            return State()

    def _fail(self, error: JournalError) -> None:
        if self.problem != str(error):
            log.error(
                "%s: records wait in memory, alerts still go out; make the folder writable or free some space", error
            )
        self.problem = str(error)


def append(folder: Path, record: AnyRecord) -> None:
    """Make one record durable in the journal in `folder`, whether or not a sidecar has it open. Raises JournalError."""
    path = folder / FILE
    try:
        with closing(
            sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
            )
        ) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found != FORMAT:
                raise JournalError(f"cannot write {path}: its format is {found}, this version writes {FORMAT}")
            line = json.encode(record)
            connection.execute("INSERT OR IGNORE INTO record (id, line) VALUES (?, ?)", (record.id, line))
    except sqlite3.Error as error:
        raise JournalError(f"cannot write {path}: {error}") from error


class JournalReader:
    """Reads records back, from any one thread, while the journal is being written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._connection: sqlite3.Connection | None = None

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

    def close(self) -> None:
        """May be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[int | bytes, ...]) -> list[tuple[int, bytes]]:
        try:
            if self._connection is None:
                uri = f"{self._path.absolute().as_uri()}?mode=ro"
                self._connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, check_same_thread=False)
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            self.close()
            raise JournalError(f"cannot read {self._path}: {error}") from error


def _decoded(lines: list[tuple[int, bytes]], kind: Any) -> Iterator[Any]:
    """The records in the lines, but for those of another version."""
    for _, line in lines:
        with suppress(DecodeError):
            yield json.decode(line, type=kind)


def _load(connection: sqlite3.Connection) -> State:
    rows = (Row(*row) for row in connection.execute("SELECT kind, key, value FROM state"))
    state, problems = assemble(rows)
    for problem in problems:
        log.error("%s", problem)
    return state


def _sealed(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM state WHERE kind = 'sealed'").fetchone()
    return int(row[0]) if row else 0


def _newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'record'").fetchone()[0])
