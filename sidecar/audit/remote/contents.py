"""What an audit log in an object store contains, by one listing of it.

Objects appear and disappear one by one. So a folder whose files are replaced contains a barrier meanwhile: an object with the name of a
Parquet file that is none, at which every plain reader of the folder fails. It says what replaces what: by it, our own readers see either
the old files or the new ones, and the next writer completes or undoes what a dead one began.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Final

import msgspec
from msgspec import Struct

from sidecar.audit.audit_error import AuditError
from sidecar.audit.log.checkpoints import CHECKPOINTS
from sidecar.audit.log.storage import INGESTING, LOCK, REPLACED, STAGING
from sidecar.audit.log.tables import ENTRIES
from sidecar.object_store import ObjectStore, StoredObject

BARRIER: Final = "zz-replacing-"
"""The prefix of a barrier's name. It is listed after all others: a reader that lists page by page cannot miss it."""
INTERNAL: Final = frozenset({CHECKPOINTS, STAGING, REPLACED, LOCK, INGESTING})
"""Entries of an audit log that readers do not need."""
_NAME: Final = re.compile(r"(?!\.{1,2}/)([A-Za-z0-9_=.,@+-]{1,200}/)")
_MOST_CHARACTERS: Final = 600
_SHOWN: Final = 100


class Replacement(Struct, frozen=True):
    """The content of a barrier: names in its folder."""

    old: tuple[str, ...]
    new: Mapping[str, int]
    """The size of each new file."""


_REPLACEMENT: Final = msgspec.json.Decoder(Replacement)


class Contents(Struct, frozen=True):
    """An audit log at one moment."""

    objects: Mapping[str, StoredObject]
    """Everything in the tables except barriers, by path."""
    barriers: Mapping[str, Replacement]
    """By path."""
    foreign: frozenset[str]
    """Entries that are not of an audit log."""
    refused: tuple[str, ...]
    """Objects whose names cannot be those of files, shortened."""

    def visible(self, without: Collection[str] = ()) -> dict[str, StoredObject]:
        """The files of the log, `without` some tables: of each replaced folder the old files or the new ones."""
        hidden = set[str]()
        for path, replacement in self.barriers.items():
            gone = replacement.old if self.is_complete(path) else replacement.new
            hidden.update(f"{path.rpartition('/')[0]}/{name}" for name in gone)
        return {
            path: found
            for path, found in self.objects.items()
            if path not in hidden and path.partition("/")[0] not in without
        }

    def is_complete(self, barrier: str) -> bool:
        """Whether all new files of a replacement exist. A file of another size is one that keeps a dead writer from adding its own."""
        folder = barrier.rpartition("/")[0]
        found = ((self.objects.get(f"{folder}/{name}"), size) for name, size in self.barriers[barrier].new.items())
        return all(one is not None and one.size == size for one, size in found)

    def entries(self) -> set[str]:
        """The tables that exist, and the foreign entries."""
        return {path.partition("/")[0] for path in self.objects} | self.foreign


def is_safe(path: str) -> bool:
    """Whether a path of an object can be one below a folder: plain names, none of them `..`, not too long."""
    end = 0
    while match := _NAME.match(f"{path}/", end):
        end = match.end()
    return end == len(path) + 1 <= _MOST_CHARACTERS


def read_contents(store: ObjectStore) -> Contents:
    """List an audit log. Raises OSError; FileNotFoundError if a barrier was deleted meanwhile; AuditError if it cannot be understood."""
    objects, barriers = dict[str, StoredObject](), dict[str, Replacement]()
    foreign, refused = set[str](), list[str]()
    for found in store.list():
        top, _, rest = found.path.partition("/")
        if top in INTERNAL:
            continue
        if not is_safe(found.path):
            refused.append(found.path[:_SHOWN])
        elif top not in ENTRIES:
            foreign.add(top)
        elif rest.rpartition("/")[2].startswith(BARRIER):
            barriers[found.path] = _replacement(store, found)
        elif rest:
            objects[found.path] = found
    for folder in {str(parent) for path in objects for parent in PurePosixPath(path).parents} & objects.keys():
        del objects[folder]  # a marker of some tools: "folder/" is listed as "folder"
    return Contents(objects, barriers, frozenset(foreign), tuple(refused))


def _replacement(store: ObjectStore, barrier: StoredObject) -> Replacement:
    try:
        replacement = _REPLACEMENT.decode(store.read(barrier.path))
    except msgspec.DecodeError as error:
        raise AuditError(f"{store.url}/{barrier.path} is not of an audit log: remove it") from error
    if not all(is_safe(name) and "/" not in name for name in (*replacement.old, *replacement.new)):
        raise AuditError(f"{store.url}/{barrier.path} is not of an audit log: remove it")
    return replacement
