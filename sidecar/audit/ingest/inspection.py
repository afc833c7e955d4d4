"""Inspects each segment before Spark reads it, in bounded memory whatever the segment contains.

Spark holds a whole line in memory, and a single unreadable segment makes a batch fail. Since each segment is unpacked here, the lines of
small ones are packed into few files on the way (`packing`): a file costs Spark milliseconds, however small it is.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sidecar.audit.audit_error import defect, is_unreadable_file
from sidecar.audit.log.storage import Storage

_T = TypeVar("_T")
MOST_PACKED_BYTES: Final = 1 << 20
"""The most text of a segment that is packed. Spark reads larger ones as they are."""
_FULL_BYTES: Final = 1 << 20
"""Compressed: a file of so many is complete."""
GZIP: Final = 31
"""zlib's code of the format."""
_FASTEST: Final = 1
MOST_LINE_BYTES: Final = 4 << 20
"""The maximum size of a parsed line. The sidecar's own lines are a thousandth of that."""
SHOWN_CHARACTERS: Final = 8192
"""The maximum size of a line in the quarantine."""
_CHUNK: Final = 1 << 20
_MOST_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 100
"""The maximum ratio of a segment's unpacked size to its size: what the sidecar writes has 5 to 30."""
_OVERSIZED: Final = f"more than {_MOST_BYTES >> 20} MiB, and more than {_MOST_RATIO} times its own size"
_AT_ONCE: Final = 128
"""Segments whose lines are held until they are packed."""


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


class LongLine(Struct, frozen=True):
    """A line that is too long to be parsed."""

    text: str
    """The beginning of the line, for the quarantine."""
    size: int
    """Bytes."""
    hash: str
    """SHA-256 of file and line: the quarantine's id of a line."""


class Inspection(Struct, frozen=True):
    """The problems of a segment."""

    problem: str = ""
    """The reason for the quarantine: unreadable, oversized or damaged."""
    readable: bool = True
    """Whether the undamaged part can be read; False also for an oversized segment."""
    long_lines: tuple[LongLine, ...] = ()  # not a list: a segment without problems is equal to `Inspection()`


def inspect(
    spool: Storage, urls: Sequence[str], packing: Packing | None = None, *, with_hadoop: bool = False
) -> dict[str, Inspection]:
    """The segments that have problems, by URL; small ones that have none are packed, in this order.

    `with_hadoop`: includes problems that only Hadoop's decompression finds.
    """

    def inspect_one(url: str) -> tuple[Inspection, bytes | None]:
        file = spool.relative(url)
        lines = _Lines(file, kept=packing is not None)
        inspection = _inspected(spool, file, lines)
        if with_hadoop and not inspection.problem:
            inspection = _with_hadoop(spool, file, inspection)
        return inspection, lines.text if inspection == Inspection() else None

    problems = dict[str, Inspection]()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, len(urls), _AT_ONCE):
            some = urls[start : start + _AT_ONCE]
            for url, (inspection, text) in zip(some, pool.map(inspect_one, some), strict=True):
                if inspection != Inspection():
                    problems[url] = inspection
                elif packing is not None and text is not None:
                    packing.add(url, text)
    return problems


def read_inspected(
    spool: Storage, urls: Sequence[str], use: Callable[[Mapping[str, Inspection]], _T], packing: Packing | None = None
) -> _T:
    """What `use`, which has Spark read the segments, returns for the problems of segments that were inspected.

    Called again if a file was unreadable, and Hadoop's decompression finds more problems in what is not packed.
    """
    inspections = inspect(spool, urls, packing)
    try:
        return use(inspections)
    except Exception as error:
        if not is_unreadable_file(error):
            raise
        read = [url for url in urls if not packing or url not in packing.packed]
        if (again := inspect(spool, read, with_hadoop=True)) == inspections:
            raise
        return use(again)


def _inspected(spool: Storage, file: str, lines: "_Lines") -> Inspection:
    try:
        problem = _unpack(spool, file, lines)
    except _OversizedError:
        return Inspection(f"oversized segment: {_OVERSIZED}", readable=False)
    except Exception as error:  # noqa: BLE001  every error is the reason
        why = defect(error)
        text = error.strerror if isinstance(error, OSError) and error.strerror else why
        return Inspection(f"unreadable segment: {text}", readable=False)
    return Inspection(f"damaged segment: {problem}" if problem else "", long_lines=tuple(lines.long))


def _with_hadoop(spool: Storage, file: str, inspection: Inspection) -> Inspection:
    """`inspection`, with the damage that Hadoop finds when it unpacks the segment for Spark."""
    try:
        damage = spool.damage(file)
    except Exception as error:  # noqa: BLE001  every error is the reason
        return Inspection(f"unreadable segment: {defect(error)}", readable=False)
    return inspection if damage is None else replace(inspection, problem=f"damaged segment: {damage}")


def _unpack(spool: Storage, file: str, lines: "_Lines") -> str | None:
    """Unpack a segment into `lines`; returns its damage, if any. Raises _OversizedError, or what reading the file raises."""
    packed = spool.size(file)
    most = max(_MOST_BYTES, _MOST_RATIO * packed)
    if not packed:
        return "the file is empty"
    try:
        for unpacked in _unpacked(spool.chunks(file, _CHUNK)):
            lines.add(unpacked)
            if lines.size > most:
                raise _OversizedError
    except zlib.error as error:
        return str(error)
    except EOFError:
        return "it ends too early"
    lines.end()
    return None


def _unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The unpacked content of one or several concatenated gzip files. Raises zlib.error and EOFError."""
    member = None
    for chunk in chunks:
        packed = chunk
        while packed or (member and not member.eof):
            member = member or zlib.decompressobj(GZIP)
            unpacked = member.decompress(packed, _CHUNK)
            yield unpacked
            packed = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member = None
            elif not packed and len(unpacked) < _CHUNK:
                break  # the chunk is complete
    if member is not None:
        raise EOFError


class _OversizedError(Exception):
    """The file unpacks to more than the limit."""


class _Lines:
    """Finds the lines that are too long in a file that is added in chunks, and keeps the text of a small file."""

    def __init__(self, file: str, *, kept: bool) -> None:
        self._file = file
        self._kept: list[bytes] | None = [] if kept else None
        self._line: list[bytes] = []
        """The chunks of the current line, up to the limit."""
        self._length = 0
        self._hash: Any = None
        """The hash of the current line, if it is too long."""
        self.size = 0
        self.long: list[LongLine] = []

    def add(self, text: bytes) -> None:
        """Add a chunk, which must be shorter than the limit: so a line that begins and ends in it is not too long."""
        self.size += len(text)
        if self._kept is not None:
            self._kept.append(text)
            if self.size > MOST_PACKED_BYTES:
                self._kept = None
        first, last = text.find(b"\n"), text.rfind(b"\n")
        if first < 0:
            self._extend(text)
            return
        self._extend(text[:first])
        self.end()
        self._extend(text[last + 1 :])

    @property
    def text(self) -> bytes | None:
        """All of the file; None if it is not small."""
        return None if self._kept is None else b"".join(self._kept)

    def end(self) -> None:
        """End the current line."""
        if self._hash is not None:
            excerpt = b"".join(self._line)[: 4 * SHOWN_CHARACTERS].decode(errors="replace")[:SHOWN_CHARACTERS]
            self.long.append(LongLine(excerpt, self._length, self._hash.hexdigest()))
        self._line, self._length, self._hash = [], 0, None

    def _extend(self, text: bytes) -> None:
        self._length += len(text)
        if self._hash is None:
            self._line.append(text)
            if self._length > MOST_LINE_BYTES:
                self._hash = sha256(self._file.encode() + b"\n" + b"".join(self._line))
        else:
            self._hash.update(text)
