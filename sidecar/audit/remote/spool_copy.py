"""The segments of a spool in an object store, downloaded as they are needed."""

import gzip
import logging
import shutil
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from sidecar.audit.audit_error import failing_to
from sidecar.audit.ingest.spool import SUFFIX
from sidecar.audit.log.checkpoints import CHECKPOINTS
from sidecar.audit.remote.contents import is_safe
from sidecar.audit.remote.local_copy import download, in_parallel, open_store
from sidecar.audit.remote.workspace import Workspace
from sidecar.object_store import ObjectStore, StoredObject

_log = logging.getLogger("sidecar.audit")

_MOST_BYTES: Final = 256 << 20
"""Compressed segments on the disk at one time: about four million records."""
_SHOWN: Final = 100
_ETAGS: Final = msgspec.json.Decoder(dict[str, str])


class SpoolCopy:
    """A spool in an object store, of which a part is below `folder` at a time."""

    def __init__(self, spool: str, place: Workspace) -> None:
        self._spool = spool
        self._store = open_store(spool)
        self.folder: Final = place.of(spool) / "spool"
        """Where Spark reads the current part."""
        self._incoming = place.of(spool) / "incoming"
        self._warned = False

    def list(self) -> dict[str, StoredObject]:
        """The segments by path. Raises AuditError."""
        found, refused = dict[str, StoredObject](), list[str]()
        with failing_to(f"list {self._spool}"):
            for one in self._store.list():
                if one.path.endswith(SUFFIX) and is_safe(one.path) and not one.path.rpartition("/")[2].startswith("."):
                    found[one.path] = one
                elif one.path.endswith(SUFFIX):
                    refused.append(one.path)
        if refused and not self._warned:
            first = refused[0][:_SHOWN]
            _log.warning(
                "%s: %d segments are skipped, as their names cannot be those of files: %a",
                self._spool,
                len(refused),
                first,
            )
            self._warned = True
        return found

    def parts(self, segments: Iterable[StoredObject]) -> Iterator[dict[str, StoredObject]]:
        """Download segments, oldest first, a part at a time: in each round the folder contains just that part. Raises AuditError."""
        rest = deque(sorted(segments, key=lambda one: (one.modified, one.path)))
        while rest:
            size, part = 0, dict[str, StoredObject]()
            while rest and (not part or size + rest[0].size <= _MOST_BYTES):
                one = rest.popleft()
                size += one.size
                part[one.path] = one
            shutil.rmtree(self.folder, ignore_errors=True)
            with failing_to(f"read {self._spool}"):
                download(self._store, part.values(), self.folder, self._incoming)
            yield part
        shutil.rmtree(self.folder, ignore_errors=True)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete segments in the object store. Raises AuditError."""
        with failing_to(f"delete segments of {self._spool}"):
            in_parallel(self._store.delete, [*paths])

    def present(self) -> set[str]:
        """The segments of the current part that are still in its folder."""
        return {file.relative_to(self.folder).as_posix() for file in self.folder.rglob(f"*{SUFFIX}")}


class IngestedSegments:
    """Which segments of a spool in an object store an audit log has: only a shortcut, as repeated records are skipped anyway.

    Kept beside the checkpoints of the log; to ingest everything again, delete them.
    """

    def __init__(self, spool: str, audit: str, folder: Path | None) -> None:
        """`folder`: the audit log, if it is on a local file system."""
        self._name = f"{CHECKPOINTS}/spool-{sha256(spool.rstrip('/').encode()).hexdigest()[:16]}.json.gz"
        self._audit = audit
        self._folder = folder

    def read(self) -> dict[str, str]:
        """The ETags of the ingested segments, by path; empty if that is not known. Raises AuditError."""
        with failing_to(f"read {self._audit}"):
            try:
                content = (self._folder / self._name).read_bytes() if self._folder else self._store().read(self._name)
                return _ETAGS.decode(gzip.decompress(content))
            except (FileNotFoundError, EOFError, gzip.BadGzipFile, zlib.error, msgspec.DecodeError):
                return {}

    def write(self, etags: Mapping[str, str]) -> None:
        """Record that these segments are ingested, and no others. Raises AuditError."""
        content = gzip.compress(msgspec.json.encode(etags), mtime=0)
        with failing_to(f"write {self._audit}"):
            if self._folder is None:
                self._store().put(self._name, content)
                return
            target = self._folder / self._name
            aside = target.with_suffix(".new")
            aside.write_bytes(content)
            aside.replace(target)

    def _store(self) -> ObjectStore:
        return open_store(self._audit)
