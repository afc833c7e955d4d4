"""The spool: records leave the journal as sealed segments, `<spool>/<observer>/<first>-<last>.jsonl.gz`, for the audit to take in.

A segment is written aside, synced, renamed and its folder synced: it is whole from the moment that it can be seen, and never changes.
Segments follow each other without a gap, by the journal's numbers.
"""

import gzip
import logging
import os
import re
import threading
import time
from pathlib import Path
from typing import Final

from sidecar.journal import JournalError, JournalReader

log = logging.getLogger("sidecar.spool")

_SEGMENT: Final = re.compile(r"(\d{16})-(\d{16})\.jsonl\.gz")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_POLL_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_JOIN_SECONDS: Final = 10.0


class Spool:
    """Seals a segment when `roll_records` wait, or the oldest has waited for `roll_interval` seconds, and once more at the end."""

    def __init__(
        self, folder: Path, observer: str, journal: JournalReader, *, roll_interval: float, roll_records: int
    ) -> None:
        self.folder = folder / (_UNSAFE.sub("_", observer).lstrip(".") or "_")
        """This observer's own folder."""
        self._journal = journal
        self._roll_interval = roll_interval
        self._roll_records = roll_records
        self._sealed = 0
        self._waiting_since: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    @property
    def sealed(self) -> int:
        """Up to which record of the journal the segments reach. 0 until that is known."""
        return self._sealed

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Seal what is left and end. May be called twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(min(_POLL_SECONDS * 2**failures, _LONGEST_PAUSE)):
            failures = 0 if self._attempt(everything=False) else failures + 1
        self._attempt(everything=True)
        self._journal.close()

    def _attempt(self, *, everything: bool) -> bool:
        try:
            while self._seal_one(everything=everything):
                pass
        except (OSError, JournalError) as error:
            if str(error) != self._problem:
                log.error(
                    "cannot write segments to %s: %s; records stay in the journal and this is tried again",
                    self.folder,
                    error,
                )
            self._problem = str(error)
            return False
        self._problem = ""
        return True

    def _seal_one(self, *, everything: bool) -> bool:
        """Seal one segment if it is time; whether there may be more to seal."""
        if not self._sealed:
            self._sealed = self._find_end(self._journal.sealed())
            self._remove_unfinished()
        records = self._journal.records(self._sealed, self._roll_records)
        if not records:
            self._waiting_since = None
            return False
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        due = everything or len(records) >= self._roll_records or now - self._waiting_since >= self._roll_interval
        if due:
            self._write(records)
            self._sealed = records[-1][0]
            self._waiting_since = None
        return due

    def _find_end(self, sealed: int) -> int:
        """Where the chain of segments ends that begins behind `sealed`: some may have been sealed that the journal was not told of."""
        if not self.folder.is_dir():
            return sealed
        ends = {
            int(match[1]): int(match[2]) for path in self.folder.iterdir() if (match := _SEGMENT.fullmatch(path.name))
        }
        while sealed + 1 in ends:
            sealed = ends[sealed + 1]
        return sealed

    def _remove_unfinished(self) -> None:
        if self.folder.is_dir():
            for leftover in self.folder.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)

    def _write(self, records: list[tuple[int, bytes]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # Named from the number that follows the last segment, so that the chain has no gap where numbers do.
        name = f"{self._sealed + 1:016d}-{records[-1][0]:016d}.jsonl.gz"
        aside = self.folder / f".{name}.tmp"
        with aside.open("wb") as file:
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                packed.write(b"".join(line + b"\n" for _, line in records))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(self.folder / name)
        _sync(self.folder)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
