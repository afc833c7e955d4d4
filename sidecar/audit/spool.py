"""What a spool holds, found out in a way that nothing in it can stop.

Hadoop lists the spool for Spark, and gives up where a folder cannot be read, where a link leads in a circle and, wherever it has to match
a pattern, at a name with a colon. So we look first, and name to Spark only what it can list.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

from msgspec import Struct

from sidecar.audit.storage import Storage

SUFFIX: Final = ".jsonl.gz"
LOOK_SECONDS: Final = 10.0
"""So often a spool is looked at that is followed."""
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_IN_BRACES: Final = re.compile(r"([{},\\])")
_COLON: Final = "there is a colon in its name, which Hadoop cannot read: rename it"


class SpoolListing(Struct, frozen=True):
    """What a spool holds; all paths are below it."""

    roots: Sequence[str]
    """Folders and single segments: what Spark can list."""
    problems: Mapping[str, str]
    """What it cannot list, or would leave out, and the reason that the quarantine shows."""


def listing(spool: Storage) -> SpoolListing:
    """Look at a spool. On a local file system everything below it is looked at, elsewhere only what stands directly in it."""
    if spool.local is not None:
        return _Walk(spool.local).listing()
    entries = spool.entries()
    problems = {
        name: f"unreadable {'folder' if is_folder else 'segment'}: {_COLON}"
        for name, is_folder in entries.items()
        if ":" in name
    }
    roots = [name for name, is_folder in entries.items() if is_folder or name.endswith(SUFFIX)]
    return SpoolListing(roots=sorted(set(roots) - problems.keys()), problems=problems)


def pattern(spool: Storage, roots: Sequence[str]) -> str:
    """What Hadoop finds just these `roots` by. A star would make it look at what stands beside them."""
    alternatives = (_IN_BRACES.sub(r"\\\1", literally(f"/{root}")) for root in roots)
    return f"{literally(spool.url)}{{{','.join(alternatives)}}}"


def literally(path: str) -> str:
    """A path whose name is a name, where Spark would see a pattern."""
    return _PATTERN.sub(r"\\\1", path)


def name_problem(path: str) -> str | None:
    """Why Hadoop cannot read what has that path below a spool."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8: rename it"
    return _COLON if ":" in path else None


class Changes:
    """Whether a spool holds something that Spark has not been told to list. Looks now and then."""

    def __init__(self, spool: Storage, known: SpoolListing) -> None:
        self._spool = spool
        self._known = known
        self._next = time.monotonic() + LOOK_SECONDS
        self._changed = False

    def __call__(self) -> bool:
        return self._changed or (time.monotonic() >= self._next and self.now())

    def now(self) -> bool:
        """The same, without waiting."""
        self._changed = self._changed or listing(self._spool) != self._known
        self._next = time.monotonic() + LOOK_SECONDS
        return self._changed


class _Walk:
    """A walk through a local spool. It follows links to folders, as Hadoop does, but not in a circle."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._problems: dict[str, str] = {}

    def listing(self) -> SpoolListing:
        roots, _ = self._folder("", frozenset())
        return SpoolListing(roots=sorted(roots), problems=self._problems)

    def _folder(self, path: str, above: frozenset[tuple[int, int]]) -> tuple[list[str], bool]:
        """What Spark can list of a folder, and whether that is the folder itself; `above` is what it is in, by device and inode."""
        try:
            here = (self._top / path).stat()
            names = sorted(entry.name for entry in (self._top / path).iterdir())
        except OSError as error:
            self._found(path, f"unreadable folder: {error.strerror}")
            return [], False
        # Spark takes such names for hidden, unless they are named to it.
        names = [name for name in names if not name.startswith("." if path == "" else (".", "_"))]
        found = [self._entry(f"{path}/{name}".lstrip("/"), above | {(here.st_dev, here.st_ino)}) for name in names]
        if path and all(is_whole for _, is_whole in found):
            return [path], True
        return [root for roots, _ in found for root in roots], False

    def _entry(self, path: str, above: frozenset[tuple[int, int]]) -> tuple[list[str], bool]:
        """What Spark can list of an entry of a folder, and whether it can list the folder with it."""
        is_segment = path.endswith(SUFFIX)
        try:
            status = (self._top / path).stat()
        except OSError as error:
            if is_segment and os.path.lexists(self._top / path):
                self._found(path, f"unreadable segment: {error.strerror}")
            return [], True  # Hadoop leaves it out too
        is_folder = S_ISDIR(status.st_mode)
        if not is_folder and not is_segment:
            return [], True
        if problem := _obstacle(path, status, above):
            self._found(path, f"unreadable {'segment' if is_segment else 'folder'}: {problem}")
            return [], False
        if is_folder:
            return self._folder(path, above)
        if status.st_size == 0:
            self._found(path, "damaged segment: the file is empty")  # a disk has lost it, and Spark would leave it out
        return [path], True

    def _found(self, path: str, problem: str) -> None:
        self._problems[os.fsencode(path).decode(errors="backslashreplace")] = problem


def _obstacle(path: str, status: os.stat_result, above: frozenset[tuple[int, int]]) -> str | None:
    """Why a folder or a segment cannot be listed, or not read."""
    is_folder = S_ISDIR(status.st_mode)
    if is_folder and (status.st_dev, status.st_ino) in above:
        return "it is a link to a folder above itself"
    if is_folder and path.endswith(SUFFIX):
        return "it is a folder"
    if not is_folder and not S_ISREG(status.st_mode):
        return "it is no file"
    return name_problem(path)
