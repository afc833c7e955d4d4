"""An audit log, or a spool, on HDFS: as in an object store, with the same lock and the same order of changes.

HDFS renames atomically, and only to a name that does not exist. So a file appears with all of its content, and what was staged becomes
visible without being copied.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sidecar.audit.audit_error import reason
from sidecar.audit.log.bucket.storage import ObjectStorage
from sidecar.audit.log.bucket.writer_lock import taken_over
from sidecar.audit.log.storage import LOCK, Storage
from sidecar.object_store import Content, StoredObject, StoreError

_CHUNK: Final = 1 << 20
_ERRORS: Final = {"FileNotFoundException": FileNotFoundError, "FileAlreadyExistsException": FileExistsError}


class HdfsStore:
    """The files below a URL of HDFS. Every problem is an OSError with a text of one line. `ObjectStore` describes the methods."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        context: Any = spark.sparkContext
        self._jvm = context._jvm  # noqa: SLF001  Hadoop's FileSystem has no Python API
        path = self._jvm.org.apache.hadoop.fs.Path(url)
        self._fs = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001  the same
        self._root = self._fs.makeQualified(path)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        self._no_overwriting = context._gateway.new_array(rename, 0)  # noqa: SLF001  the same
        self.url: Final = str(self._root.toString())

    def list(self, folder: str = "") -> Iterator[StoredObject]:
        top, start = self._path(folder), len(self.url) + 1
        with _converted_errors():
            listing = self._fs.listFiles(top, True) if self._fs.isDirectory(top) else None
            while listing is not None and listing.hasNext():
                status = listing.next()
                path, size, modified = status.getPath().toString(), status.getLen(), status.getModificationTime()
                moment = datetime.fromtimestamp(modified / 1000, UTC)
                yield StoredObject(path[start:], size, f"{modified}-{size}", moment)

    def children(self, folder: str = "") -> dict[str, bool]:
        path = self._path(folder)
        with _converted_errors():
            statuses = self._fs.listStatus(path) if self._fs.isDirectory(path) else ()
            return dict(sorted((status.getPath().getName(), bool(status.isDirectory())) for status in statuses))

    def exists(self, path: str) -> bool:
        with _converted_errors():
            return bool(self._fs.exists(self._path(path)))

    def size(self, path: str) -> int:
        with _converted_errors():
            return int(self._fs.getFileStatus(self._path(path)).getLen())

    def content(self, path: str) -> Iterator[bytes]:
        with _converted_errors(), closing(self._fs.open(self._path(path))) as stream:
            yield from iter(lambda: bytes(stream.readNBytes(_CHUNK)), b"")

    def read(self, path: str) -> bytes:
        return b"".join(self.content(path))

    def create(self, path: str, content: Content) -> None:
        # A writer that is killed leaves this; nobody reads it.
        unnamed = f"{LOCK}/.{uuid4()}"
        self.put(unnamed, content)
        try:
            self.move(f"{self.url}/{unnamed}", path)
        except OSError:
            self.delete(unnamed)
            raise

    def put(self, path: str, content: Content) -> None:
        with _converted_errors(), closing(self._fs.create(self._path(path))) as stream:
            stream.write(bytes(content))

    def move(self, url: str, path: str) -> None:
        """Rename the file at a URL. Raises FileExistsError if there is a file at `path`, FileNotFoundError if there is none at the URL."""
        source, target = self._jvm.org.apache.hadoop.fs.Path(url), self._path(path)
        with _converted_errors():
            self._fs.mkdirs(target.getParent())
            self._fs.rename(source, target, self._no_overwriting)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it, if it exists. Atomic."""
        with _converted_errors():
            self._fs.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path) if path else self._root


class HdfsStorage(ObjectStorage):
    """A folder on HDFS."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._hdfs = HdfsStore(spark, url)
        super().__init__(spark, url, self._hdfs)

    def _made_staging(self) -> Storage:
        return HdfsStorage(self._spark, self._staging_url)

    def drop(self, folder: str) -> None:
        self._held.check()
        self.delete(folder)

    def _put(self, staged: str, target: str) -> None:
        self._held.check()
        try:
            self._hdfs.move(f"{self._staging_url}/{staged}", target)
        except (FileExistsError, FileNotFoundError) as error:
            # A successor has occupied the name, or deleted what was staged.
            raise taken_over(self.url) from error


@contextmanager
def _converted_errors() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        kind = _ERRORS.get(error.java_exception.getClass().getSimpleName(), StoreError)
        raise kind(reason(error)) from error
