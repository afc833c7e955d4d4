"""The segments that are already stored: which are this observer's, how far they reach, and which records they hold.

A name alone proves nothing: others may write to the folder, and a journal may have gone back in time.
"""

import errno
import gzip
import io
import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError, Struct, json

from sidecar.sinks.spool.segment_store import SegmentStore

log = logging.getLogger("sidecar.spool")

_SEGMENT: Final = re.compile(r"(\d{16})-(\d{16})\.jsonl\.gz")
_MOST_BYTES: Final = 32 << 20
"""The most bytes of a segment. Ours have a thousand records unless configured otherwise, in some 100 kB."""
_MOST_UNPACKED: Final = 1 << 30
"""The most bytes of an unpacked segment. It is read as a stream, and only the numbers of wanted records are kept."""
_LONGEST_LINE: Final = 4 << 20


class Chain(Struct, frozen=True):
    """The contents of the stored segments."""

    end: int
    """The last number reached without a gap, from the end that the journal knows."""
    newest: int
    """The highest number in any segment."""
    held: frozenset[int]
    """The journal's numbers of the `wanted` records that the segments hold."""


class _RecordHead(Struct):
    id: str
    observer: str


_HEAD: Final = json.Decoder(_RecordHead)


class _NotOursError(Exception):
    """Why a file with a segment's name is not this observer's segment."""


class _SegmentName(Struct, frozen=True, order=True):
    first: int
    last: int
    name: str


def prefix_after(sealed: int) -> str:
    """The first part of the name of the segment that follows `sealed`."""
    return f"{sealed + 1:016d}"


def read_chain(store: SegmentStore, observer: str, sealed: int, wanted: Mapping[str, int], latest: int) -> Chain:
    """Read the segments in `store` that hold more than `sealed`, or any of the `wanted` records (number by id).

    Numbers above `latest` are not in use yet. Raises OSError.
    """
    lowest = min([sealed + 1, *wanted.values()])
    segments = {}
    held = set[int]()
    for segment in sorted(_segment_names(store.recover(prefix_after(lowest - 1)))):
        if segment.last < lowest:
            continue
        try:
            if segment.last > latest:
                raise _NotOursError("numbers that high are not in use yet")
            held |= _held(store, segment, observer, wanted)
        except _NotOursError as error:
            log.warning("ignoring %s in %s: not a segment of this observer: %s", segment.name, store.name, error)
            continue
        segments[segment.first] = segment.last  # of two with the same start, the longer one
    end = sealed
    while end + 1 in segments:
        end = segments[end + 1]
    return Chain(end, max([end, *segments.values()]), frozenset(held))


def _segment_names(names: list[str]) -> Iterator[_SegmentName]:
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match and int(match[1]) <= int(match[2]):
            yield _SegmentName(int(match[1]), int(match[2]), name)


def _held(store: SegmentStore, segment: _SegmentName, observer: str, wanted: Mapping[str, int]) -> set[int]:
    """The numbers of the wanted records in it. All are of this observer, or in its journal (under an earlier name).

    Raises OSError, _NotOursError.
    """
    held = set[int]()
    count, unpacked, span = 0, 0, segment.last - segment.first + 1
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(store.read(segment.name, _MOST_BYTES))) as file:
            while line := file.readline(_LONGEST_LINE):
                head = _HEAD.decode(line)
                if head.observer != observer and head.id not in wanted:
                    raise _NotOursError(f"it holds a record of {head.observer[:100]!r}")
                if head.id in wanted:
                    held.add(wanted[head.id])
                count, unpacked = count + 1, unpacked + len(line)
                if count > span:
                    raise _NotOursError("it holds more records than its name says")
                if unpacked > _MOST_UNPACKED:
                    raise _NotOursError(f"unpacked it is larger than {_MOST_UNPACKED} bytes")
    except PermissionError as error:
        raise _NotOursError("it belongs to another user") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, DecodeError, UnicodeDecodeError) as error:
        raise _NotOursError(f"it cannot be read: {error}") from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _NotOursError(str(error.strerror)) from error
        raise
    if not count:
        raise _NotOursError("it is empty")
    return held
