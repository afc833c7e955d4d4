"""Segments in a folder of this machine, which others may be able to write to as well."""

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

log = logging.getLogger("sidecar.spool")

_UNFINISHED: Final = re.compile(r"\.\d{16}-\d{16}\.jsonl\.gz(\.[0-9a-f]{16})?\.tmp")
_READABLE: Final = 0o644
"""Whoever ingests segments may be another user. The umask may take more away."""


class Folder:
    """A segment is written aside, synced, renamed and its folder synced: it is whole from the moment that it can be seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Made when it is needed."""

    @property
    def name(self) -> str:
        """What to call it, to people."""
        return str(self.path)

    def recover(self, _first: str) -> list[str]:
        """The names of the files that are there, once what a crash left unfinished is gone. Raises OSError."""
        if not self.path.is_dir():
            return []
        found = []
        with os.scandir(self.path) as entries:
            for entry in entries:
                if _UNFINISHED.fullmatch(entry.name):
                    with suppress(OSError):  # a folder, or somebody else's: it is in nobody's way
                        Path(entry.path).unlink()
                elif entry.is_file(follow_symlinks=False):
                    found.append(entry.name)
        return found

    def read(self, name: str) -> bytes:
        """A segment as it was stored. Raises OSError."""
        descriptor = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def put(self, name: str, content: bytes) -> None:
        """Store a segment; what else has its name is renamed, never overwritten. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        # Never through a link that somebody has put there, and under a name that nobody can have guessed.
        aside = self.path / f".{name}.{token_hex(8)}.tmp"
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _READABLE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            self._make_room(name, content)
            aside.rename(self.path / name)
        except OSError:
            with suppress(OSError):
                aside.unlink()
            raise
        _sync(self.path)

    def _make_room(self, name: str, content: bytes) -> None:
        target = self.path / name
        if not os.path.lexists(target):
            return
        with suppress(OSError):
            if self.read(name) == content:
                return  # it is stored already: a crash came before the journal knew
        away = target.with_name(f"{name}.not-ours-{token_hex(4)}")
        target.rename(away)
        log.warning("%s exists but is not a segment of this observer: renamed to %s", target, away.name)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
