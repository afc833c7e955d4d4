"""Which segments of a spool an audit log has, so that an ingest reads only new ones. Only a shortcut: repeated records are skipped anyway.

A stream of files remembers them as well, but lists all files and reads all their names at each start, and writes all names in each tenth.
"""

import logging
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import uuid4

import msgspec

from sidecar.audit.audit_error import reason
from sidecar.audit.log.storage import Storage

_log = logging.getLogger("sidecar.audit")

_MOST_FILES: Final = 50
"""Each batch adds a file; so many become one."""
_FEW: Final = 1000


class SegmentLog:
    """The paths of ingested segments, below their spool. May be deleted at any time: then every segment is read again."""

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
