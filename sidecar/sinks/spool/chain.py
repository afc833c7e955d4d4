"""The segments that are there already: which of them are ours, how far they reach, and which records they hold.

A name alone proves nothing: the folder may be one that others write to, and a journal may have gone back in time.
"""

import gzip
import io
import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError, Struct, json

from sidecar.sinks.spool.place import SpoolPlace

log = logging.getLogger("sidecar.spool")

_SEGMENT: Final = re.compile(r"(\d{16})-(\d{16})\.jsonl\.gz")
_LONGEST_LINE: Final = 16 << 20


class Chain(Struct, frozen=True):
    """What the segments say."""

    end: int
    """Up to which number they follow each other without a gap, from where the journal knows them to be."""
    newest: int
    """The highest number in any of them."""
    held: frozenset[int]
    """The journal's numbers of those records asked for that they hold."""


class _Head(Struct):
    id: str
    observer: str


class _NotOursError(Exception):
    """Why a file with a segment's name is none of this observer's."""


class _Named(Struct, frozen=True, order=True):
    first: int
    last: int
    name: str


def start_of(sealed: int) -> str:
    """How the name of the segment begins that follows `sealed`."""
    return f"{sealed + 1:016d}"


def read_chain(place: SpoolPlace, observer: str, sealed: int, wanted: Mapping[str, int], latest: int) -> Chain:
    """Read the segments in `place` that hold more than `sealed`, or any of the `wanted` records (number by id).

    Numbers above `latest` were not given yet. Raises OSError.
    """
    lowest = min([sealed + 1, *wanted.values()])
    found = {}
    held = set[int]()
    for segment in sorted(_named(place.recover(start_of(lowest - 1)))):
        if segment.last < lowest:
            continue
        try:
            if segment.last > latest:
                raise _NotOursError("numbers that high are not in use yet")
            ids = _ids(place, segment, observer, wanted)
        except _NotOursError as error:
            log.warning("ignoring %s in %s: not a segment of this observer: %s", segment.name, place.name, error)
            continue
        held |= {wanted[each] for each in ids if each in wanted}
        found[segment.first] = segment.last  # of two that begin together, the longer one
    end = sealed
    while end + 1 in found:
        end = found[end + 1]
    return Chain(end, max([end, *found.values()]), frozenset(held))


def _named(names: list[str]) -> Iterator[_Named]:
    for name in names:
        match = _SEGMENT.fullmatch(name)
        if match and int(match[1]) <= int(match[2]):
            yield _Named(int(match[1]), int(match[2]), name)


def _ids(place: SpoolPlace, segment: _Named, observer: str, wanted: Mapping[str, int]) -> list[str]:
    """The ids of its records: ours, or in our journal, if it was another's name for us. Raises OSError and _NotOursError."""
    ids = []
    span = segment.last - segment.first + 1
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(place.read(segment.name))) as file:
            while line := file.readline(_LONGEST_LINE):
                head = json.decode(line, type=_Head)
                if head.observer != observer and head.id not in wanted:
                    raise _NotOursError(f"it holds a record of {head.observer[:100]!r}")
                ids.append(head.id)
                if len(ids) > span:
                    raise _NotOursError("it holds more records than its name says")
    except PermissionError as error:
        raise _NotOursError("it belongs to somebody else") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, DecodeError, UnicodeDecodeError) as error:
        raise _NotOursError(f"it cannot be read: {error}") from error
    if not ids:
        raise _NotOursError("it is empty")
    return ids
