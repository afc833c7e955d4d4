"""Packs the lines of many small segments into few files, which Spark reads in place of these: a file costs it milliseconds."""

import zlib
from pathlib import Path
from typing import BinaryIO, Final

MOST_PACKED_BYTES: Final = 1 << 20
"""The most text of a segment that is packed. Spark reads larger ones as they are."""
_FULL_BYTES: Final = 1 << 20
"""Compressed: a file of so many is complete."""
GZIP: Final = 31
"""zlib's code of the format."""
_FASTEST: Final = 1


class Packing:
    """Files in a folder on this machine, with the lines of segments in the order in which they were added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._compressor = zlib.compressobj(_FASTEST, wbits=GZIP)
        self._files: list[Path] = []
        self.packed: set[str] = set()
        """The URLs of the segments whose lines are in them."""

    def add(self, url: str, text: bytes) -> None:
        """Add all lines of a segment. Raises OSError."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files.append(self._folder / f"{len(self._files):06d}.jsonl.gz")
            self._file = self._files[-1].open("wb")
            self._compressor = zlib.compressobj(_FASTEST, wbits=GZIP)
        self._file.write(self._compressor.compress(text if text.endswith(b"\n") else text + b"\n"))
        self.packed.add(url)
        if self._file.tell() >= _FULL_BYTES:
            self._close()

    def finish(self) -> list[Path]:
        """The files, which are complete then. Raises OSError."""
        self._close()
        return self._files

    def _close(self) -> None:
        if self._file is not None:
            with self._file as file:
                file.write(self._compressor.flush())
            self._file = None
