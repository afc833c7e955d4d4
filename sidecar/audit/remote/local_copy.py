"""A copy of the tables of an audit log on the local disk, brought up to date before each use."""

import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from sidecar.audit.audit_error import AuditError
from sidecar.audit.log.storage import REPLACED, STAGING
from sidecar.audit.remote.contents import INTERNAL, Contents, read_contents
from sidecar.object_store import ObjectStore, StoredObject

_T = TypeVar("_T")

_log = logging.getLogger("sidecar.audit")

AT_ONCE: Final = 8
"""Requests. Each holds at most 8 MiB."""
_ATTEMPTS: Final = 20
"""A listing is outdated as soon as a writer publishes, which it does every ten seconds at most."""
_RESERVE: Final = 256 << 20
"""Bytes of the disk that are left for Spark."""
_RETRIES: Final = 8
_RETRY_FOR: Final = timedelta(minutes=1)
_INDEX: Final = "index.json"

FileState = tuple[int, int, int]
"""Size, time and inode of a file: it differs if the file was written again."""


class _Known(Struct, frozen=True, array_like=True):
    """An object that was downloaded or uploaded."""

    etag: str
    size: int


_KNOWN: Final = msgspec.json.Decoder(dict[str, _Known])


def open_store(url: str) -> ObjectStore:
    """The objects below `url`. Connects to nothing. Raises AuditError, also if a package is missing."""
    try:
        return ObjectStore(url, retries=_RETRIES, retry_for=_RETRY_FOR)
    except OSError as error:
        raise AuditError(f"{url} cannot be used: {error}") from error


class LocalCopy:
    """The tables of one audit log in `folder`, which nobody else uses."""

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._index = folder / _INDEX
        self._incoming = folder / "incoming"
        self.audit: Final = folder / "audit"
        """The folder of the copied audit log; it exists once the log does."""

    def update(self, without: Collection[str] = (), *, again: bool = False) -> Contents:
        """Make the copy equal to the log at one moment; `again` downloads also what it contains already.

        The tables in `without` may be empty or outdated in it. Raises OSError, AuditError.
        """
        for leftovers in (STAGING, REPLACED):
            shutil.rmtree(self.audit / leftovers, ignore_errors=True)
        known = {} if again else self.known()
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # it was deleted since it was listed
                contents = read_contents(self._store)
                self._download(contents.visible(without), without, known)
                # Two equal listings: at the moment between them, just these files existed. One alone may have missed a swap.
                if read_contents(self._store) == contents:
                    for name in contents.entries():
                        (self.audit / name).mkdir(parents=True, exist_ok=True)
                    return contents
        raise AuditError(f"{self._store.url} changes faster than it can be listed: run it again")

    def files(self) -> dict[str, FileState]:
        """The files of the copied tables, by path."""
        return {path: state for path, state in self._walk() if path.partition("/")[0] not in INTERNAL}

    def known(self) -> dict[str, _Known]:
        """The objects that were downloaded or uploaded, by path."""
        try:
            return _KNOWN.decode(self._index.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}

    def remember(self, uploaded: Mapping[str, str], sizes: Mapping[str, int], deleted: Iterable[str]) -> None:
        """Record what the copy has in common with the log now: ETags and sizes of `uploaded` files."""
        known = self.known()
        known.update({path: _Known(etag, sizes[path]) for path, etag in uploaded.items()})
        for path in deleted:
            known.pop(path, None)
        self._save(known)

    def _save(self, known: Mapping[str, _Known]) -> None:
        aside = self._index.with_suffix(".new")
        aside.write_bytes(msgspec.json.encode(known))
        aside.replace(self._index)

    def _walk(self) -> Iterator[tuple[str, FileState]]:
        for folder, _, names in os.walk(self.audit):
            for file in (Path(folder, name) for name in names):
                status = file.lstat()
                state = (status.st_size, status.st_mtime_ns, status.st_ino)
                yield file.relative_to(self.audit).as_posix(), state

    def _download(self, wanted: Mapping[str, StoredObject], without: Collection[str], known: dict[str, _Known]) -> None:
        present = set[str]()
        for path, (size, _, _) in self.files().items():
            found = wanted.get(path)
            if found is not None and known.get(path) == _Known(found.etag, found.size) and size == found.size:
                present.add(path)
            elif path.partition("/")[0] not in without:
                (self.audit / path).unlink()
        self._remove_empty_folders()
        missing = [found for path, found in wanted.items() if path not in present]
        if missing:

            def arrived(found: StoredObject) -> None:
                known[found.path] = _Known(found.etag, found.size)

            try:
                download(self._store, missing, self.audit, self._incoming, arrived)
            finally:
                self._save(known)

    def _remove_empty_folders(self) -> None:
        for folder, _, _ in os.walk(self.audit, topdown=False):
            if Path(folder).relative_to(self.audit).parts[:1] not in {(name,) for name in INTERNAL}:
                with suppress(OSError):  # not empty
                    Path(folder).rmdir()


def download(
    store: ObjectStore,
    objects: Collection[StoredObject],
    folder: Path,
    incoming: Path,
    arrived: Callable[[StoredObject], None] = lambda _: None,
) -> None:
    """Copy objects to `folder`, each whole or not at all, by way of `incoming`. Their paths must be safe.

    Calls `arrived` for each on some thread. Raises OSError, FileNotFoundError if one was deleted, AuditError if the disk is too small.
    """
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    size, free = sum(found.size for found in objects), shutil.disk_usage(incoming).free
    if size + _RESERVE > free:
        raise AuditError(
            f"cannot copy {store.url}: {size / 1e6:,.0f} MB have to be downloaded to {incoming.parent}, "
            f"where {free / 1e6:,.0f} MB are free: name a folder on a larger disk with --cache"
        )

    def fetch(numbered: tuple[int, StoredObject]) -> None:
        number, found = numbered
        aside, target = incoming / str(number), folder / found.path
        with aside.open("xb") as file:
            for chunk in store.chunks(found):
                file.write(chunk)
        modified = found.modified.timestamp()
        os.utime(aside, (modified, modified))  # what is old enough to expire is decided by it
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(target)
        arrived(found)

    in_parallel(fetch, [*enumerate(objects)])
    _log.info("downloaded %d objects, %.1f MB, from %s", len(objects), size / 1e6, store.url)


def in_parallel(do: Callable[[_T], object], items: Collection[_T]) -> None:
    """Call `do` with each item, on a few threads. After the first error, no further call begins; it is raised."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for _ in pool.map(do, items):
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
