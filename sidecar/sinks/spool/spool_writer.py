"""The spool: records leave the journal as sealed segments, `<spool>/<observer>/<first>-<last>.jsonl.gz`, which the audit ingests.

A segment never changes. Segments follow each other without a gap, by the journal's numbers. Records stay in the journal until their
segment is stored.
"""

import errno
import gzip
import io
import logging
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import DecodeError, Struct, json

from sidecar.journal import JournalError, JournalReader, continue_behind
from sidecar.runtime.threads import ServiceThread, poll_pause
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

    A name alone proves nothing: others may write to the folder, and a journal may have gone back in time. Numbers above `latest` are not
    in use yet. Raises OSError.
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


_JOIN_SECONDS: Final = 10.0


class PendingSegment(Struct, frozen=True):
    """A segment to store: its name, gzipped JSON lines determined by the records alone, and the last record's number."""

    name: str
    content: bytes
    last: int


class Spool:
    """Seals a segment when `roll_records` wait, when the oldest has waited for `roll_interval` seconds, and at the end."""

    def __init__(
        self, store: SegmentStore, journal: JournalReader, *, observer: str, roll_interval: float, roll_records: int
    ) -> None:
        self._store = store
        self._journal = journal
        self._observer = observer
        self._roll_interval = roll_interval
        self._roll_records = roll_records
        self.sealed = 0
        """The number of the last record in a segment. 0 until it is known."""
        self._pending: PendingSegment | None = None
        self._waiting_since: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = ServiceThread(self._run, "spool")

    @property
    def is_up(self) -> bool:
        """True if the last attempt to seal succeeded."""
        return not self._problem

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Seal the remaining records and end, within 10 s. What is not sealed by then is sealed after the next start.

        May be called twice, and before `start`.
        """
        self._stopping.set()
        self._thread.join(_JOIN_SECONDS)
        self._given_up.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(poll_pause(failures)):
            failures = 0 if self._attempt(everything=False) else failures + 1
        self._attempt(everything=True)
        self._journal.close()

    def _attempt(self, *, everything: bool) -> bool:
        try:
            while not self._given_up.is_set() and self._seal_one(everything=everything):
                pass
        except (OSError, JournalError) as error:
            if str(error) != self._problem:
                log.error(
                    "cannot write segments to %s: %s; records stay in the journal, retrying", self._store.name, error
                )
            self._problem = str(error)
            return False
        if self._problem:
            log.warning("writing segments to %s again", self._store.name)
        self._problem = ""
        return True

    def _seal_one(self, *, everything: bool) -> bool:
        """Seal one segment if it is time; whether there may be more to seal."""
        if not self.sealed:
            self.sealed = self._find_end()
        # A failed put may have stored the segment: retry the same one, or records would be stored twice in different segments.
        self._pending = self._pending or self._next(everything=everything)
        if self._pending is None:
            return False
        self._store.put(self._pending.name, self._pending.content)
        self.sealed = self._pending.last
        self._pending = None
        return True

    def _next(self, *, everything: bool) -> PendingSegment | None:
        """The segment that is due, if any."""
        records = self._journal.records(self.sealed, self._roll_records)
        if not records:
            self._waiting_since = None
            return None
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if not (everything or len(records) >= self._roll_records or now - self._waiting_since >= self._roll_interval):
            return None
        self._waiting_since = None
        last = records[-1][0]
        # The name starts at the number after the last segment: the chain has no gap even where the numbers have.
        return PendingSegment(f"{prefix_after(self.sealed)}-{last:016d}.jsonl.gz", _packed(records), last)

    def _find_end(self) -> int:
        """The end of the chain of segments. The journal may not know all of them, or may have gone back in time.

        In that case the numbering continues after the segments, and records that they do not hold are renumbered.
        """
        sealed, newest = self._journal.sealed(), self._journal.newest()
        # `newest` is lower if the journal went back and an earlier version did not notice: any of its records may be missing.
        after = sealed if sealed <= newest else 0
        doubtful = self._journal.numbers(after)
        latest = max(newest, sealed, time.time_ns() // 1000)
        chain = read_chain(self._store, self._observer, sealed, doubtful, latest)
        if newest < chain.newest or any(n <= chain.end and n not in chain.held for n in doubtful.values()):
            moved = continue_behind(self._journal.folder, after, chain.newest, chain.held)
            log.warning(
                "the journal went back in time: its last record was number %d, but segments in %s reach %d. Continuing after "
                "them; %d records that are in no segment got new numbers",
                newest,
                self._store.name,
                chain.newest,
                moved,
            )
        return chain.end


def _packed(records: list[tuple[int, bytes]]) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as file:
        file.write(b"".join(line + b"\n" for _, line in records))
    return packed.getvalue()
