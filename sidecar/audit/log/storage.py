"""What a spool or an audit log needs of the folder that it is in: on a local file system or in an object store."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from sidecar.audit.audit_error import AuditError, defect, reason

if TYPE_CHECKING:
    from sidecar.net.object_store import StoredObject

_PATTERN: Final = re.compile(r"([{}\[\]*?\\])")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/|$)")
"""What begins a URL, with its host and port."""
_NO_DATA: Final = frozenset(
    {
        *("lost+found", ".snapshot", ".snapshots", ".zfs", ".DS_Store", ".lustre", ".glusterfs", ".trashcan"),
        *("@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", ".@__thumb"),
        *("$RECYCLE.BIN", "System Volume Information", "aquota.user", "aquota.group", "quota.user", "quota.group"),
    }
)
_NO_DATA_PREFIXES: Final = (".nfs", ".fuse_hidden", ".Trash")
_MISSING: Final = ("ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException")
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
_PARALLEL_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
REPLACED: Final = "_replaced"
"""Files that are no longer visible."""


def is_of_file_system(name: str) -> bool:
    """Whether a file system, or the machine that it is on, makes files or folders of this name by itself, as on a fresh volume."""
    return name in _NO_DATA or name.startswith(_NO_DATA_PREFIXES)


def escape_pattern(path: str) -> str:
    """A pattern of Hadoop's that matches just this path. Spark takes each path that it reads for a pattern."""
    return _PATTERN.sub(r"\\\1", path)


def check_path(url: str) -> None:
    """Raise AuditError when Hadoop cannot read what is at this path or URL, whatever it is."""
    begin = _SCHEME.match(url)
    if ":" in url[begin.end() if begin else 0 :]:
        raise AuditError(
            f"cannot use {url}: there is a colon in its path, which Hadoop cannot read; use a folder of another name"
        )


class FilesToRead(NamedTuple):
    """What Spark has to read of a table."""

    paths: Sequence[str]
    """Files and folders, relative to the audit log."""
    hidden: frozenset[str] = frozenset()
    """The files among them that are not read: folder and name, as names alone are those of files of other dates, too."""
    partitions: frozenset[str] | None = None
    """The values in the names of the folders that are read; None: all."""


class Storage(ABC):
    """One folder, at a path or URL (`open_storage`). All paths are relative to the folder.

    What a file system makes by itself (`lost+found`) is not listed.
    """

    local: Path | None = None
    """The folder's path, if it is on a local file system."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Raises AuditError when Hadoop cannot read that path."""
        check_path(url)
        context = spark.sparkContext
        jvm: Any = context._jvm  # noqa: SLF001  Hadoop's FileSystem has no Python API
        self._spark = spark
        self._jvm = jvm
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001  the same
        # Looked up once: to find a class, the JVM looks through all jars for the packages above it.
        self._new_path = jvm.org.apache.hadoop.fs.Path
        path = self._new_path(url)
        self._fs = _file_system(url, path, self._conf)
        self._root = self._fs.makeQualified(path)
        self.url: str = self._root.toString()
        """The folder's full URL, with its scheme: the same for all spellings of one folder."""

    @property
    @abstractmethod
    def staging(self) -> "Storage":
        """The folder of files that are not visible yet. It need not exist."""

    def full_url(self, path: str) -> str:
        """The full URL of a path in this folder."""
        return f"{self.url}/{path}"

    def to_read(self, path: str) -> str:
        """The full URL of a path in this folder, for Spark's readers: they take it for a pattern."""
        return escape_pattern(self.full_url(path))

    def relative(self, url: str) -> str:
        """The path in this folder of a full URL."""
        return url.removeprefix(f"{self.url}/")

    def is_folder(self, path: str = "") -> bool:
        """Whether `path` exists and is a folder."""
        return bool(self._fs.isDirectory(self._path(path)))

    def names(self, path: str = "") -> list[str]:
        """The names in the folder `path`, sorted; none if there is no such folder."""
        if not self.is_folder(path):
            return []
        names = (str(status.getPath().getName()) for status in self._fs.listStatus(self._path(path)))
        return sorted(name for name in names if not is_of_file_system(name))

    def files(self, path: str, suffix: str) -> list[str]:
        """The files below `path` whose paths end in `suffix`, sorted, relative to `path`; none if there is no such folder."""
        return sorted(self.modified(path, suffix))

    @abstractmethod
    def modified(self, path: str, suffix: str) -> dict[str, datetime]:
        """When each of the `files` was last modified."""

    def objects(self, suffix: str) -> "Sequence[StoredObject]":
        """All files whose names end in `suffix`. Not on a local file system, where a name may be that of anything."""
        raise NotImplementedError

    @abstractmethod
    def sizes(self, path: str) -> dict[str, int]:
        """The size in bytes of each regular file in the folder `path`."""

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        """The content of a file, about `size` bytes at a time. Raises OSError."""

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        return b"".join(self.chunks(path, 1 << 20))

    def fetched(self, paths: Sequence[str]) -> AbstractContextManager["Storage"]:  # noqa: ARG002  they are there
        """These files, where all of Spark can read them soonest, by the same paths, in the block."""
        return nullcontext(self)

    @abstractmethod
    def write(self, path: str, content: bytes) -> None:
        """Write a small file, where no reader looks yet."""

    def make_folder(self, path: str = "") -> None:
        """Create the folder `path` and its parents."""
        if not self._fs.mkdirs(self._path(path)):
            raise OSError(f"{self.full_url(path)} cannot be created")

    def delete(self, path: str) -> None:
        """Delete `path` and everything below it, if it exists."""
        self._fs.delete(self._path(path), True)

    def clear(self, prefix: str = "") -> None:
        """Delete everything in this folder whose name begins with `prefix`."""
        for name in self.names():
            if name.startswith(prefix):
                self.delete(name)

    @abstractmethod
    def publish(self, files: Mapping[str, str]) -> None:
        """Make finished files in `staging` visible, each at its target: readers see all of it or nothing, also after a power failure."""

    @abstractmethod
    def check_replace(self) -> None:
        """Raise CannotSwapError if this file system cannot `replace`."""

    @abstractmethod
    def replace(self, files: Mapping[str, str]) -> None:
        """Replace the content of each folder by one finished file in `staging`, so that no reader counts wrong. See `check_replace`."""

    @abstractmethod
    def drop(self, folder: str) -> None:
        """Delete a folder: a reader sees all of it or nothing, or fails."""

    @abstractmethod
    def delete_replaced(self) -> None:
        """Delete what was replaced, and what no reader can be reading any more."""

    @abstractmethod
    def is_locked(self, name: str = LOCK) -> bool:
        """Whether a process owns that lock."""

    @abstractmethod
    def locked(self, name: str = LOCK, *, stop: Event | None = None) -> AbstractContextManager[None]:
        """Hold a lock.

        Raises AuditError when another process holds it for too long, StoppedError when `stop` is set first.
        """

    @contextmanager
    def reading(self) -> Iterator["Storage"]:
        """This folder at one moment, to plan queries in the block. Raises AuditError if that cannot be had; then it can be tried again."""
        yield self

    def unfinished(self) -> list[str]:
        """What stands for a replacement of files that has not ended. See `reading`."""
        return []

    def selected(self, table: str, paths: Collection[str] | None) -> FilesToRead:
        """What Spark has to read of a table for its files or folders `paths`; None: for all."""
        return FilesToRead([table] if paths is None else [*paths])

    def is_replacing(self, table: str, rows: DataFrame) -> bool:  # noqa: ARG002  nobody can see it here
        """Whether some of what Spark has listed of a table, for these `rows`, is being replaced: then they are to be `selected` again."""
        return False

    def parquet_schema(self, path: str) -> str | None:
        """Spark's schema in the footer of a Parquet file, as JSON; None if Spark did not write it. Raises when the footer is damaged."""
        file_of, open_reader, options = self._parquet
        with closing(open_reader(file_of(self._path(path), self._conf), options)) as reader:
            # Not a loop in Python over Java's map: it ends with an exception, which takes longer than all else here.
            value = reader.getFileMetaData().getKeyValueMetaData().get(_SPARK_SCHEMA)
            return None if value is None else str(value)

    @cached_property
    def _parquet(self) -> tuple[Any, Any, Any]:
        """The functions that open a Parquet file, and how: without options, each reader parses Hadoop's XML files again."""
        parquet = self._jvm.org.apache.parquet
        options = parquet.HadoopReadOptions.builder(self._conf).build()
        return parquet.hadoop.util.HadoopInputFile.fromPath, parquet.hadoop.ParquetFileReader.open, options

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
        return self._new_path(self._root, path) if path else self._root


def _file_system(url: str, path: Any, conf: Any) -> Any:
    try:
        return path.getFileSystem(conf)
    except Exception as error:  # Py4J raises many types
        why = reason(error)
        if any(sign in why for sign in _MISSING):
            missing = "the jars with which Spark reads such URLs are not there, or not complete"
            why = f"{missing} ({why}; docs/explanation/audit.md#object-stores)"
        raise AuditError(f"cannot read {url}: {why}") from error


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
