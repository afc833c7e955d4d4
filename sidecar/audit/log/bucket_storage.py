"""An audit log, or a spool, in an object store.

What decides is asked of the store itself, in few requests: listings, small objects, and each change of what readers see. Spark reads and
writes rows by Hadoop's connector. Nothing that a writer does late, because it stalled, makes a reader wrong (`writer_lock`).
"""

import mmap
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import AuditError, ChangedError
from sidecar.audit.log.bucket_client import connect, prepare
from sidecar.audit.log.local_storage import LocalStorage
from sidecar.audit.log.replacement import (
    BARRIER,
    Replacement,
    invisible,
    name_behind,
    put_barrier,
    read_barriers,
    settle,
)
from sidecar.audit.log.storage import LOCK, PARQUET, STAGING, FilesToRead, Storage
from sidecar.audit.log.tables import TABLES
from sidecar.audit.log.writer_lock import WriterLock, taken_over, writer_lock
from sidecar.net.object_store import ObjectStore, StoredObject

_T = TypeVar("_T")

_AT_ONCE: Final = 8
"""Requests."""
_STALLED: Final = timedelta(days=1)
"""For how long a writer may have stalled that puts a file late."""
_FEW: Final = 8
"""Files or folders that Spark looks up one by one; of more, it lists the table."""


class ObjectStorage(Storage):
    """A folder in an object store."""

    def __init__(self, spark: SparkSession, url: str, store: ObjectStore | None = None) -> None:
        """`store`: a client of it, if there is one. Connects to nothing. Raises AuditError when the URL cannot be used."""
        if store is None:
            prepare(spark, url)
        super().__init__(spark, url)
        self._store = store or connect(spark, url, self._fs)
        self.url = self._store.url
        self._lock: WriterLock | None = None
        self._staging: Storage | None = None
        self._choosing = Lock()

    @property
    def staging(self) -> Storage:
        """Where Spark puts files first: on this machine, if all of Spark is here, else below the log, for the holder of the lock."""
        with self._choosing:  # dates are staged by several threads
            if self._staging is None and self._is_here:
                self._staging = LocalStorage(self._spark, f"file:{self._scratch}/staging-{uuid4()}")
            elif self._staging is None:
                self._staging = ObjectStorage(self._spark, self.full_url(f"{STAGING}/{self._held.first_number:016d}"))
            return self._staging

    @property
    def _is_here(self) -> bool:
        """Whether all of Spark is on this machine."""
        return str(self._spark.sparkContext.master).startswith("local")

    @property
    def _scratch(self) -> str:
        return str(self._jvm.System.getProperty("java.io.tmpdir"))

    @property
    def _held(self) -> WriterLock:
        if self._lock is None:
            raise AuditError(f"{self.url} is not locked")
        return self._lock

    def is_folder(self, path: str = "") -> bool:
        return bool(self.entries(path))

    def entries(self, path: str = "") -> dict[str, bool]:
        """The names in the folder `path`, sorted, and whether each is a folder."""
        return self._store.children(path)

    def names(self, path: str = "") -> list[str]:
        return [*self.entries(path)]

    def modified(self, path: str, suffix: str) -> dict[str, datetime]:
        start = len(path) + 1 if path else 0
        return {stored.path[start:]: stored.modified for stored in self._listed(path) if stored.path.endswith(suffix)}

    def objects(self, suffix: str) -> Sequence[StoredObject]:
        return [stored for stored in self._listed("") if stored.path.endswith(suffix)]

    def sizes(self, path: str) -> dict[str, int]:
        """The size in bytes of each file in the folder `path`; without those that have to stay."""
        stays = self._lock.occupied if self._lock else ()
        return {
            stored.path.rpartition("/")[2]: stored.size for stored in self._listed(path) if stored.path not in stays
        }

    def size(self, path: str) -> int:
        return self._store.size(path)

    def chunks(self, path: str, size: int) -> Iterator[bytes]:  # noqa: ARG002  of the store's own size
        return self._store.content(path)

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    @contextmanager
    def fetched(self, paths: Sequence[str]) -> Iterator[Storage]:
        if not self._is_here:
            yield self
            return
        with tempfile.TemporaryDirectory(dir=self._scratch) as name:

            def fetch(path: str) -> None:
                target = Path(name, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as file:
                    file.writelines(self._store.content(path))

            _call_each(fetch, paths)
            yield LocalStorage(self._spark, f"file:{name}")

    def write(self, path: str, content: bytes) -> None:
        self._store.put(path, content)

    def make_folder(self, path: str = "") -> None:
        """There are none."""

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._store.delete(path)
        _call_each(self._store.delete, [stored.path for stored in self._listed(path)])

    def publish(self, files: Mapping[str, str]) -> None:
        """Make finished files in `staging` visible, each at its target, where there is none yet. Raises AuditError if the lock is lost."""
        records = [target for target in files.values() if target.partition("/")[0] in TABLES]
        if records:
            self._held.announce(records)
        _call_each(lambda file: self._put(*file), files.items())
        if records:
            self._held.announce(())

    def replace(self, files: Mapping[str, str]) -> None:
        """Replace the content of each folder by one finished file in `staging`. Raises AuditError if the lock is lost."""
        self._replace({folder: [staged] for folder, staged in files.items()})

    def drop(self, folder: str) -> None:
        """Delete a folder: a reader sees all of it or nothing, or fails."""
        if folder.partition("/")[0] in TABLES:
            self._replace({folder: []})
        else:
            self.delete(folder)

    def check_replace(self) -> None:
        """Any object store can."""

    def delete_replaced(self) -> None:
        """`replace` does."""

    def is_locked(self, name: str = LOCK) -> bool:
        return WriterLock(self._store, name).is_held()

    @contextmanager
    def locked(self, name: str = LOCK, *, stop: Event | None = None) -> Iterator[None]:
        """Hold a lock. With that of the log, what a dead holder began is completed or undone."""
        with writer_lock(self._store, name, stop) as lock:
            if name != LOCK:
                yield
                return
            self._lock = lock
            try:
                self._recover(lock)
                yield
                if self._staging is not None and self._staging.local is None:
                    self._delete_staged(lock.first_number)
            finally:
                self._lock = self._staging = None

    @contextmanager
    def reading(self) -> Iterator[Storage]:
        """The log at one moment. Raises ChangedError if what was listed has changed in the block while it was being changed already."""
        moment = ListedStorage(self._spark, self.url, self._store)
        yield moment
        # Two equal listings: at the moment between them, just these files existed. Else a listing of Spark's may have missed a swap.
        for folder, listing in moment.listings.items():
            if listing.barriers and Listing(self._store, folder).objects != listing.objects:
                raise ChangedError(f"{self.url} changes faster than it can be listed: run it again")

    def selected(self, table: str, paths: Collection[str] | None) -> FilesToRead:
        hidden = {path.partition("/")[2] for path in self._invisible(table)}
        if paths is None or len(paths) <= _FEW:
            return FilesToRead([table] if paths is None else [*paths], frozenset(hidden))
        wanted = {*paths}
        folders = {path if not path.endswith(PARQUET) else path.rpartition("/")[0] for path in wanted}
        for stored in self._listed(table):
            folder = stored.path.rpartition("/")[0]
            if folder in folders and wanted.isdisjoint({folder, stored.path}):
                hidden.add(stored.path.partition("/")[2])
        return FilesToRead([table], frozenset(hidden), frozenset(folder.rpartition("=")[2] for folder in folders))

    def _invisible(self, table: str) -> Collection[str]:  # noqa: ARG002  nobody else writes
        """Objects of a table that no reader may take for its files."""
        return ()

    def _listed(self, folder: str) -> Iterable[StoredObject]:
        return self._store.list(folder)

    def _put(self, staged: str, target: str) -> None:
        self._held.check()
        with self._content(staged) as content:
            try:
                self._store.create(target, content)
            except FileExistsError as error:  # a successor has occupied the name
                raise taken_over(self.url) from error

    @contextmanager
    def _content(self, staged: str) -> Iterator[bytes | memoryview]:
        """The content of a staged file, mapped: it may be larger than the memory."""
        if self.staging.local is not None:
            yield _mapped(self.staging.local / staged)
            return
        with tempfile.NamedTemporaryFile() as file:
            for chunk in self.staging.chunks(staged, 1 << 20):
                file.write(chunk)
            file.flush()
            yield _mapped(Path(file.name))

    def _replace(self, files: Mapping[str, list[str]]) -> None:
        plans = dict[str, tuple[tuple[str, ...], dict[str, str]]]()
        """By folder: the names that go, and the staged file of each name that comes."""
        for folder, staged in files.items():
            old = tuple(self.sizes(folder))
            plans[folder] = old, {name_behind(old): file for file in staged}
        new = [f"{folder}/{name}" for folder, (_, names) in plans.items() for name in names]
        if new:
            self._held.announce(new)
        _call_each(lambda folder: self._replace_one(folder, *plans[folder]), plans)
        if new:
            self._held.announce(())

    def _replace_one(self, folder: str, old: tuple[str, ...], new: Mapping[str, str]) -> None:
        self._held.check()
        sizes = {name: self.staging.size(staged) for name, staged in new.items()}
        barrier = put_barrier(self._store, folder, Replacement(old, sizes))
        for name, staged in new.items():
            self._put(staged, f"{folder}/{name}")
        for name in old:
            self._store.delete(f"{folder}/{name}")
        self._store.delete(barrier)

    def _recover(self, lock: WriterLock) -> None:
        """Complete or undo what earlier holders of the lock began."""
        # Numbers only grow: who stalled, and goes on, deletes nothing of its successors.
        for number in map(int, filter(str.isdecimal, self._store.children(STAGING))):
            if number < lock.first_number:
                self._delete_staged(number)
        missing = [path for path in lock.announced if not self._store.exists(path)]
        if missing:
            self._occupy(missing)
        log = Listing(self._store, "")
        _call_each(lambda barrier: settle(self._store, log.objects, *barrier), log.barriers.items())
        long_ago = datetime.now(UTC) - _STALLED
        occupied = [path for path in lock.occupied if path in log.objects]
        past = [path for path in occupied if log.objects[path].modified < long_ago]
        if lock.announced or past:
            lock.recovered([*(path for path in occupied if path not in past), *missing])
        for path in past:
            self._store.delete(path)

    def _delete_staged(self, number: int) -> None:
        """Delete what a holder of the lock has staged: by Hadoop, which puts objects for empty folders that our own client cannot name."""
        super().delete(f"{STAGING}/{number:016d}")
        with suppress(Py4JJavaError):  # another holder's is there
            self._fs.delete(self._path(STAGING), False)  # the one for the folder that is empty now

    def _occupy(self, paths: Iterable[str]) -> None:
        """Put an empty file where an earlier writer may still add records: they will be ingested again, under another name."""
        for path in paths:
            folder = str(uuid4())
            rows = self._spark.createDataFrame([], TABLES[path.partition("/")[0]].file_schema)
            rows.coalesce(1).write.parquet(self.staging.full_url(folder))
            (file,) = self.staging.files(folder, PARQUET)
            with suppress(FileExistsError), self._content(f"{folder}/{file}") as content:  # it was added after all
                self._store.create(path, content)


class Listing:
    """What one listing of a folder found."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        """Raises OSError; FileNotFoundError if it was changed meanwhile; AuditError if it cannot be understood."""
        self.objects: Final[Mapping[str, StoredObject]] = {stored.path: stored for stored in store.list(folder)}
        self.barriers: Final[Mapping[str, Replacement]] = read_barriers(store, self.objects)
        self.invisible: Final[Collection[str]] = {*invisible(self.objects, self.barriers)}


class ListedStorage(ObjectStorage):
    """A log as it was listed: each table at most once, when it is first asked for. Contents are read when they are asked for."""

    def __init__(self, spark: SparkSession, url: str, store: ObjectStore) -> None:
        super().__init__(spark, url, store)
        self.listings: Final = dict[str, Listing]()
        """By the folders in that of the log."""

    @cached_property
    def _top(self) -> dict[str, bool]:
        return self._store.children()

    def unfinished(self) -> list[str]:
        return sorted(barrier for folder in self.entries() for barrier in self._listing(folder).barriers)

    def entries(self, path: str = "") -> dict[str, bool]:
        if not path:
            return self._top
        names = (stored.path[len(path) + 1 :].partition("/") for stored in self._listed(path))
        return dict(sorted((name, bool(slash)) for name, slash, _ in names))

    def is_folder(self, path: str = "") -> bool:
        return self.entries()[path] if path in self.entries() else super().is_folder(path)

    def selected(self, table: str, paths: Collection[str] | None) -> FilesToRead:
        """A table that is not listed yet is listed by Spark, which says whether ours is needed: see `is_replacing`."""
        if table in self.listings or len(paths or ()) > _FEW:
            return super().selected(table, paths)
        return FilesToRead([table] if paths is None else [*paths])

    def is_replacing(self, table: str, rows: DataFrame) -> bool:
        if table in self.listings:
            return False
        listed: Any = rows._jdf.inputFiles()  # noqa: SLF001  a single call, where Python's would make one for each name
        names = self._jvm.org.apache.hadoop.util.StringUtils.arrayToString(listed)
        return f"/{BARRIER}" in names and bool(self._listing(table))

    def _invisible(self, table: str) -> Collection[str]:
        return self._listing(table).invisible

    def _listed(self, folder: str) -> Iterable[StoredObject]:
        if not folder:
            return chain.from_iterable(self._listed(name) for name, is_folder in self.entries().items() if is_folder)
        listing = self._listing(folder.partition("/")[0])
        return (
            stored
            for path, stored in listing.objects.items()
            if path.startswith(f"{folder}/") and path not in listing.invisible
        )

    def _listing(self, folder: str) -> Listing:
        if folder not in self.listings:
            self.listings[folder] = Listing(self._store, folder)
        return self.listings[folder]


def _mapped(file: Path) -> bytes | memoryview:
    if not file.stat().st_size:
        return b""
    with file.open("rb") as content:
        return memoryview(mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ))


def _call_each(do: Callable[[_T], object], items: Collection[_T]) -> None:
    """Call `do` with each item, on a few threads. After the first error, no further call begins; it is raised."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for _ in pool.map(do, items):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
