"""Each segment is looked through before Spark reads it: in little memory, whatever it holds.

Spark reads a line as a whole, and a batch of segments with one that it cannot read not at all.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.audit.audit_error import reason
from sidecar.audit.storage import Storage

MOST_LINE_BYTES: Final = 4 << 20
"""Of a line that is parsed. The sidecar's own are a thousandth of that."""
SHOWN_CHARACTERS: Final = 8192
"""Of a line in the quarantine."""
_PIECE: Final = 1 << 20
_MOST_BYTES: Final = 64 << 20
_MOST_TIMES: Final = 100
"""A segment may be so many times its own size when it is unpacked: what the sidecar writes is 5 to 30 times."""
_OVERSIZED: Final = f"more than {_MOST_BYTES >> 20} MiB, and more than {_MOST_TIMES} times its own size"
_GZIP: Final = 31
"""As zlib calls that format."""


class LongLine(Struct, frozen=True):
    """A line that is too long to be parsed."""

    text: str
    """As much of it as the quarantine keeps."""
    size: int
    """Bytes."""
    hash: str
    """SHA-256 of file and line, as of every line in the quarantine."""


class Inspection(Struct, frozen=True):
    """What is wrong with a segment."""

    problem: str = ""
    """As the quarantine shows it: unreadable, oversized or damaged."""
    readable: bool = True
    """Whether the rest of it can be had: not, if nobody knows what it holds or it is too large."""
    long_lines: Sequence[LongLine] = ()


def inspect(spool: Storage, urls: Sequence[str], *, with_hadoop: bool = False) -> dict[str, Inspection]:
    """Those of the segments with which something is wrong, by their URLs. With `with_hadoop`, also what only Hadoop finds wrong."""

    def look(url: str) -> Inspection:
        found = _inspected(spool, url)
        return _with_hadoop(spool, url, found) if with_hadoop and not found.problem else found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looked = zip(urls, pool.map(look, urls), strict=True)
        return {url: found for url, found in looked if found != Inspection()}


def _inspected(spool: Storage, url: str) -> Inspection:
    file = spool.relative(url)
    lines = _Lines(file)
    try:
        problem = _unpack(spool, file, lines)
    except _OversizedError:
        return Inspection(f"oversized segment: {_OVERSIZED}", readable=False)
    except Exception as error:  # noqa: BLE001  whatever it is, it is why
        text = error.strerror if isinstance(error, OSError) and error.strerror else reason(error)
        return Inspection(f"unreadable segment: {text}", readable=False)
    return Inspection(f"damaged segment: {problem}" if problem else "", long_lines=lines.long)


def _with_hadoop(spool: Storage, url: str, found: Inspection) -> Inspection:
    """The same with what is wrong to Hadoop, which unpacks the segment for Spark."""
    try:
        damage = spool.damage(spool.relative(url))
    except Exception as error:  # noqa: BLE001  whatever it is, it is why
        return Inspection(f"unreadable segment: {reason(error)}", readable=False)
    return found if damage is None else replace(found, problem=f"damaged segment: {damage}")


def _unpack(spool: Storage, file: str, lines: "_Lines") -> str | None:
    """Unpack a segment into `lines`; what is wrong with it. Raises _OversizedError, or what reading the file raises."""
    packed = spool.size(file)
    most = max(_MOST_BYTES, _MOST_TIMES * packed)
    if not packed:
        return "the file is empty"
    try:
        for unpacked in _unpacked(spool.chunks(file, _PIECE)):
            lines.add(unpacked)
            if lines.size > most:
                raise _OversizedError
    except zlib.error as error:
        return str(error)
    except EOFError:
        return "it ends too early"
    lines.end()
    return None


def _unpacked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """What one gzip file, or several behind each other, hold. Raises zlib.error and EOFError."""
    member = None
    for piece in pieces:
        packed = piece
        while packed or (member and not member.eof):
            member = member or zlib.decompressobj(_GZIP)
            unpacked = member.decompress(packed, _PIECE)
            yield unpacked
            packed = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                member = None
            elif not packed and len(unpacked) < _PIECE:
                break  # all that this piece has
    if member is not None:
        raise EOFError


class _OversizedError(Exception):
    """A file that unpacks to more than anybody wants to read."""


class _Lines:
    """Finds the lines that are too long, piece by piece."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._begun: list[bytes] = []
        """The line that has begun, as far as it may be parsed."""
        self._length = 0
        self._hash: Any = None
        """Of a line that is too long already."""
        self.size = 0
        self.long: list[LongLine] = []

    def add(self, text: bytes) -> None:
        """The next piece, which is shorter than a line may be: so a line that begins and ends in it is not too long."""
        self.size += len(text)
        first, last = text.find(b"\n"), text.rfind(b"\n")
        if first < 0:
            self._extend(text)
            return
        self._extend(text[:first])
        self.end()
        self._extend(text[last + 1 :])

    def end(self) -> None:
        """The line that has begun is over."""
        if self._hash is not None:
            shown = b"".join(self._begun)[: 4 * SHOWN_CHARACTERS].decode(errors="replace")[:SHOWN_CHARACTERS]
            self.long.append(LongLine(shown, self._length, self._hash.hexdigest()))
        self._begun, self._length, self._hash = [], 0, None

    def _extend(self, text: bytes) -> None:
        self._length += len(text)
        if self._hash is None:
            self._begun.append(text)
            if self._length > MOST_LINE_BYTES:
                self._hash = sha256(self._file.encode() + b"\n" + b"".join(self._begun))
        else:
            self._hash.update(text)
