"""Lists a spool, whatever it contains.

Hadoop lists the spool for Spark, and fails at an unreadable folder, at a circular link and, when it matches a pattern, at a name with a
colon. So the spool is listed here first, and Spark gets only the paths that it can list.
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
"""The interval at which a followed spool is listed."""
_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_IN_BRACES: Final = re.compile(r"([{},\\])")
_COLON: Final = "there is a colon in its name, which Hadoop cannot read: rename it"


class SpoolListing(Struct, frozen=True):
    """The content of a spool; all paths are relative to it."""

    roots: Sequence[str]
    """Folders and single segments that Spark can list."""
    problems: Mapping[str, str]
    """Paths that Spark cannot list or would skip, and the reason for the quarantine."""


def listing(spool: Storage) -> SpoolListing:
    """List a spool: recursively on a local file system, elsewhere only its top level."""
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
    """A Hadoop pattern that matches just these `roots`. A star would make Hadoop look at their siblings."""
    alternatives = (_IN_BRACES.sub(r"\\\1", escape_pattern(f"/{root}")) for root in roots)
    return f"{escape_pattern(spool.url)}{{{','.join(alternatives)}}}"


def escape_pattern(path: str) -> str:
    """A pattern that matches just this path."""
    return _PATTERN.sub(r"\\\1", path)


def name_problem(path: str) -> str | None:
    """Why Hadoop cannot read that path below a spool; None if it can."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8: rename it"
    return _COLON if ":" in path else None


class Changes:
    """Whether the content of a spool differs from a known listing. Lists the spool every `LOOK_SECONDS`."""

    def __init__(self, spool: Storage, known: SpoolListing) -> None:
        self._spool = spool
        self._known = known
        self._next = time.monotonic() + LOOK_SECONDS
        self._changed = False

    def __call__(self) -> bool:
        return self._changed or (time.monotonic() >= self._next and self.now())

    def now(self) -> bool:
        """The same, listing the spool now."""
        self._changed = self._changed or listing(self._spool) != self._known
        self._next = time.monotonic() + LOOK_SECONDS
        return self._changed


class _Walk:
    """A walk through a local spool. It follows links to folders, as Hadoop does, but not in circles."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._problems: dict[str, str] = {}

    def listing(self) -> SpoolListing:
        roots, _ = self._folder("", frozenset())
        return SpoolListing(roots=sorted(roots), problems=self._problems)

    def _folder(self, path: str, above: frozenset[tuple[int, int]]) -> tuple[list[str], bool]:
        """The paths that Spark can list of a folder, and whether it can list all of it. `above`: its parents by device and inode."""
        try:
            here = (self._top / path).stat()
            names = sorted(entry.name for entry in (self._top / path).iterdir())
        except OSError as error:
            self._found(path, f"unreadable folder: {error.strerror}")
            return [], False
        # Spark skips these names as hidden, unless they are roots.
        names = [name for name in names if not name.startswith("." if path == "" else (".", "_"))]
        found = [self._entry(f"{path}/{name}".lstrip("/"), above | {(here.st_dev, here.st_ino)}) for name in names]
        if path and all(is_whole for _, is_whole in found):
            return [path], True
        return [root for roots, _ in found for root in roots], False

    def _entry(self, path: str, above: frozenset[tuple[int, int]]) -> tuple[list[str], bool]:
        """The paths that Spark can list of an entry of a folder, and whether it can list the folder with this entry."""
        is_segment = path.endswith(SUFFIX)
        try:
            status = (self._top / path).stat()
        except OSError as error:
            if is_segment and os.path.lexists(self._top / path):
                self._found(path, f"unreadable segment: {error.strerror}")
            return [], True  # Hadoop skips the entry too
        is_folder = S_ISDIR(status.st_mode)
        if not is_folder and not is_segment:
            return [], True
        if problem := _obstacle(path, status, above):
            self._found(path, f"unreadable {'segment' if is_segment else 'folder'}: {problem}")
            return [], False
        if is_folder:
            return self._folder(path, above)
        if status.st_size == 0:
            self._found(
                path, "damaged segment: the file is empty"
            )  # the disk lost the content; Spark would skip the file
        return [path], True

    def _found(self, path: str, problem: str) -> None:
        self._problems[os.fsencode(path).decode(errors="backslashreplace")] = problem


def _obstacle(path: str, status: os.stat_result, above: frozenset[tuple[int, int]]) -> str | None:
    """Why a folder or a segment cannot be listed or read; None if it can."""
    is_folder = S_ISDIR(status.st_mode)
    if is_folder and (status.st_dev, status.st_ino) in above:
        return "it is a link to a folder above itself"
    if is_folder and path.endswith(SUFFIX):
        return "it is a folder"
    if not is_folder and not S_ISREG(status.st_mode):
        return "it is no file"
    return name_problem(path)
