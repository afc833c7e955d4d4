"""The file system that holds the audit log: whatever Hadoop can reach, with stronger promises where it is a local one.

A local file system (also NFS) gives a lock that dies with its owner, renames that happen at once or not at all, and data that is on disk
before it is visible. Elsewhere there is no lock: whoever schedules the ingest sees to it that one runs at a time. HDFS renames at once; an
object store copies, and shows an object only when it is complete.
"""

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, CannotSwapError, StoppedError

PARQUET: Final = ".parquet"
"""How the names of all files end that readers look at."""
LOCK: Final = "_lock"
"""What is locked by whoever changes something, while it does."""
INGESTING: Final = "_ingesting"
"""What an ingest locks as long as it lives, also while it waits for segments: its checkpoint and what it remembers are its own."""
STAGING: Final = "_staging"
"""What is not visible yet. Whatever a writer finds here, it deletes."""
REPLACED: Final = "_replaced"
"""What is not visible any more."""
_REPLACED_SECONDS: Final = 3600.0
"""So long a reader may take between opening a folder and listing it."""
_BARRIER: Final = "compacting-"
_BARRIER_SECONDS: Final = 1.0
"""So long a reader may take between listing a folder and looking at what it has listed: commonly it takes microseconds."""
_PATIENCE_SECONDS: Final = {LOCK: 600.0, INGESTING: 5.0}
"""A batch or a few dates are done within minutes; of ingests, only one that was killed is about to be gone."""
_LOCK_POLL_SECONDS: Final = 0.1


class Storage:
    """One folder, at a path or any URL that Hadoop takes; paths are relative to it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001  Hadoop's FileSystem has no Python API
        self._jvm = jvm
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001  the same
        given = jvm.org.apache.hadoop.fs.Path(url)
        self._fs = given.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(given)
        self.url: str = self._root.toString()
        """The folder's full URL, with its scheme: two spellings of one folder give the same."""
        uri = self._root.toUri()
        self.local: Path | None = Path(uri.getPath()) if uri.getScheme() == "file" else None
        """The same folder, where it is on a local file system."""

    def at(self, path: str) -> str:
        """The full URL of a path in this folder."""
        return str(self._path(path).toString())

    def path(self, path: str = "") -> Path:
        """A path in this folder, which is on a local file system. Raises AuditError where it is not."""
        if self.local is None:
            raise AuditError(f"{self.url} is not on a local file system")
        return self.local / path

    def below(self, url: str) -> str:
        """The path in this folder of a full URL."""
        return url.removeprefix(f"{self.url}/")

    def is_folder(self, path: str = "") -> bool:
        """Whether `path` is there and a folder."""
        try:
            return bool(self._fs.getFileStatus(self._path(path)).isDirectory())
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return False
            raise

    def names(self, path: str = "") -> list[str]:
        """What stands directly in the folder `path`."""
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path(path)))

    def entries(self, path: str = "") -> dict[str, bool]:
        """What stands directly in the folder `path`, and whether it is a folder itself."""
        return {
            status.getPath().getName(): bool(status.isDirectory()) for status in self._fs.listStatus(self._path(path))
        }

    def files(self, path: str, suffix: str) -> list[str]:
        """The files below `path` whose names end in `suffix`, relative to `path`."""
        return sorted(self.written(path, suffix))

    def written(self, path: str, suffix: str) -> dict[str, datetime]:
        """When each of the `files` was last written to."""
        if self.local:
            top = self.local / path
            return {
                file.relative_to(top).as_posix(): datetime.fromtimestamp(status.st_mtime, UTC)
                for file in _files_below(top)
                if file.as_posix().endswith(suffix) and (status := _status(file)) and stat.S_ISREG(status.st_mode)
            }
        below = self._path(path)
        found, listing = {}, self._fs.listFiles(below, True)
        while listing.hasNext():
            status = listing.next()
            file = below.toUri().relativize(status.getPath().toUri()).getPath()
            if file.endswith(suffix):
                found[file] = datetime.fromtimestamp(status.getModificationTime() / 1000, UTC)
        return found

    def size(self, path: str) -> int:
        """How many bytes a file has."""
        if self.local:
            return (self.local / path).stat().st_size
        return int(self._fs.getFileStatus(self._path(path)).getLen())

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """What a file holds, at most `size` bytes at a time. Raises OSError, elsewhere what Java raises."""
        if self.local:
            # A pipe would have to be waited for, for ever.
            if not stat.S_ISREG((self.local / path).stat().st_mode):
                raise OSError(errno.EINVAL, "it is no file")
            with (self.local / path).open("rb") as file:
                yield from iter(partial(file.read, size), b"")
            return
        stream = self._fs.open(self._path(path))
        try:
            yield from iter(lambda: bytes(stream.readNBytes(size)), b"")
        finally:
            stream.close()

    def make(self, path: str = "") -> None:
        """Make the folder `path`, and those above it."""
        if not self._fs.mkdirs(self._path(path)):
            raise OSError(f"{self.at(path)} cannot be made")

    def delete(self, path: str) -> None:
        """Remove `path` and everything below it, if it is there."""
        self._fs.delete(self._path(path), True)

    def publish(self, file: str, target: str) -> None:
        """Move a finished file to where readers see it: a reader sees all of it or nothing, also after a power failure."""
        parent = target.rpartition("/")[0]
        self.make(parent)
        if self.local:
            _sync(self.local / file)
            (self.local / file).rename(self.local / target)
            for folder in (self.local / target).relative_to(self.local).parents:
                _sync(self.local / folder)
        elif not self._fs.rename(self._path(file), self._path(target)):
            raise OSError(f"{self.at(file)} cannot be renamed to {self.at(target)}")

    def replace(self, files: Mapping[str, str]) -> None:
        """Make, for each folder, a finished file all that it holds, from one instant to the next, also after a power failure.

        For two seconds around that, reading the folders fails: a barrier stands in each, which is no Parquet file. Who has listed a folder
        without it has a second to look at the old files; who has listed it with it finds it on the other side of the swap, and fails rather
        than finding nothing. A barrier that outlives us is removed by the next who has the lock. What the folders held is kept aside until
        `forget_replaced`. On a local file system only; raises CannotSwapError where it cannot.
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
        """A new folder with a file and a barrier, on disk, that can take the place of another."""
        aside = self.path(f"{REPLACED}/{time.time():.0f}-{uuid4()}")
        aside.mkdir(parents=True)
        shutil.copymode(self.path(folder), aside)
        finished = self.path(file).rename(aside / Path(file).name)
        (aside / barrier).write_text("This date is being compacted: read it again in a moment.\n", encoding="ascii")
        for path in (finished, aside, aside.parent, self.path()):
            _sync(path)
        return aside

    def drop(self, folder: str) -> None:
        """Remove a folder and what is in it: for readers at once, where the file system renames or deletes a folder at once."""
        if self.local:
            aside = self.local / REPLACED / f"0-{uuid4()}"
            aside.parent.mkdir(exist_ok=True)
            (self.local / folder).rename(aside)
            _sync((self.local / folder).parent)
            shutil.rmtree(aside)
        else:
            self.delete(folder)

    def forget_replaced(self) -> None:
        """Delete what was replaced more than an hour ago."""
        oldest = time.time() - _REPLACED_SECONDS
        for aside in self.path(REPLACED).glob("*-*"):
            if float(aside.name.partition("-")[0]) < oldest:
                shutil.rmtree(aside)

    def check_replace(self) -> None:
        """Raises CannotSwapError when `replace` cannot work here."""
        one, other = (self.path(f"{STAGING}/{uuid4()}") for _ in range(2))
        for folder in (one, other):
            folder.mkdir(parents=True)
        _exchange(one, other)
        for folder in (one, other):
            folder.rmdir()

    def is_locked(self, name: str = LOCK) -> bool:
        """Whether somebody has that lock now, as far as that can be known."""
        if self.local is None or not (self.local / name).exists():
            return False
        with (self.local / name).open("rb") as lock:
            return not _taken(lock.fileno())

    @contextmanager
    def locked(self, name: str = LOCK, *, stop: Event | None = None) -> Iterator[None]:
        """Be the only one who writes (or ingests), on a local file system; the lock ends with its owner, however that ends.

        Raises AuditError when another one has it for too long, StoppedError when `stop` is set first.
        """
        if self.local is None:
            yield
            return
        stop = stop or Event()
        with (self.local / name).open("ab") as lock:
            deadline = time.monotonic() + _PATIENCE_SECONDS[name]
            while not _taken(lock.fileno()):
                if time.monotonic() >= deadline:
                    raise AuditError(f"another ingest or compaction is at work in {self.url}: run one at a time")
                if stop.wait(_LOCK_POLL_SECONDS):
                    raise StoppedError(f"stopped while waiting for {self.url}")
            if name == LOCK:
                for barrier in self.local.glob(f"*/*/{_BARRIER}*"):
                    barrier.unlink()
            yield

    def parquet_metadata(self, path: str) -> dict[str, str]:
        """What the footer of a Parquet file says about it, by key. Raises when the file has no sound footer."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(self._path(path), self._conf))
        try:
            return dict(reader.getFileMetaData().getKeyValueMetaData())
        finally:
            reader.close()

    def damage(self, path: str) -> str | None:
        """What is wrong with a compressed file, or None when all of it can be decompressed. Raises when it cannot be read at all."""
        file = self._path(path)
        consume = self._jvm.org.apache.commons.io.IOUtils.consume
        for decompressed in (False, True):
            stream = self._fs.open(file)
            try:
                if decompressed:
                    codec = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(self._conf).getCodec(file)
                    stream = codec.createInputStream(stream)
                consume(stream)
            except Exception as error:
                if not decompressed:
                    raise  # the disk's fault, not the file's
                return str(error.java_exception.getMessage()) if hasattr(error, "java_exception") else str(error)
            finally:
                stream.close()
        return None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


def _files_below(top: Path) -> Iterator[Path]:
    """All files below a folder. One that is removed meanwhile is none (`Path.rglob` raises), nor is what may not be looked into."""

    def unless_gone(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | PermissionError):
            raise error

    return (Path(folder, name) for folder, _, names in os.walk(top, onerror=unless_gone) for name in names)


def _status(file: Path) -> os.stat_result | None:
    """What a file is; None: it has gone, or cannot be looked at."""
    try:
        return file.stat()
    except OSError:
        return None


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders: at no instant is one of the names missing, or are both the same."""
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
