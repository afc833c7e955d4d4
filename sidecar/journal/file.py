"""The journal's file: creates, opens and checks it, sets a damaged one aside, and locks its folder for one process.

`PRAGMA user_version` is FORMAT. A file of another format is set aside. The kernel releases the lock when the process ends.
"""

import errno
import fcntl
import logging
import os
import socket
import sqlite3
import stat
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final

from sidecar.core.bounds import JOURNAL
from sidecar.core.errors import OperatorError
from sidecar.core.journal_rows import FORMAT

log = logging.getLogger("sidecar.journal")

LOCK_FILE: Final = "lock"
_NO_LOCKS_HERE: Final = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_MOST_CHARACTERS: Final = 200


class StateLock:
    """The lock of one state folder. Two locks in one process exclude each other, too."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock. False: another process holds it. True, with a warning, if the file system has no locks.

        Raises OSError if the folder is not writable.
        """
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)  # the spool may be in it
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS_HERE:
                os.close(descriptor)
                raise
            consequence = "a second sidecar on this folder would not be refused"
            log.warning("cannot lock %s (%s): %s", self._path, error.strerror, consequence)
        self._descriptor = descriptor
        with suppress(OSError):  # information only
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return True

    def holder(self) -> str:
        """The holder of the lock, as far as known: for messages."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, errors="replace") as file:
                text = " ".join(file.read(_MOST_CHARACTERS).split())
        except OSError:
            text = ""
        return text if text.isprintable() and text else "another process"

    def release(self) -> None:
        """May be called twice, and without `take`."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


FILE: Final = "journal.db"
_BUSY_SECONDS: Final = 5.0

_TABLES: Final = f"""
    CREATE TABLE state (kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
    CREATE TABLE record (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, line BLOB NOT NULL);
    PRAGMA user_version = {FORMAT};
"""
_DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NOT_WRITABLE: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_PRIMARY: Final = 0xFF
"""The bits of SQLite's extended result codes that hold the primary one."""
_PRIVATE: Final = 0o600
_ROWS_A_STATEMENT: Final = 200
"""SQLite lets other threads run in each statement, which then waits for the interpreter: beside two threads that compute, 5,000 statements
of one row took 8 s (docs/project/adr/0001).
"""
_LATEST: Final = 64 << 20
"""The most bytes of a journal that may be in SQLite's log beside it."""


class JournalError(OperatorError):
    """The journal cannot be read or written."""

    advice: str = ""
    """The remedy for an operator, in a few words; empty if unknown."""


class DamagedError(JournalError):
    """The file is damaged, or not a journal."""

    connection: sqlite3.Connection | None = None
    """The connection, if still open: closing deletes the write-ahead log, so set that aside first."""


class OtherFormatError(DamagedError):
    """Another version wrote the file, in a format that this version does not know."""


def journal_error(doing: str, path: Path, error: sqlite3.Error | OSError) -> JournalError:
    """`error` as a JournalError: a DamagedError if SQLite has found damage."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    problem = (DamagedError if code in _DAMAGE else JournalError)(f"cannot {doing} {path}: {reason}")
    if code == sqlite3.SQLITE_FULL and _is_full(path):
        problem.advice = f"it may have {JOURNAL.most_bytes >> 20} MiB: find out why its records do not reach the spool"
    elif code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        problem.advice = "free some space"
    elif code in _NOT_WRITABLE or isinstance(error, OSError):
        problem.advice = "make the folder writable for the user that the sidecar runs as"
    return problem


def open_file(path: Path) -> sqlite3.Connection:
    """A connection for writing, usable in any thread. Creates the file if missing, readable only by its owner.

    Raises JournalError: a DamagedError if the file must be set aside.
    """
    try:
        _make_private(path)
        connection = connect(path, "rwc")
    except (sqlite3.Error, OSError) as error:
        raise journal_error("open", path, error) from error
    try:
        _prepare(connection, path)
    except (JournalError, sqlite3.Error) as error:
        problem = error if isinstance(error, JournalError) else journal_error("open", path, error)
        if isinstance(problem, DamagedError):
            problem.connection = connection
        else:
            connection.close()
        raise problem from error
    return connection


def check(path: Path) -> None:
    """Raises DamagedError if a page of the journal is damaged, JournalError if it is unreadable. Reads the whole file: some 50 ms."""
    try:
        with closing(connect(path, "ro")) as connection:  # a new connection: others may have cached pages
            _check(connection, path)
    except sqlite3.Error as error:
        raise journal_error("read", path, error) from error


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection for one thread at a time; `mode` as in SQLite's URIs. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def set_aside(path: Path) -> Path:
    """Rename the journal and its write-ahead log, which an open connection would delete when it is closed.

    Returns the new, unique path. Raises OSError.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    number = 1
    while (aside := path.with_name(f"{path.name}.unreadable-{stamp}-{number}")).exists():
        number += 1
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        log.rename(aside.with_name(f"{aside.name}-wal"))  # the name that SQLite expects
    path.rename(aside)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)  # an index, made again when the file is opened
    return aside


def drop_index(path: Path) -> None:
    """Remove what a reader has left beside a file that was set aside: the index of its write-ahead log, and an empty log."""
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not log.stat().st_size:
        log.unlink()


def sealed_in(connection: sqlite3.Connection) -> int:
    """The number of the last record that is in a segment, as far as the journal knows."""
    row = connection.execute("SELECT value FROM state WHERE kind = 'sealed'").fetchone()
    return int(row[0]) if row else 0


def newest_in(connection: sqlite3.Connection) -> int:
    """The number of the last record."""
    return int(connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'record'").fetchone()[0])


def format_in(connection: sqlite3.Connection) -> int:
    """The file's format; 0: an empty file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def execute_rows(cursor: sqlite3.Cursor, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Execute `statement` for all rows, many at a time. It says `(?)` where they go: `VALUES (?)`. Raises sqlite3.Error."""
    iterator = iter(rows)
    while some := [*islice(iterator, _ROWS_A_STATEMENT)]:
        row = f"({', '.join('?' * len(some[0]))})"
        cursor.execute(statement.replace("(?)", ", ".join([row] * len(some))), [*chain.from_iterable(some)])


def _is_full(path: Path) -> bool:
    """True if the journal, and not the disk, has no room left."""
    try:
        return path.stat().st_size + _LATEST > JOURNAL.most_bytes
    except OSError:
        return False


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise DamagedError(f"cannot read {path}: {' '.join(answer.split())}")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if not 0 <= (number := format_in(connection)) <= FORMAT:
        raise OtherFormatError(f"cannot use {path}: its format is {number}, this version writes {FORMAT}")
    if number:
        _check(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -512")
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    connection.execute(f"PRAGMA max_page_count = {JOURNAL.most_bytes // page}")
    if number == 0:
        _begin(connection)


def _begin(connection: sqlite3.Connection) -> None:
    # Numbers start at the current microsecond: a journal that replaces a lost one must not reuse its numbers, which name segments.
    start = time.time_ns() // 1000
    connection.executescript(f"BEGIN IMMEDIATE; {_TABLES}")
    connection.execute("INSERT INTO sqlite_sequence VALUES ('record', ?)", (start,))
    connection.execute("INSERT INTO state VALUES ('sealed', '', ?)", (str(start),))
    connection.execute("COMMIT")


def _make_private(path: Path) -> None:
    """Create the file if missing, readable only by its owner, whatever the umask. SQLite gives the same permissions to the files beside it.
    Follows no link: others may write to the folder. Raises OSError.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE)
    except FileExistsError:
        pass
    else:
        os.fchmod(descriptor, _PRIVATE)
        os.close(descriptor)
    # By name: closing a descriptor of an open journal would release the locks that SQLite holds on it.
    for file in (path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm")):
        try:
            mode = file.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"{file.name} is not a regular file")
        if mode & 0o077:
            file.chmod(_PRIVATE)
