"""The spool: records leave the journal as sealed segments, `<spool>/<observer>/<first>-<last>.jsonl.gz`, for the audit to take in.

A segment never changes. Segments follow each other without a gap, by the journal's numbers. Records stay in the journal until the place
that segments go to has them.
"""

import gzip
import io
import logging
import random
import threading
import time
from typing import Final

from msgspec import Struct

from sidecar.journal import JournalError, JournalReader, continue_behind
from sidecar.sinks.spool.chain import read_chain, start_of
from sidecar.sinks.spool.place import SpoolPlace
from sidecar.threads import ServiceThread

log = logging.getLogger("sidecar.spool")

_POLL_SECONDS: Final = 1.0
_MOST_DOUBLINGS: Final = 6
"""The longest pause after a failure is about a minute."""
_JOIN_SECONDS: Final = 10.0


class Segment(Struct, frozen=True):
    """What is to be stored: a name, gzipped JSON lines that depend on the records alone, and the last record's number."""

    name: str
    content: bytes
    last: int


class Spool:
    """Seals a segment when `roll_records` wait, or the oldest has waited for `roll_interval` seconds, and once more at the end."""

    def __init__(
        self, place: SpoolPlace, journal: JournalReader, *, observer: str, roll_interval: float, roll_records: int
    ) -> None:
        self._place = place
        self._journal = journal
        self._observer = observer
        self._roll_interval = roll_interval
        self._roll_records = roll_records
        self._sealed = 0
        self._under_way: Segment | None = None
        self._waiting_since: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._given_up = threading.Event()
        self._thread = ServiceThread(self._run, "spool")

    @property
    def sealed(self) -> int:
        """Up to which record of the journal the segments reach. 0 until that is known."""
        return self._sealed

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Seal what is left and end, within 10 s: what is not sealed by then is so after the next start.

        May be called twice, and before `start`.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        self._given_up.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(_pause(failures)):
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
                    self._place.name,
                    error,
                )
            self._problem = str(error)
            return False
        if self._problem:
            log.warning("writing segments to %s again", self._place.name)
        self._problem = ""
        return True

    def _seal_one(self, *, everything: bool) -> bool:
        """Seal one segment if it is time; whether there may be more to seal."""
        if not self._sealed:
            self._sealed = self._find_end()
        # Of a failure one does not know how far it got. The segment stays what it was, so that it is not there twice, cut differently.
        self._under_way = self._under_way or self._next(everything=everything)
        if self._under_way is None:
            return False
        self._place.put(self._under_way.name, self._under_way.content)
        self._sealed = self._under_way.last
        self._under_way = None
        return True

    def _next(self, *, everything: bool) -> Segment | None:
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
        # Named from the number that follows the last segment, so that the chain has no gap where numbers do.
        return Segment(f"{start_of(self._sealed)}-{last:016d}.jsonl.gz", _packed(records), last)

    def _find_end(self) -> int:
        """Where the chain of segments ends: some may have been sealed that the journal does not know of, or not any more.

        Then its next record gets a number behind them, and so does what they do not hold.
        """
        sealed, newest = self._journal.sealed(), self._journal.newest()
        # A journal that had gone back in time, and an earlier version that did not notice: any record that it has may be in no segment.
        after = sealed if sealed <= newest else 0
        doubtful = self._journal.numbers(after)
        latest = max(newest, sealed, time.time_ns() // 1000)
        chain = read_chain(self._place, self._observer, sealed, doubtful, latest)
        if newest < chain.newest or any(n <= chain.end and n not in chain.held for n in doubtful.values()):
            moved = continue_behind(self._journal.folder, after, chain.newest, chain.held)
            log.warning(
                "the journal went back in time: its last record was number %d, but segments in %s reach %d. Continuing after "
                "them; %d records that are in no segment got new numbers",
                newest,
                self._place.name,
                chain.newest,
                moved,
            )
        return chain.end


def _packed(records: list[tuple[int, bytes]]) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as file:
        file.write(b"".join(line + b"\n" for _, line in records))
    return packed.getvalue()


def _pause(failures: int) -> float:
    """Seconds until the next attempt after so many failures in a row."""
    longest = _POLL_SECONDS * (1 << min(failures, _MOST_DOUBLINGS))
    return longest * random.uniform(0.75, 1.0)  # noqa: S311  spreads sidecars over time, hides nothing
