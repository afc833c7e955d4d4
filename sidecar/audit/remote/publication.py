"""Publishes what changed in the local copy of an audit log, and completes what a dead writer began.

A new file is one object, put complete and only where there is none. Where records are replaced or deleted, the folder has a barrier
meanwhile (`contents`), and the order is: barrier, new files, old files deleted, barrier deleted. A reader that lists at any moment finds
the old files, or the new ones, or fails: at the barrier, or at a file that it listed and that is deleted. Tables whose files a manifest
names need no barrier: the manifest comes after the files that it names, and before the deletions.
"""

import mmap
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sidecar.audit.log.storage import PARQUET
from sidecar.audit.log.tables import TABLES
from sidecar.audit.remote.contents import BARRIER, Contents, Replacement
from sidecar.audit.remote.local_copy import FileState, LocalCopy, in_parallel
from sidecar.audit.remote.writer_lock import WriterLock, taken_over
from sidecar.object_store import ObjectStore


class _Group(Struct, frozen=True):
    """What becomes visible together: the changes of one date of a table of records, or all other changes."""

    of_records: bool
    new: Sequence[str]
    changed: Sequence[str]
    old: Sequence[str]


def publish(
    store: ObjectStore, lock: WriterLock, copy: LocalCopy, before: Mapping[str, FileState]
) -> dict[str, FileState]:
    """Make the log equal to its local copy, in which only what differs from the files `before` was changed; returns the files now.

    May be killed at any moment: whole files are visible by then, and the next writer removes the barriers. Raises OSError; AuditError
    if another writer has replaced this one.
    """
    groups = _groups(copy, before, copy.files())
    after = copy.files()
    new = [path for group in groups for path in group.new]
    uploaded = dict[str, str]()
    if new:
        lock.announce(new)
    in_parallel(lambda group: _publish_group(store, lock, copy, group, uploaded), groups)
    if new:
        lock.announce(())
    sizes = {path: size for path, (size, _, _) in after.items()}
    copy.remember(uploaded, sizes, [path for group in groups for path in group.old])
    return after


def _groups(copy: LocalCopy, before: Mapping[str, FileState], after: Mapping[str, FileState]) -> list[_Group]:
    new, changed, old = (defaultdict[str, list[str]](list) for _ in range(3))
    for path, state in after.items():
        if before.get(path) != state:
            (changed if path in before else new)[_together(path)].append(path)
    for path in before.keys() - after.keys():
        old[_together(path)].append(path)
    groups = []
    for key in sorted({*new, *changed, *old}):
        names = sorted(new[key], key=lambda path: (not path.endswith(PARQUET), path))
        if key and names and old[key]:
            names = _behind(copy, names, max(old[key]))
        groups.append(_Group(of_records=bool(key), new=names, changed=changed[key], old=old[key]))
    return groups


def _together(path: str) -> str:
    """The date's folder of a file with records; empty for all other files."""
    return path.rpartition("/")[0] if path.partition("/")[0] in TABLES else ""


def _behind(copy: LocalCopy, files: Iterable[str], last: str) -> list[str]:
    """Rename the new files of a date, so that they are listed after the ones that they replace, of which `last` is the last.

    A listing comes in pages. If the new file came first, a reader whose pages are before and after the swap would see neither.
    """
    renamed = []
    for path in files:
        folder = path.rpartition("/")[0]
        prefix = "q"
        while (target := f"{folder}/{prefix}-{time.time_ns():020d}-{uuid4()}{PARQUET}") <= last:
            prefix += "q"
        (copy.audit / path).rename(copy.audit / target)
        renamed.append(target)
    return renamed


def _publish_group(
    store: ObjectStore, lock: WriterLock, copy: LocalCopy, group: _Group, uploaded: dict[str, str]
) -> None:
    barrier = _barrier(store, lock, copy, group) if group.of_records and group.old else None
    for path in group.new:
        lock.check()
        try:
            uploaded[path] = _upload(store, copy.audit / path, path, fresh=True)
        except FileExistsError as error:  # a successor has occupied the name
            raise taken_over(store.url) from error
    for path in group.changed:
        lock.check()
        uploaded[path] = _upload(store, copy.audit / path, path, fresh=False)
    for path in group.old:
        store.delete(path)
    if barrier:
        store.delete(barrier)


def _barrier(store: ObjectStore, lock: WriterLock, copy: LocalCopy, group: _Group) -> str:
    """Put a barrier into the folder of a date; returns its path."""
    new = {path.rpartition("/")[2]: (copy.audit / path).stat().st_size for path in group.new}
    old = tuple(path.rpartition("/")[2] for path in group.old)
    barrier = f"{group.old[0].rpartition('/')[0]}/{BARRIER}{uuid4()}{PARQUET}"
    lock.check()
    store.create(barrier, msgspec.json.encode(Replacement(old, new)))
    return barrier


def _upload(store: ObjectStore, file: Path, path: str, *, fresh: bool) -> str:
    put = store.create if fresh else store.put
    if not file.stat().st_size:
        return put(path, b"")
    with file.open("rb") as content:
        mapped = mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ)  # so that the file is not read into memory
    return put(path, memoryview(mapped))


def recover(spark: SparkSession, store: ObjectStore, lock: WriterLock, copy: LocalCopy) -> None:
    """Bring the copy up to date, after completing or undoing what earlier holders of the lock began. Raises OSError, AuditError."""
    contents = copy.update()
    missing = [path for path in lock.announced if _together(path) and path not in contents.objects]
    if missing:
        _occupy(spark, store, copy, missing)
        contents = copy.update()
    if contents.barriers:
        in_parallel(lambda barrier: _settle(store, contents, barrier), contents.barriers)
        copy.update()
    if lock.announced:
        lock.announce(())


def _occupy(spark: SparkSession, store: ObjectStore, copy: LocalCopy, paths: Sequence[str]) -> None:
    """Put an empty file where an earlier writer may still add records: they will be ingested again, under another name."""
    tables = {path.partition("/")[0] for path in paths}
    empty = {table: _empty_file(spark, copy, TABLES[table].schema) for table in tables}
    for path in paths:
        with suppress(FileExistsError):  # it was added after all
            store.create(path, empty[path.partition("/")[0]])


def _empty_file(spark: SparkSession, copy: LocalCopy, schema: StructType) -> bytes:
    folder = copy.audit.parent / f"empty-{uuid4()}"
    try:
        spark.createDataFrame([], schema).coalesce(1).write.parquet(folder.as_uri())
        return next(folder.glob(f"*{PARQUET}")).read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _settle(store: ObjectStore, contents: Contents, barrier: str) -> None:
    """Complete a replacement whose new files exist, else undo it."""
    replacement, folder = contents.barriers[barrier], barrier.rpartition("/")[0]
    if contents.is_complete(barrier):
        gone: Iterable[str] = replacement.old
    else:
        # An empty file that occupies a name stays.
        sizes = {name: found.size for name in replacement.new if (found := contents.objects.get(f"{folder}/{name}"))}
        gone = [name for name, size in sizes.items() if size == replacement.new[name]]
    for name in gone:
        store.delete(f"{folder}/{name}")
    store.delete(barrier)
