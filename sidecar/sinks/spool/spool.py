"""The spool: records leave the journal as sealed segments, `<spool>/<observer>/<first>-<last>.jsonl.gz`, which the audit ingests.

A segment never changes. Segments follow each other without a gap, by the journal's numbers. Records stay in the journal until their
segment is stored.
"""

import gzip
import io
import logging
import threading
import time
from typing import Final

from msgspec import Struct

from sidecar.journal import JournalError, JournalReader, continue_behind
from sidecar.runtime.threads import ServiceThread, poll_pause
from sidecar.sinks.spool.chain import prefix_after, read_chain
from sidecar.sinks.spool.segment_store import SegmentStore

log = logging.getLogger("sidecar.spool")

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
        self._sealed = 0
        self._pending: PendingSegment | None = None
        self._waiting_since: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = ServiceThread(self._run, "spool")

    @property
    def sealed(self) -> int:
        """The number of the last record in a segment. 0 until it is known."""
        return self._sealed

    @property
    def is_up(self) -> bool:
        """Whether the last attempt to seal succeeded."""
        return not self._problem

    def start(self) -> None:
        """Start in the background."""
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
                    "cannot write segments to %s: %s; records stay in the journal, retrying",
                    self._store.name,
                    error,
                )
            self._problem = str(error)
            return False
        if self._problem:
            log.warning("writing segments to %s again", self._store.name)
        self._problem = ""
        return True

    def _seal_one(self, *, everything: bool) -> bool:
        """Seal one segment if it is time; whether there may be more to seal."""
        if not self._sealed:
            self._sealed = self._find_end()
        # A failed put may have stored the segment: retry the same one, or records would be stored twice in different segments.
        self._pending = self._pending or self._next(everything=everything)
        if self._pending is None:
            return False
        self._store.put(self._pending.name, self._pending.content)
        self._sealed = self._pending.last
        self._pending = None
        return True

    def _next(self, *, everything: bool) -> PendingSegment | None:
        """The segment that is due, if any."""
        records = self._journal.records(self._sealed, self._roll_records)
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
        return PendingSegment(f"{prefix_after(self._sealed)}-{last:016d}.jsonl.gz", _packed(records), last)

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
