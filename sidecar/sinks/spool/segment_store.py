"""The stores of segments: a folder on this machine, or an object store."""

import re
from pathlib import Path
from typing import Final, Protocol

from sidecar.core.errors import installing
from sidecar.settings import SettingsError
from sidecar.sinks.spool.folder import Folder

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class SegmentStore(Protocol):
    """The store of one observer's segments. Every problem is an OSError, whose text is one line without any secret."""

    @property
    def name(self) -> str:
        """The name for logs and errors."""

    def recover(self, first: str) -> list[str]:
        """The names of the stored segments, at least those from `first` on. Removes what a crash left unfinished."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """A stored segment. EFBIG: it is larger than `most_bytes`."""

    def put(self, name: str, content: bytes) -> None:
        """Store a segment: readers see all of it or nothing, and it survives a crash. Idempotent."""


def segment_store(where: Path | str, observer: str) -> SegmentStore:
    """The store of `observer` in a folder, or below a URL of an object store. Connects to nothing. Raises SettingsError."""
    own = _UNSAFE.sub("_", observer).lstrip(".") or "_"
    if isinstance(where, Path):
        return Folder(where / own)
    try:
        from sidecar.sinks.spool.object_store import ObjectStore  # noqa: PLC0415  imports obstore: 6 MiB, and an extra
    except ModuleNotFoundError as error:
        raise SettingsError(f"spool.url: {where} needs one more package: {installing('spool-remote')}") from error
    try:
        return ObjectStore(where, own)
    except OSError as error:
        raise SettingsError(f"spool.url: {where} cannot be used: {error}") from error
