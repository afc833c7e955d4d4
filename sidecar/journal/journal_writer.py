"""Writes the journal, in the owner's thread: new state, records and outbox rows in one transaction.

While writing fails, state and records wait in memory, the next `commit` retries all of them, and `problem` has the reason in one line.
A damaged file is set aside, and a new one starts with everything that is readable.
"""

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sidecar.core.journal_rows import JournalRow, assemble, changes
from sidecar.core.records import Annotation, AnyRecord
from sidecar.core.state import State
from sidecar.journal.file import (
    FILE,
    DamagedError,
    JournalError,
    OtherFormatError,
    StateLock,
    check,
    drop_index,
    execute_rows,
    journal_error,
    newest_in,
    open_file,
    sealed_in,
    set_aside,
)
from sidecar.journal.journal_records import JournalReader, insert_all
from sidecar.journal.salvage import NOTHING, Salvaged, refill, salvage

log = logging.getLogger("sidecar.journal")

KEPT_RECORDS: Final = 10_000
"""Records that stay in the journal after they were sealed into a segment, for the timeline."""
MOST_UNSAVED: Final = 100_000
"""Records that may wait in memory while writing fails (some 60 MB). Beyond that the oldest are lost, and counted."""
MOST_ANNOTATIONS: Final = 1_000
"""The most annotations that are read at once. People write them with `annotate`, one at a time."""
_REPLACE_PAUSE: Final = 60.0
"""Seconds between two files that are set aside: a defective disk must not be filled with them."""
_MARGIN: Final = 100
"""Numbers skipped after a damaged journal: `append` may have used some."""


class Journal:
    """`open` it, then `commit` in one thread, then `close`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.problem: str | None = None
        """Why the last commit failed; None: everything is on disk."""
        self.lost = 0
        """Records lost because too many waited, or because a damaged file was unreadable."""
        self._newest = 0
        self._reader = JournalReader(folder, self.check_soon)
        self._read: int | None = None
        """The last record that `annotations` has read. None: none yet."""
        self._saved = State()
        self._unsaved: deque[AnyRecord] = deque()
        self._sealed = 0
        self._connection: sqlite3.Connection | None = None
        self._lock = StateLock(folder)
        self._salvaged: Salvaged | None = None
        """The records that were read from a damaged file and are not in the new one yet."""
        self._suspected = threading.Event()
        self._replaced_at = -_REPLACE_PAUSE

    @property
    def unsaved(self) -> int:
        """Records that wait in memory."""
        return len(self._unsaved)

    @property
    def unsealed(self) -> int:
        """Records on disk that are in no segment yet, as of the last commit."""
        return max(0, self._newest - self._sealed)

    def claim(self) -> bool:
        """Lock the folder until `close`. False: another process uses it. True if locking fails: `open` reports that."""
        try:
            return self._lock.take()
        except OSError:
            return True

    def claimed_by(self) -> str:
        """The user of the folder: for messages."""
        return self._lock.holder()

    def open(self) -> State:
        """The state of the last process; an empty one if there is none, or if it is unreadable (see `problem`)."""
        try:
            self._connect()
        except JournalError as error:
            self._fail(error)
            self._saved = self._read_only_state()
        return self._saved

    def commit(self, state: State, records: Sequence[AnyRecord], sealed: int = 0) -> bool:
        """Write `state` and `records`, and everything that earlier commits could not write.

        `sealed`: the last record that is in a segment. False: writing failed, see `problem`.
        """
        self._unsaved.extend(records)
        while len(self._unsaved) > MOST_UNSAVED:
            self._unsaved.popleft()
            self.lost += 1
        changed = self._unsaved or state is not self._saved or sealed > self._sealed
        if not changed and not self._suspected.is_set():
            return self.problem is None
        try:
            self._save(state, sealed)
        except JournalError as error:
            self._fail(error)
            return False
        if self.problem is not None:
            log.warning("journal %s: writing again, %d waiting records are on disk", self.path, len(self._unsaved))
            self.problem = None
        self._unsaved.clear()
        self._saved, self._sealed = state, max(sealed, self._sealed)
        return True

    def annotations(self) -> list[Annotation]:
        """The annotations that were not returned yet, the newest first, at most MOST_ANNOTATIONS: `append` may have added some, also while
        no sidecar ran. None while the file cannot be read: `commit` reports that.
        """
        with suppress(JournalError):
            newest = self._reader.newest()
            after = max(0, newest - KEPT_RECORDS) if self._read is None else self._read
            new = self._reader.newest_first(Annotation, after, newest) if newest > after else ()
            annotations = list(islice(new, MOST_ANNOTATIONS))
            self._read = newest
            return annotations
        return []

    def close(self) -> None:
        """May be called twice, and before `open`."""
        self._reader.close()
        self._disconnect()
        self._lock.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _save(self, state: State, sealed: int) -> None:
        """Write all changes, into a new file if this one is damaged. Raises JournalError."""
        connection = self._connection or self._connect(loading=False)
        try:
            try:
                if self._suspected.is_set():
                    self._suspected.clear()
                    check(self.path)
                self._write(connection, state, sealed)
            except (DamagedError, sqlite3.Error) as error:
                problem = error if isinstance(error, JournalError) else journal_error("write", self.path, error)
                if not isinstance(problem, DamagedError):
                    raise
                self._newest = max(self._newest, sealed)
                self._set_aside(problem, loading=False)
                self._write(self._connect(loading=False), state, sealed)
        except sqlite3.Error as error:
            raise journal_error("write", self.path, error) from error

    def _write(self, connection: sqlite3.Connection, state: State, sealed: int) -> None:
        rows = list(changes(self._saved, state))
        if not rows and not self._unsaved and sealed <= self._sealed:
            return  # the change is not stored: a renewed lease
        with closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                if sealed > self._sealed:  # first, so that there is room in a journal that is full
                    cursor.execute("INSERT OR REPLACE INTO state VALUES ('sealed', '', ?)", (str(sealed),))
                    cursor.execute("DELETE FROM record WHERE seq <= ?", (sealed - KEPT_RECORDS,))
                gone = [(row.kind, row.key) for row in rows if row.value is None]
                put = [(row.kind, row.key, row.value) for row in rows if row.value is not None]
                execute_rows(cursor, "DELETE FROM state WHERE (kind, key) IN (VALUES (?))", gone)
                execute_rows(cursor, "INSERT OR REPLACE INTO state VALUES (?)", put)
                collisions = insert_all(cursor, self._unsaved)
                self._newest = newest_in(connection)  # `append` may have added some
                cursor.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.rollback()
                raise
        for collision in collisions:
            log.error("%s", collision)

    def check_soon(self) -> None:
        """The next commit checks the whole file. Called, in any thread, when the file was found damaged."""
        self._suspected.set()

    def _connect(self, *, loading: bool = True) -> sqlite3.Connection:
        try:
            if not self._lock.take():
                raise JournalError(f"cannot use {self.path.parent}: it is in use by {self._lock.holder()}")
        except OSError as error:
            raise journal_error("lock", self.path.parent, error) from error
        try:
            connection = open_file(self.path)
        except DamagedError as error:
            self._set_aside(error, loading=loading)
            connection = open_file(self.path)
        try:
            if self._salvaged:
                rows = self._salvaged.rows if loading else changes(State(), self._saved)
                refill(connection, self._salvaged, rows, left_out=0 if loading else _MARGIN)
                self._salvaged = None
            if loading:
                stored = connection.execute("SELECT kind, key, value FROM state")
                self._saved = _assembled(JournalRow(*row) for row in stored)
            self._sealed, self._newest = sealed_in(connection), newest_in(connection)
        except sqlite3.Error as error:
            connection.close()
            raise journal_error("open", self.path, error) from error
        self._connection = connection
        return connection

    def _set_aside(self, error: DamagedError, *, loading: bool) -> None:
        """Rename the file, and keep its readable content for the new one. Raises JournalError."""
        try:
            if time.monotonic() < self._replaced_at + _REPLACE_PAUSE:
                raise JournalError(f"{error}: it was replaced less than a minute ago") from error
            self._replaced_at = time.monotonic()
            aside = set_aside(self.path)
            damaged = not isinstance(error, OtherFormatError)
            salvaged = salvage(aside) if damaged else NOTHING
            drop_index(aside)
        except (OSError, sqlite3.Error) as refused:
            raise journal_error("set aside", self.path, refused) from error
        finally:
            if error.connection:
                error.connection.close()
            self._disconnect()
        if not loading:
            newest = max(salvaged.newest or 0, self._newest)
            salvaged = replace(salvaged, newest=newest, sealed=salvaged.sealed or self._sealed)
        self._salvaged = salvaged
        self.lost += salvaged.missing or 0
        log.error(
            "%s: set aside as %s; a new journal starts with %d records and %d rows of state from it; %s",
            error,
            aside.name,
            len(salvaged.records),
            len(salvaged.rows),
            _missing(salvaged) if damaged else "its content is not used",
        )

    def _read_only_state(self) -> State:
        """The state in a file that is not writable."""
        if self._salvaged:
            return _assembled(self._salvaged.rows)
        try:
            if self.path.exists():
                return _assembled(salvage(self.path, read_only=True).rows)
        except (sqlite3.Error, OSError) as error:
            log.error("cannot read the state of an earlier run from %s: %s", self.path, error)
        return State()

    def _fail(self, error: JournalError) -> None:
        if self.problem != str(error):
            advice = f"; {error.advice}" if error.advice else ""
            log.error("%s: records wait in memory, alerts are still sent%s", error, advice)
        self.problem = str(error)


def _assembled(rows: Iterable[JournalRow]) -> State:
    state, problems = assemble(rows)
    for problem in problems:
        log.error("%s", problem)
    return state


def _missing(salvaged: Salvaged) -> str:
    if salvaged.missing is None:
        return "the number of missing records is unknown"
    return f"{salvaged.missing} records that were in no segment are missing"
