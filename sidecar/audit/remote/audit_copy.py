"""An audit log at any URL, as one that Spark can read and write: itself, or its local copy."""

import shutil
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from threading import Event
from typing import Final

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import failing_to
from sidecar.audit.log.checkpoints import CHECKPOINTS
from sidecar.audit.remote.contents import Contents, read_contents
from sidecar.audit.remote.local_copy import LocalCopy, open_store
from sidecar.audit.remote.publication import publish, recover
from sidecar.audit.remote.workspace import Workspace, is_remote
from sidecar.audit.remote.writer_lock import WriterLock, writer_lock
from sidecar.audit.spark.session import own_session
from sidecar.object_store import ObjectStore


class Readable:
    """An audit log to read."""

    def __init__(self, url: str) -> None:
        self.url: Final = url
        """Where Spark reads it."""

    def findings(self) -> list[str]:
        """What `verify` cannot find at `url`, one line each; after it, so that what is in progress has time to end. Raises AuditError."""
        return []


class _ReadableCopy(Readable):
    def __init__(self, audit: str, store: ObjectStore, copy: LocalCopy, contents: Contents) -> None:
        super().__init__(str(copy.audit))
        self._audit = audit
        self._store = store
        self._contents = contents

    def findings(self) -> list[str]:
        refused = [
            f"{name!a}: not of an audit log, and its name cannot be that of a file" for name in self._contents.refused
        ]
        if not self._contents.barriers:
            return refused
        with failing_to(f"read {self._audit}"):
            still = read_contents(self._store).barriers
        return refused + [
            f"{path}: a replacement of files that has not ended; if its writer died, the next one completes it"
            for path in sorted(self._contents.barriers.keys() & still.keys())
        ]


class Writable:
    """An audit log to write: changes of the files below `url` are visible to others after `publish`."""

    def __init__(self, url: str) -> None:
        self.url: Final = url
        """Where Spark reads and writes it."""

    def publish(self) -> None:
        """Make the changes visible. Raises AuditError."""


class _WritableCopy(Writable):
    def __init__(self, audit: str, store: ObjectStore, lock: WriterLock, copy: LocalCopy) -> None:
        super().__init__(str(copy.audit))
        self._audit = audit
        self._store = store
        self._lock = lock
        self._copy = copy
        self._published = copy.files()

    def publish(self) -> None:
        with failing_to(f"write {self._audit}"):
            self._published = publish(self._store, self._lock, self._copy, self._published)


@contextmanager
def reading(audit: str, place: Workspace, *, without: Collection[str] = (), again: bool = False) -> Iterator[Readable]:
    """The audit log at `audit`, `without` the content of some tables; `again` downloads also what the cache has. Raises AuditError."""
    if not is_remote(audit):
        yield Readable(audit)
        return
    with failing_to(f"read {audit}"):
        store = open_store(audit)
        copy = LocalCopy(store, place.of(audit))
        contents = copy.update(without, again=again)
    yield _ReadableCopy(audit, store, copy, contents)


@contextmanager
def writing(
    spark: SparkSession, audit: str, place: Workspace, *, stop: Event | None = None, resumed: bool = False
) -> Iterator[Writable]:
    """The audit log at `audit`, to be changed and published. In an object store its lock is held meanwhile.

    `resumed`: everything that was done in the copy was published, so that its checkpoints are valid. Raises AuditError.
    """
    if not is_remote(audit):
        yield Writable(audit)
        return
    with ExitStack() as held:
        with failing_to(f"write {audit}"):
            store = open_store(audit)
            lock = held.enter_context(writer_lock(store, stop))
            copy = LocalCopy(store, place.of(audit))
            recover(own_session(spark), store, lock, copy)
            if not resumed:
                shutil.rmtree(copy.audit / CHECKPOINTS, ignore_errors=True)
        yield _WritableCopy(audit, store, lock, copy)
