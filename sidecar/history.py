"""`timeline` and `explain`: what one sidecar's journal remembers, whether or not that sidecar runs."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import DecodeError, json

from sidecar.core.records import AnyRecord
from sidecar.journal import FILE, JournalError, JournalReader

_READ_TOGETHER: Final = 1000


def records(state_dir: Path) -> Iterator[AnyRecord]:
    """All that the journal in `state_dir` still has, the oldest first. Raises JournalError."""
    if not (state_dir / FILE).is_file():
        raise JournalError(f"there is no journal in {state_dir}: name the state_dir of a sidecar that has run")
    with closing(JournalReader(state_dir)) as journal:
        last = 0
        while found := journal.records(last, _READ_TOGETHER):
            for _, line in found:
                try:
                    yield json.decode(line, type=AnyRecord)
                except DecodeError:
                    continue  # of another version
            last = found[-1][0]


def latest(state_dir: Path, number: int) -> Sequence[AnyRecord]:
    """The last `number` records, the oldest first. Raises JournalError."""
    return deque(records(state_dir), maxlen=number)
