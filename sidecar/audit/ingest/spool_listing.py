"""Lists what is new in a spool, whatever it contains: an unreadable folder, a circular link, a name that Hadoop cannot read."""

import logging
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from sidecar.audit.audit_error import reason
from sidecar.audit.log.storage import Storage, is_of_file_system

if TYPE_CHECKING:
    from sidecar.net.object_store import StoredObject


SUFFIX: Final = ".jsonl.gz"
LOOK_SECONDS: Final = 10.0
"""The interval at which a followed spool is listed."""
_NO_FILE: Final = "its name cannot be that of a file: rename it"
_NAME: Final = re.compile(r"[A-Za-z0-9_=.,@+-]{1,200}")
_MOST_CHARACTERS: Final = 600
_COLON: Final = "there is a colon in its name, which Hadoop cannot read: rename it"
_log = logging.getLogger("sidecar.audit")
_MOST_FILES: Final = 50
"""Each batch adds a file; so many become one."""
_FEW: Final = 1000


class NewSegment(Struct, frozen=True, order=True):
    """A segment that is not ingested. They are ordered as they were written, so that records of one date are adjacent."""

    modified: float
    """Seconds since the epoch."""
    path: str
    size: int
    """Bytes."""
    key: str
    """See `listing`."""


class SpoolListing(Struct, frozen=True):
    """The content of a spool; all paths are relative to it."""

    segments: Sequence[NewSegment]
    """Those that are not ingested, in order."""
    problems: Mapping[str, str]
    """Paths that cannot be read or hold nothing, and the reason for the quarantine."""
    ingested: AbstractSet[str] = frozenset()
    """The keys of the segments that exist and are ingested."""


def listing(spool: Storage, keys: AbstractSet[str]) -> SpoolListing:
    """List a spool except for the segments with these `keys`: their paths, which take a microsecond each on a local file system; elsewhere
    their keys.
    """
    if spool.local is not None:
        return _Walk(spool.local, keys).listing()
    return _objects_listing(spool.objects(SUFFIX), keys)


def _objects_listing(objects: Sequence["StoredObject"], keys: AbstractSet[str]) -> SpoolListing:
    problems = {item.path: f"unreadable segment: {_NO_FILE}" for item in objects if not _is_safe(item.path)}
    segments = [
        item
        for item in objects
        if item.path not in problems and not item.path.rpartition("/")[2].startswith((".", "_"))
    ]
    new = [
        NewSegment(segment.modified.timestamp(), segment.path, segment.size, key)
        for segment in segments
        if (key := key_of(segment)) not in keys
    ]
    return SpoolListing(sorted(new), problems, keys & {*map(key_of, segments)})


def _is_safe(path: str) -> bool:
    """Whether an object's path can be one below a folder: plain names, none of them `..`, not too long."""
    names = path.split("/")
    return len(path) <= _MOST_CHARACTERS and all(_NAME.fullmatch(name) and name.strip(".") for name in names)


def key_of(segment: "StoredObject") -> str:
    """What identifies a segment and its content: one that was restored under its name is read again."""
    return f"{segment.path}?{segment.etag}"


def batches_of(segments: Sequence[NewSegment], most_bytes: int) -> Iterator[list[NewSegment]]:
    """The segments in batches of at most so many bytes, but one segment at least."""
    batch, size = list[NewSegment](), 0
    for segment in segments:
        if batch and size + segment.size > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(segment)
        size += segment.size
    if batch:
        yield batch


def name_problem(path: str) -> str | None:
    """Why Hadoop cannot read that path below a spool; None if it can."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8: rename it"
    return _COLON if ":" in path else None


class _Walk:
    """A walk through a local spool. It follows links to folders, but not in circles. Names that begin with a dot are skipped, and below the
    spool those with an underscore.
    """

    def __init__(self, top: Path, ingested: AbstractSet[str]) -> None:
        self._top = top
        self._ingested = ingested
        self._existing = set[str]()
        self._segments: list[NewSegment] = []
        self._problems: dict[str, str] = {}

    def listing(self) -> SpoolListing:
        self._folder("", frozenset())
        return SpoolListing(sorted(self._segments), self._problems, self._existing)

    def _folder(self, path: str, above: frozenset[tuple[int, int]]) -> None:
        """`above`: its parents by device and inode."""
        try:
            status = (self._top / path).stat()
            names = [entry.name for entry in (self._top / path).iterdir()]
        except OSError as error:
            self._report(path, f"unreadable folder: {error.strerror}")
            return
        above |= {(status.st_dev, status.st_ino)}
        prefix = f"{path}/" if path else ""
        hidden = (".", "_") if path else (".",)
        for name in names:
            if name.startswith(hidden) or is_of_file_system(name):
                continue
            if (entry := prefix + name) in self._ingested:
                self._existing.add(entry)
            else:
                self._entry(entry, above)

    def _entry(self, path: str, above: frozenset[tuple[int, int]]) -> None:
        is_segment = path.endswith(SUFFIX)
        try:
            status = (self._top / path).stat()
        except OSError as error:
            if is_segment and os.path.lexists(self._top / path):
                self._report(path, f"unreadable segment: {error.strerror}")
            return
        is_folder = S_ISDIR(status.st_mode)
        if not is_folder and not is_segment:
            return
        if problem := _obstacle(path, status, above):
            self._report(path, f"unreadable {'segment' if is_segment else 'folder'}: {problem}")
        elif is_folder:
            self._folder(path, above)
        elif status.st_size == 0:  # the disk lost the content
            self._report(path, "damaged segment: the file is empty")
        else:
            self._segments.append(NewSegment(status.st_mtime, path, status.st_size, path))

    def _report(self, path: str, problem: str) -> None:
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


class SegmentLog:
    """The paths of ingested segments, below their spool: a shortcut. It may be deleted at any time; then every segment is read again."""

    def __init__(self, audit: Storage, folder: str) -> None:
        self._audit = audit
        self._folder = folder
        self._files: list[str] = []
        self._paths = set[str]()
        for name in audit.names(folder):
            self._load(f"{folder}/{name}")

    @property
    def paths(self) -> AbstractSet[str]:
        """The paths of all ingested segments that may still exist."""
        return self._paths

    def add(self, paths: Collection[str]) -> None:
        """Remember segments whose records are visible. Only while the audit log is locked."""
        self._paths.update(paths)
        if len(self._files) < _MOST_FILES:
            self._write(paths)
        else:
            self._rewrite()

    def is_outdated(self, existing: AbstractSet[str]) -> bool:
        """Whether many of the segments no longer exist."""
        return len(self._paths) > 2 * len(existing) + _FEW

    def keep(self, existing: AbstractSet[str]) -> None:
        """Forget all other segments. Only while the audit log is locked."""
        self._paths.intersection_update(existing)
        self._rewrite()

    def _rewrite(self) -> None:
        before, self._files = self._files, []
        self._write(self._paths)
        for file in before:
            self._audit.delete(file)

    def _write(self, paths: Iterable[str]) -> None:
        name = f"{uuid4()}.json"
        self._audit.staging.make_folder()
        self._audit.staging.write(name, msgspec.json.encode(sorted(paths)))
        self._audit.publish({name: f"{self._folder}/{name}"})
        self._files.append(f"{self._folder}/{name}")

    def _load(self, file: str) -> None:
        try:
            self._paths.update(msgspec.json.decode(self._audit.read(file), type=list[str]))
            self._files.append(file)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, its segments can be read again
            _log.warning("the segments in %s are read again: %s", file, reason(error))
            self._audit.delete(file)
