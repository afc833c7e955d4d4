"""Where copies of object stores are kept on the local disk."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from sidecar.audit.audit_error import AuditError, failing_to
from sidecar.audit.spark.scratch import scratch_folder

_SCHEMES: Final = ("s3://", "gs://", "az://")
_LOCK_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1


def is_remote(url: str) -> bool:
    """Whether `url` is in an object store that is read and written through a local copy; other URLs are Hadoop's."""
    return url.startswith(_SCHEMES)


def check_url(url: str) -> None:
    """Raise AuditError if a URL of an object store may hold a secret, which is not shown, or names no bucket."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise AuditError("cannot use the URL of an object store that was given: it is not a URL") from error
    if "@" in parts.netloc or "?" in url or "#" in url:
        raise AuditError(
            f"cannot use the {parts.scheme}:// URL that was given: it must hold no user, no password, no ? and no #; "
            "credentials and options come from the environment"
        )
    if not parts.netloc:
        raise AuditError(
            f"cannot use the {parts.scheme}:// URL that was given: it names no bucket, like {parts.scheme}://bucket/prefix"
        )


class Workspace:
    """A folder for the copies, of one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, url: str) -> Path:
        """The folder for the copy of `url`."""
        folder = self._folder / sha256(url.rstrip("/").encode()).hexdigest()[:16]
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


@contextmanager
def workspace(spark: SparkSession, cache: Path | None, *urls: str | None) -> Iterator[Workspace]:
    """Where the copies of those `urls` that are in object stores go: `cache`, or a folder that is deleted in the end.

    An AuditError in the block names the URLs, not the copies. Raises AuditError if `cache` cannot be used or another process uses it.
    """
    remote = [url for url in urls if url and is_remote(url)]
    if not remote:
        yield Workspace(Path())  # nothing is copied
        return
    for url in remote:
        check_url(url)
    if not str(spark.sparkContext.master).startswith("local"):
        raise AuditError(
            f"{remote[0]} is copied to this machine, which executors on others cannot read: use a local master, or Hadoop's s3a://"
        )
    with scratch_folder() as temporary, _locked(cache or temporary) as folder:
        place = Workspace(folder)
        try:
            yield place
        except AuditError as error:
            text = str(error)
            for url in remote:
                for name in ("audit", "spool"):
                    copy = place.of(url) / name
                    text = text.replace(copy.as_uri(), url).replace(str(copy), url)
            raise type(error)(text) from error


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    with failing_to(f"use the cache {folder}"):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        lock = (folder / "lock").open("ab")
    with lock:
        deadline = time.monotonic() + _LOCK_SECONDS
        while not _try_lock(lock.fileno()):
            if time.monotonic() >= deadline:
                raise AuditError(f"another command uses the cache {folder}: name another folder with --cache")
            time.sleep(_POLL_SECONDS)
        yield folder.resolve()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
