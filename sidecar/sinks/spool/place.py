"""Where segments go: a folder on this machine, or an object store."""

import re
from pathlib import Path
from typing import Final, Protocol

from sidecar.settings import SettingsError
from sidecar.sinks.spool.folder import Folder

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


class SpoolPlace(Protocol):
    """One observer's own place. Whatever is wrong with it is an OSError, whose text is one line without any secret."""

    @property
    def name(self) -> str:
        """What to call it, to people."""

    def recover(self, first: str) -> list[str]:
        """The names of the segments that are there, at least of those not before `first`. What a crash left unfinished is removed."""

    def read(self, name: str) -> bytes:
        """A segment as it was stored. Raises OSError."""

    def put(self, name: str, content: bytes) -> None:
        """Store a segment: others see all of it or nothing, and it outlives a crash. Doing so twice is the same as once."""


def place_of(where: Path | str, observer: str) -> SpoolPlace:
    """The place of `observer` in a folder, or below the URL of a place in an object store. Connects to nothing. Raises SettingsError."""
    own = _UNSAFE.sub("_", observer).lstrip(".") or "_"
    if isinstance(where, Path):
        return Folder(where / own)
    try:
        from sidecar.sinks.spool.object_store import Objects  # noqa: PLC0415  imports obstore: 6 MiB, and an extra
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"spool.url: {where} needs one more package: pip install 'flink-ha-sidecar[spool-remote]'"
        ) from error
    try:
        return Objects(where, own)
    except OSError as error:
        raise SettingsError(f"spool.url: {where} cannot be used: {error}") from error
