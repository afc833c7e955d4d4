"""The file system of the audit log: any that Hadoop supports, with stronger guarantees on a local one.

A local file system (also NFS) provides a lock that ends with its owner, atomic renames, and data that is on disk before it is visible.
Elsewhere there is no lock: the scheduler must run one ingest at a time. HDFS renames atomically; an object store copies, and an object is
visible only when it is complete.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, CannotSwapError, StoppedError, defect
from sidecar.audit.log.paths import check_path, escape_pattern, is_of_file_system

_SPARK_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"
PARQUET: Final = ".parquet"
"""The suffix of all files that readers read."""
ONLY_PARQUET: Final = {"pathGlobFilter": f"*{PARQUET}"}
"""The option of Spark's readers with which they skip other files, as those that a storage appliance puts into every folder."""
LOCK: Final = "_lock"
"""Locked during every change."""
INGESTING: Final = "_ingesting"
"""Locked as long as an ingest runs, also while it waits for segments: no other ingest may use its checkpoint and its index of ids."""
STAGING: Final = "_staging"
"""Files that are not visible yet. The next writer deletes what it finds here."""
REPLACED: Final = "_replaced"
"""Files that are no longer visible."""
_REPLACED_SECONDS: Final = 3600.0
"""The time that a reader has between opening a folder and listing it."""
_BARRIER: Final = "compacting-"
_BARRIER_SECONDS: Final = 1.0
"""The time that a reader has between listing a folder and looking up the listed files: usually it takes microseconds."""
_LOCK_TIMEOUT_SECONDS: Final = {LOCK: 600.0, INGESTING: 5.0}
"""A batch or a few dates take minutes; another ingest ends soon only if it was killed."""
_LOCK_POLL_SECONDS: Final = 0.1
_PARALLEL_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"


class Storage:
    """One folder, at a path or any URL that Hadoop supports. All paths are relative to the folder.

    What a file system makes by itself (`lost+found`) is not listed.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Raises AuditError when Hadoop cannot read that path."""
        check_path(url)
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001  Hadoop's FileSystem has no Python API
        self._jvm = jvm
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001  the same
        path = jvm.org.apache.hadoop.fs.Path(url)
        self._fs = path.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(path)
        self.url: str = self._root.toString()
        """The folder's full URL, with its scheme: the same for all spellings of one folder."""
        uri = self._root.toUri()
        self.local: Path | None = Path(uri.getPath()) if uri.getScheme() == "file" else None
        """The folder's path, if it is on a local file system."""

    def full_url(self, path: str) -> str:
        """The full URL of a path in this folder."""
        return f"{self.url}/{path}"

    def to_read(self, path: str) -> str:
        """The full URL of a path in this folder, for Spark's readers: they take it for a pattern."""
        return escape_pattern(self.full_url(path))

    def path(self, path: str = "") -> Path:
        """A path in this folder on a local file system. Raises AuditError on any other."""
        if self.local is None:
            raise AuditError(f"{self.url} is not on a local file system")
        return self.local / path

    def relative(self, url: str) -> str:
        """The path in this folder of a full URL."""
        return url.removeprefix(f"{self.url}/")

    def is_folder(self, path: str = "") -> bool:
        """Whether `path` exists and is a folder."""
        return bool(self._fs.isDirectory(self._path(path)))

    def entries(self, path: str = "") -> dict[str, bool]:
        """The names in the folder `path`, sorted, and whether each is a folder."""
        statuses = self._fs.listStatus(self._path(path))
        found = sorted((status.getPath().getName(), bool(status.isDirectory())) for status in statuses)
        return {name: is_folder for name, is_folder in found if not is_of_file_system(name)}

    def names(self, path: str = "") -> list[str]:
        """The names in the folder `path`, sorted."""
        return [*self.entries(path)]

    def files(self, path: str, suffix: str) -> list[str]:
        """The files below `path` whose paths end in `suffix`, sorted, relative to `path`."""
        return sorted(self.modified(path, suffix))

    def modified(self, path: str, suffix: str) -> dict[str, datetime]:
        """When each of the `files` was last modified."""
        if self.local:
            return dict(_modified(self.local / path, suffix))
        folder = self._path(path)
        found, listing = {}, self._fs.listFiles(folder, True)
        while listing.hasNext():
            status = listing.next()
            file = folder.toUri().relativize(status.getPath().toUri()).getPath()
            if file.endswith(suffix) and not any(map(is_of_file_system, file.split("/"))):
                found[file] = datetime.fromtimestamp(status.getModificationTime() / 1000, UTC)
        return found

    def size(self, path: str) -> int:
        """The size of a file in bytes."""
        if self.local:
            return (self.local / path).stat().st_size
        return int(self._fs.getFileStatus(self._path(path)).getLen())

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """The content of a file, at most `size` bytes at a time. Raises OSError; what Java raises if the file is not local."""
        if self.local:
            # Opening a pipe would block forever.
            if not stat.S_ISREG((self.local / path).stat().st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            with (self.local / path).open("rb") as file:
                yield from iter(partial(file.read, size), b"")
            return
        with closing(self._fs.open(self._path(path))) as stream:
            yield from iter(lambda: bytes(stream.readNBytes(size)), b"")

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        return b"".join(self.chunks(path, 1 << 20))

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, where no reader looks yet."""
        if self.local:
            (self.local / path).write_bytes(content)
            return
        with closing(self._fs.create(self._path(path))) as stream:
            stream.write(content)

    def make_folder(self, path: str = "") -> None:
        """Create the folder `path` and its parents."""
        if not self._fs.mkdirs(self._path(path)):
            raise OSError(f"{self.full_url(path)} cannot be created")

    def delete(self, path: str) -> None:
        """Delete `path` and everything below it, if it exists."""
        self._fs.delete(self._path(path), True)

    def publish(self, file: str, target: str) -> None:
        """Make a finished file visible at `target`: readers see all of it or nothing, also after a power failure."""
        parent = target.rpartition("/")[0]
        self.make_folder(parent)
        if self.local:
            _sync(self.local / file)
            (self.local / file).rename(self.local / target)
            for folder in (self.local / target).relative_to(self.local).parents:
                _sync(self.local / folder)
        elif not self._fs.rename(self._path(file), self._path(target)):
            raise OSError(f"{self.full_url(file)} cannot be renamed to {self.full_url(target)}")

    def replace(self, files: Mapping[str, str]) -> None:
        """Atomically replace the content of each folder by one finished file, also after a power failure.

        For two seconds around the swap, reads of the folders fail: each contains a barrier, which is not a Parquet file. A reader that
        listed a folder before the barrier has a second to open the old files; one that listed the barrier finds it after the swap too, and
        fails instead of finding nothing. The next owner of the lock removes leftover barriers. The previous content is kept until
        `delete_replaced`. Only on a local file system; raises CannotSwapError if it cannot swap folders.
        """
        barrier = f"{_BARRIER}{uuid4()}.parquet"
        prepared = {self.path(folder): self._prepared(folder, file, barrier) for folder, file in files.items()}
        try:
            for target, aside in prepared.items():
                (target / barrier).hardlink_to(aside / barrier)
            time.sleep(_BARRIER_SECONDS)
            for target, aside in prepared.items():
                _exchange(aside, target)
            for parent in {path.parent for pair in prepared.items() for path in pair}:
                _sync(parent)
            time.sleep(_BARRIER_SECONDS)
        finally:
            for target in prepared:
                (target / barrier).unlink(missing_ok=True)
                _sync(target)

    def _prepared(self, folder: str, file: str, barrier: str) -> Path:
        """A new folder with `file` and a barrier, on disk, ready to replace `folder`."""
        aside = self.path(f"{REPLACED}/{time.time():.0f}-{uuid4()}")
        aside.mkdir(parents=True)
        shutil.copymode(self.path(folder), aside)
        finished = self.path(file).rename(aside / Path(file).name)
        (aside / barrier).write_text("This date is being compacted: read it again in a moment.\n", encoding="ascii")
        for path in (finished, aside, aside.parent, self.path()):
            _sync(path)
        return aside

    def drop(self, folder: str) -> None:
        """Delete a folder, atomically for readers if the file system renames or deletes folders atomically."""
        if self.local:
            aside = self.local / REPLACED / f"0-{uuid4()}"
            aside.parent.mkdir(exist_ok=True)
            (self.local / folder).rename(aside)
            _sync((self.local / folder).parent)
            shutil.rmtree(aside)
        else:
            self.delete(folder)

    def delete_replaced(self) -> None:
        """Delete folders that were replaced more than an hour ago."""
        oldest = time.time() - _REPLACED_SECONDS
        for aside in self.path(REPLACED).glob("*-*"):
            if float(aside.name.partition("-")[0]) < oldest:
                shutil.rmtree(aside)

    def check_replace(self) -> None:
        """Raise CannotSwapError if this file system cannot `replace`."""
        one, other = (self.path(f"{STAGING}/{uuid4()}") for _ in range(2))
        for folder in (one, other):
            folder.mkdir(parents=True)
        _exchange(one, other)
        for folder in (one, other):
            folder.rmdir()

    def is_locked(self, name: str = LOCK) -> bool:
        """Whether a process owns that lock; False on a remote file system, where there is none."""
        if self.local is None or not (self.local / name).exists():
            return False
        with (self.local / name).open("rb") as lock:
            return not _try_lock(lock.fileno())

    @contextmanager
    def locked(self, name: str = LOCK, *, stop: Event | None = None) -> Iterator[None]:
        """Hold a lock, on a local file system; the kernel frees the lock of a dead owner.

        Raises AuditError when another process holds it for too long, StoppedError when `stop` is set first.
        """
        if self.local is None:
            yield
            return
        stop = stop or Event()
        with (self.local / name).open("ab") as lock:
            deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS[name]
            while not _try_lock(lock.fileno()):
                if time.monotonic() >= deadline:
                    raise AuditError(f"another ingest or compaction is running in {self.url}: run one at a time")
                if stop.wait(_LOCK_POLL_SECONDS):
                    raise StoppedError(f"stopped while waiting for {self.url}")
            if name == LOCK:
                for barrier in self.local.glob(f"*/*/{_BARRIER}*"):
                    barrier.unlink()
            yield

    def parquet_schema(self, path: str) -> str | None:
        """Spark's schema in the footer of a Parquet file, as JSON; None if Spark did not write it. Raises when the footer is damaged."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        file = hadoop.util.HadoopInputFile.fromPath(self._path(path), self._conf)
        with closing(hadoop.ParquetFileReader.open(file)) as reader:
            # Not a loop in Python over Java's map: it ends with an exception, which takes longer than all else here.
            value = reader.getFileMetaData().getKeyValueMetaData().get(_SPARK_SCHEMA)
            return None if value is None else str(value)

    def joined(self, strings: Any) -> str:
        """Java's array of strings, a line each: a single call, where Python's loop over it would make one for each."""
        return str(self._jvm.org.apache.hadoop.util.StringUtils.join("\n", strings))

    def damage(self, path: str) -> str | None:
        """Why a compressed file cannot be decompressed; None if it can. Raises when the file itself cannot be read."""
        file = self._path(path)
        consume = self._jvm.org.apache.commons.io.IOUtils.consume
        with closing(self._fs.open(file)) as stream:
            consume(stream)  # an error here is the disk's, not the file's
        with closing(self._fs.open(file)) as stream:
            try:
                codec = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(self._conf).getCodec(file)
                with closing(codec.createInputStream(stream)) as decompressed:
                    consume(decompressed)
            except Exception as error:  # noqa: BLE001  every error of the codec is damage
                why = defect(error)
                return str(error.java_exception.getMessage()) if hasattr(error, "java_exception") else why
        return None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


@contextmanager
def listing_here(session: SparkSession, storage: Storage) -> Iterator[None]:
    """On a local file system, have Spark look up files and folders one by one, instead of in a job with a task for each."""
    if storage.local is None:
        yield
        return
    before = session.conf.get(_PARALLEL_LISTING, None)
    session.conf.set(_PARALLEL_LISTING, 1_000_000)
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_PARALLEL_LISTING)
        else:
            session.conf.set(_PARALLEL_LISTING, before)


def _modified(top: Path, suffix: str) -> Iterator[tuple[str, datetime]]:
    """The files below a folder and when each was modified. Skips what is deleted meanwhile or not readable (`Path.rglob` raises)."""

    def unless_skipped(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | PermissionError):
            raise error

    for folder, folders, names in os.walk(top, onerror=unless_skipped):
        folders[:] = [name for name in folders if not is_of_file_system(name)]
        for file in (Path(folder, name) for name in names if not is_of_file_system(name)):
            try:
                status = file.stat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and file.as_posix().endswith(suffix):
                yield file.relative_to(top).as_posix(), datetime.fromtimestamp(status.st_mtime, UTC)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders atomically."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux only
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2 and renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return
    error = ctypes.get_errno() if renameat2 else errno.ENOSYS
    if error in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV}:
        raise CannotSwapError(
            f"cannot compact: the file system of {other.parent} cannot swap two folders at once; ext4, XFS and tmpfs can"
        )
    raise OSError(error, os.strerror(error), str(other))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
