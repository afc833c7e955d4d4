"""The file system that holds the audit log: whatever Hadoop can reach, with stronger promises where it is a local one.

A local file system (also NFS) gives a lock that dies with its owner, renames that happen at once or not at all, and data that is on disk
before it is visible. Elsewhere there is no lock: whoever schedules the ingest sees to it that one runs at a time. HDFS renames at once; an
object store copies, and shows an object only when it is complete.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sidecar.audit.errors import AuditError

LOCK: Final = "_lock"
_LOCK_PATIENCE_SECONDS: Final = 5.0
"""A predecessor that was killed may need a moment to be gone."""
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

    def names(self) -> list[str]:
        """What stands directly in the folder."""
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._root))

    def files(self, path: str, suffix: str) -> list[str]:
        """The files below `path` whose names end in `suffix`, relative to `path`."""
        below = self._path(path)
        found, listing = [], self._fs.listFiles(below, True)
        while listing.hasNext():
            found.append(below.toUri().relativize(listing.next().getPath().toUri()).getPath())
        return sorted(file for file in found if file.endswith(suffix))

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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who writes, on a local file system; the lock ends with its owner, however that ends.

        Raises AuditError when another one has it.
        """
        if self.local is None:
            yield
            return
        with (self.local / LOCK).open("ab") as lock:
            deadline = time.monotonic() + _LOCK_PATIENCE_SECONDS
            while not _taken(lock.fileno()):
                if time.monotonic() >= deadline:
                    raise AuditError(
                        f"another ingest is writing to {self.url}: run one at a time, this one changed nothing"
                    )
                time.sleep(_LOCK_POLL_SECONDS)
            yield

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


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
