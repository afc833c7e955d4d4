"""How records in an object store are replaced or deleted while readers read.

Objects appear and disappear one by one. So a folder whose files are replaced contains a barrier meanwhile: an object with the name of a
Parquet file that is none, at which every plain reader of the folder fails. It says what replaces what: by it, our own readers see either
the old files or the new one, and the next writer completes or undoes what a dead one began. The order is: barrier, new file, old files
deleted, barrier deleted (docs/project/adr/0041-spark-reads-object-stores.md).
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from sidecar.audit.audit_error import AuditError
from sidecar.audit.log.storage import PARQUET
from sidecar.net.object_store import ObjectStore, StoredObject

BARRIER: Final = "zz-replacing-"
"""The prefix of a barrier's name. It is listed after all others: a reader that lists page by page cannot miss it."""


class Replacement(Struct, frozen=True):
    """The content of a barrier: names in its folder."""

    old: tuple[str, ...]
    new: Mapping[str, int]
    """The size of each new file."""


_REPLACEMENT: Final = msgspec.json.Decoder(Replacement)


def read_barriers(store: ObjectStore, paths: Iterable[str]) -> dict[str, Replacement]:
    """The barriers among the `paths`. Raises OSError, FileNotFoundError if one was deleted meanwhile; AuditError if one is not ours."""
    return {path: _read(store, path) for path in paths if path.rpartition("/")[2].startswith(BARRIER)}


def is_complete(objects: Mapping[str, StoredObject], barrier: str, replacement: Replacement) -> bool:
    """Whether all new files exist. A file of another size is one that keeps a dead writer from adding its own."""
    folder = barrier.rpartition("/")[0]
    pairs = ((objects.get(f"{folder}/{name}"), size) for name, size in replacement.new.items())
    return all(stored is not None and stored.size == size for stored, size in pairs)


def invisible(objects: Mapping[str, StoredObject], barriers: Mapping[str, Replacement]) -> Iterator[str]:
    """The objects that are no files of the log: barriers, and of what each replaces the old files or the new ones."""
    for path, replacement in barriers.items():
        folder = path.rpartition("/")[0]
        gone = replacement.old if is_complete(objects, path, replacement) else replacement.new
        yield from (path, *(f"{folder}/{name}" for name in gone))


def name_behind(old: Iterable[str]) -> str:
    """A name for a new file that is listed after the `old` names of its folder.

    A listing comes in pages. If the new file came first, a reader whose pages are before and after the swap would see neither.
    """
    last = max(old, default="")
    prefix = "q"
    while (name := f"{prefix}-{time.time_ns():020d}-{uuid4()}{PARQUET}") <= last:
        prefix += "q"
    return name


def put_barrier(store: ObjectStore, folder: str, replacement: Replacement) -> str:
    """Put a barrier into a folder; returns its path. Raises OSError."""
    barrier = f"{folder}/{BARRIER}{uuid4()}{PARQUET}"
    store.create(barrier, msgspec.json.encode(replacement))
    return barrier


def settle(store: ObjectStore, objects: Mapping[str, StoredObject], barrier: str, replacement: Replacement) -> None:
    """Complete a replacement whose new files exist, else undo it. Raises OSError."""
    folder = barrier.rpartition("/")[0]
    gone: Iterable[str] = replacement.old
    if not is_complete(objects, barrier, replacement):
        # An empty file that occupies a name stays.
        sizes = {name: stored.size for name in replacement.new if (stored := objects.get(f"{folder}/{name}"))}
        gone = [name for name, size in sizes.items() if size == replacement.new[name]]
    for name in gone:
        store.delete(f"{folder}/{name}")
    store.delete(barrier)


def _read(store: ObjectStore, barrier: str) -> Replacement:
    foreign = AuditError(f"{store.url}/{barrier} is not of an audit log: remove it")
    try:
        replacement = _REPLACEMENT.decode(store.read(barrier))
    except msgspec.DecodeError as error:
        raise foreign from error
    if any("/" in name for name in (*replacement.old, *replacement.new)):
        raise foreign
    return replacement
