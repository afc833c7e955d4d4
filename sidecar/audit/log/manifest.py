"""What an audit log keeps beside its tables: what an ingest remembers, which dates are closed and from what. Readable without Spark."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from itertools import chain
from typing import Final

from msgspec import Struct

CHECKPOINTS: Final = "_checkpoints"
"""What an ingest remembers. May be deleted at any time (docs/project/adr/0004-audit-exactly-once.md)."""
IDS: Final = f"{CHECKPOINTS}/ids"
"""The folder of the index of ids, with a folder for each table."""
SEGMENTS: Final = "segments"
"""The folder of the segment log in a checkpoint."""
CLOSED: Final = "_closed"
"""The folder of the manifests and carries."""
MANIFEST: Final = re.compile(r"manifest-(\d{12})\.json")
"""The name of a manifest: the newest has the highest number."""
FORMAT: Final = 1
SOURCES: Final = {"transitions": "_transitions", "coverage": "_coverage"}
"""The tables that the answers are made of, and the views of the part that is read."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every record."""


def checkpoint_of(spool: str) -> str:
    """The folder of the checkpoint of the spool with this full URL: each spool has its own."""
    return f"{CHECKPOINTS}/ingest/{sha256(spool.encode()).hexdigest()[:16]}"


class DateSource(Struct, frozen=True):
    """What was read of one date."""

    files: Mapping[str, str] = {}
    """A digest of the file names, by table: if it is unchanged, so are the rows."""
    rows: Mapping[str, Sequence[int]] = {}
    """The numbers of transitions and of coverage records, by cluster."""


class Manifest(Struct, frozen=True):
    """What is materialised."""

    format: int = FORMAT
    number: int = 0
    base: date | None = None
    """What happened until the end of this date has expired; its carry remains."""
    last: date | None = None
    """The last closed date."""
    files: Mapping[date, Mapping[str, Sequence[str]]] = {}
    """The files of each table, by the first date of their month; none if there are no rows."""
    carries: Mapping[date, str] = {}
    """The file with what matters after the end of a date."""
    sources: Mapping[date, DateSource] = {}

    @property
    def begin(self) -> datetime:
        """The end of the last closed date."""
        return start_of(self.last + timedelta(days=1)) if self.last else EPOCH

    def paths(self) -> set[str]:
        """Every file, relative to the audit log."""
        tables = (files for by_table in self.files.values() for files in by_table.values())
        return {*self.carries.values(), *chain.from_iterable(tables)}


def start_of(day: date) -> datetime:
    """Midnight, UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def days(first: date, last: date) -> list[date]:
    """The dates from `first` to `last`."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]
