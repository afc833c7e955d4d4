"""Publishes what changed in the local copy of an audit log, and completes what a dead writer began.

A new file is one object, put complete and only where there is none. Where files are replaced or deleted, the folder has a barrier
meanwhile (`contents`), and the order is: barrier, new files, old files deleted, barrier deleted. A reader that lists at any moment finds
the old files, or the new ones, or fails: at the barrier, or at a file that it listed and that is deleted.
"""

import mmap
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

from sidecar.audit.remote.contents import BARRIER, Contents, Replacement
from sidecar.audit.remote.local_copy import FileState, LocalCopy, in_parallel
from sidecar.audit.remote.writer_lock import WriterLock, taken_over
from sidecar.audit.storage import PARQUET
from sidecar.audit.tables import TABLES
from sidecar.object_store import ObjectStore


class _Group(Struct, frozen=True):
    """What becomes visible together: the changes of one date of a table of records, or of another table as a whole."""

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
        names = new[key]
        if key.partition("/")[0] in TABLES and new[key] and old[key]:
            names = _behind(copy, names, max(old[key]))
        groups.append(_Group(new=names, changed=changed[key], old=old[key]))
    return groups


def _together(path: str) -> str:
    table = path.partition("/")[0]
    return path.rpartition("/")[0] if table in TABLES else table


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
    barriers = _barriers(copy, group) if group.old else {}
    for path, replacement in barriers.items():
        lock.check()
        store.create(path, msgspec.json.encode(replacement))
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
    for path in barriers:
        store.delete(path)


def _barriers(copy: LocalCopy, group: _Group) -> dict[str, Replacement]:
    old, new = defaultdict[str, list[str]](list), defaultdict[str, dict[str, int]](dict)
    for path in group.old:
        folder, _, name = path.rpartition("/")
        old[folder].append(name)
    for path in group.new:
        folder, _, name = path.rpartition("/")
        new[folder][name] = (copy.audit / path).stat().st_size
    return {
        f"{folder}/{BARRIER}{uuid4()}{PARQUET}": Replacement(tuple(names), new[folder]) for folder, names in old.items()
    }


def _upload(store: ObjectStore, file: Path, path: str, *, fresh: bool) -> str:
    put = store.create if fresh else store.put
    if not file.stat().st_size:
        return put(path, b"")
    with file.open("rb") as content:
        return put(
            path, memoryview(mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ))
        )  # the file is not read into memory


def recover(spark: SparkSession, store: ObjectStore, lock: WriterLock, copy: LocalCopy) -> None:
    """Bring the copy up to date, after completing or undoing what earlier holders of the lock began. Raises OSError, AuditError."""
    contents = copy.update()
    missing = [path for path in lock.announced if path not in contents.objects and path.endswith(PARQUET)]
    if missing:
        _occupy(spark, store, copy, missing)
        contents = copy.update()
    if contents.barriers:
        in_parallel(lambda barrier: _settle(store, contents, barrier), contents.barriers)
        copy.update()
    if lock.announced:
        lock.announce(())


def _occupy(spark: SparkSession, store: ObjectStore, copy: LocalCopy, paths: Sequence[str]) -> None:
    """Put an empty file where an earlier writer may still add one: its rows will be ingested again, under another name."""
    empty = {table: _empty_file(spark, copy, table) for table in {path.partition("/")[0] for path in paths}}
    for path in paths:
        if content := empty[path.partition("/")[0]]:
            with suppress(FileExistsError):  # it was added after all
                store.create(path, content)


def _empty_file(spark: SparkSession, copy: LocalCopy, table: str) -> bytes | None:
    """A Parquet file of a table without rows; None if its columns are not known."""
    schema: StructType | None = TABLES[table].schema if table in TABLES else None
    example = next((path for path in copy.files() if path.startswith(f"{table}/") and path.endswith(PARQUET)), None)
    if schema is None and example is not None:
        schema = spark.read.parquet((copy.audit / example).as_uri()).schema
    if schema is None:
        return None
    folder = copy.audit.parent / f"empty-{uuid4()}"
    spark.createDataFrame([], schema).coalesce(1).write.parquet(folder.as_uri())
    return next(folder.glob(f"*{PARQUET}")).read_bytes()


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
