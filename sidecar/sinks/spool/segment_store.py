"""The stores of segments: a folder on this machine, to which other users may be able to write, or an object store."""

import errno
import logging
import os
import re
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.core.errors import installing
from sidecar.runtime.folders import write_durably
from sidecar.settings import SettingsError

if TYPE_CHECKING:
    from sidecar.net.object_store import ObjectStore

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
        from sidecar.net.object_store import ObjectStore  # noqa: PLC0415  imports obstore: 6 MiB, and an extra
    except ModuleNotFoundError as error:
        raise SettingsError(f"spool.url: {where} needs one more package: {installing('spool-remote')}") from error
    try:
        return Bucket(ObjectStore(where, retries=_RETRIES, retry_for=_RETRY_FOR), own)
    except OSError as error:
        raise SettingsError(f"spool.url: {where} cannot be used: {error}") from error


log = logging.getLogger("sidecar.spool")

_UNFINISHED: Final = re.compile(r"\.\d{16}-\d{16}\.jsonl\.gz(\.[0-9a-f]{16})?\.tmp")
_READABLE: Final = 0o644
"""Segments may be ingested by another user. The umask may restrict it further."""


class Folder:
    """A segment appears whole: it is written to a temporary file, synced, renamed, and its folder synced."""

    def __init__(self, path: Path) -> None:
        """`path` is created when the first segment is stored."""
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def recover(self, _first: str) -> list[str]:
        if not self.path.is_dir():
            return []
        names = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if _UNFINISHED.fullmatch(entry.name):
                    with suppress(OSError):  # a folder, or another user's file: it does no harm
                        Path(entry.path).unlink()
                elif entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
        return names

    def read(self, name: str, most_bytes: int) -> bytes:
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(min(os.fstat(descriptor).st_size, most_bytes) + 1)  # so much memory is taken at once
        if len(content) > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
        return content

    def put(self, name: str, content: bytes) -> None:
        """A foreign file of that name is renamed, never overwritten."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_durably(self.path / name, content, _READABLE, ".tmp", partial(self._make_room, name, content))

    def _make_room(self, name: str, content: bytes) -> None:
        target = self.path / name
        if not os.path.lexists(target):
            return
        with suppress(OSError):
            if self.read(name, len(content)) == content:
                return  # already stored: a crash came before the journal recorded it
        away = target.with_name(f"{name}.not-ours-{token_hex(4)}")
        target.rename(away)
        log.warning("%s exists but is not a segment of this observer: renamed to %s", target, away.name)


_RETRIES: Final = 2
"""The retries after short interruptions. The spool retries after longer ones."""
_RETRY_FOR: Final = timedelta(seconds=10)


class Bucket:
    """A segment is one object. Objects of others are never overwritten."""

    def __init__(self, store: "ObjectStore", folder: str) -> None:
        self._store = store
        self._folder = folder

    @property
    def name(self) -> str:
        return f"{self._store.url}/{self._folder}"

    def recover(self, first: str) -> list[str]:
        objects = self._store.list(self._folder, after=f"{self._folder}/{first}")
        return [stored.path.removeprefix(f"{self._folder}/") for stored in objects]

    def read(self, name: str, most_bytes: int) -> bytes:
        return self._store.read(f"{self._folder}/{name}", most_bytes)

    def put(self, name: str, content: bytes) -> None:
        try:
            self._store.create(f"{self._folder}/{name}", content)
        except FileExistsError as error:
            raise OSError(
                f"{name} exists, is not ours, and is not overwritten: give every sidecar an observer or a spool.url of its own, "
                "or remove that object"
            ) from error
