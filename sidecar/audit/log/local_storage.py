"""An audit log on a local file system (also NFS).

It provides a lock that ends with its owner, atomic renames, and data that is on disk before it is visible.
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
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Final
from uuid import uuid4

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, CannotSwapError, StoppedError
from sidecar.audit.log.storage import INGESTING, LOCK, REPLACED, STAGING, Storage, is_of_file_system

_REPLACED_SECONDS: Final = 3600.0
"""The time that a reader has between opening a folder and listing it."""
_BARRIER: Final = "compacting-"
_BARRIER_SECONDS: Final = 1.0
"""The time that a reader has between listing a folder and looking up the listed files: usually it takes microseconds."""
_LOCK_TIMEOUT_SECONDS: Final = {LOCK: 600.0, INGESTING: 5.0}
"""A batch or a few dates take minutes; another ingest ends soon only if it was killed."""
_LOCK_POLL_SECONDS: Final = 0.1


class LocalStorage(Storage):
    """A folder on a local file system."""

    local: Path

    def __init__(self, spark: SparkSession, url: str) -> None:
        super().__init__(spark, url)
        self.local = Path(self._root.toUri().getPath())

    @cached_property
    def staging(self) -> "LocalStorage":
        return LocalStorage(self._spark, self.full_url(STAGING))

    def modified(self, path: str, suffix: str) -> dict[str, datetime]:
        return dict(_modified(self.local / path, suffix))

    def sizes(self, path: str) -> dict[str, int]:
        entries = [entry for entry in (self.local / path).iterdir() if not is_of_file_system(entry.name)]
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def size(self, path: str) -> int:
        return (self.local / path).stat().st_size

    def chunks(self, path: str, size: int) -> Iterator[bytes]:
        # Opening a pipe would block forever.
        if not stat.S_ISREG((self.local / path).stat().st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with (self.local / path).open("rb") as file:
            yield from iter(partial(file.read, size), b"")

    def write(self, path: str, content: bytes) -> None:
        (self.local / path).write_bytes(content)

    def publish(self, files: Mapping[str, str]) -> None:
        for staged, target in files.items():
            source = self.staging.local / staged
            self.make_folder(target.rpartition("/")[0])
            _sync(source)
            source.rename(self.local / target)
            for folder in (self.local / target).relative_to(self.local).parents:
                _sync(self.local / folder)

    def replace(self, files: Mapping[str, str]) -> None:
        """Atomically replace the content of each folder by one finished file in `staging`, also after a power failure.

        For two seconds around the swap, reads of the folders fail: each contains a barrier, which is not a Parquet file. A reader that
        listed a folder before the barrier has a second to open the old files; one that listed the barrier finds it after the swap too, and
        fails instead of finding nothing. The next owner of the lock removes leftover barriers. The previous content is kept until
        `delete_replaced`. Raises CannotSwapError if the file system cannot swap folders.
        """
        barrier = f"{_BARRIER}{uuid4()}.parquet"
        prepared = {self.local / folder: self._prepared(folder, file, barrier) for folder, file in files.items()}
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
        aside = self.local / REPLACED / f"{time.time():.0f}-{uuid4()}"
        aside.mkdir(parents=True)
        shutil.copymode(self.local / folder, aside)
        finished = (self.staging.local / file).rename(aside / Path(file).name)
        (aside / barrier).write_text("This date is being compacted: read it again in a moment.\n", encoding="ascii")
        for path in (finished, aside, aside.parent, self.local):
            _sync(path)
        return aside

    def drop(self, folder: str) -> None:
        aside = self.local / REPLACED / f"0-{uuid4()}"
        aside.parent.mkdir(exist_ok=True)
        (self.local / folder).rename(aside)
        _sync((self.local / folder).parent)
        shutil.rmtree(aside)

    def delete_replaced(self) -> None:
        """Delete folders that were replaced more than an hour ago."""
        oldest = time.time() - _REPLACED_SECONDS
        for aside in (self.local / REPLACED).glob("*-*"):
            if float(aside.name.partition("-")[0]) < oldest:
                shutil.rmtree(aside)

    def check_replace(self) -> None:
        """Raise CannotSwapError if this file system cannot `replace`."""
        first, second = (self.staging.local / str(uuid4()) for _ in range(2))
        for folder in (first, second):
            folder.mkdir(parents=True)
        _exchange(first, second)
        for folder in (first, second):
            folder.rmdir()

    def is_locked(self, name: str = LOCK) -> bool:
        if not (self.local / name).exists():
            return False
        with (self.local / name).open("rb") as lock:
            return not _try_lock(lock.fileno())

    @contextmanager
    def locked(self, name: str = LOCK, *, stop: Event | None = None) -> Iterator[None]:
        """Hold a lock, which the kernel frees if this process dies."""
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


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders atomically."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux only
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2 and renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0:
        return
    error = ctypes.get_errno() if renameat2 else errno.ENOSYS
    if error in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV}:
        raise CannotSwapError(
            f"cannot compact: the file system of {second.parent} cannot swap two folders at once; ext4, XFS and tmpfs can"
        )
    raise OSError(error, os.strerror(error), str(second))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
