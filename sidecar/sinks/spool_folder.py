"""Segments in a folder of this machine."""

import os
from pathlib import Path


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
        """The names of the files that are there, once what a crash left unfinished is gone."""
        if not self.path.is_dir():
            return []
        for leftover in self.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        return [path.name for path in self.path.iterdir()]

    def put(self, name: str, content: bytes) -> None:
        """Store a segment. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        aside = self.path / f".{name}.tmp"
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self.path / name)
        _sync(self.path)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
