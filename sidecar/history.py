"""`timeline`, `explain` and `annotate`: what one sidecar's journal remembers, whether or not that sidecar runs."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from sidecar.clock import Clock
from sidecar.core import annotating
from sidecar.core.explaining import find
from sidecar.core.moment import timestamp
from sidecar.core.records import Annotation, AnyRecord
from sidecar.journal import FILE, JournalError, JournalReader, append


def records(state_dir: Path) -> Iterator[AnyRecord]:
    """All that the journal in `state_dir` still has, the oldest first. Raises JournalError."""
    if not (state_dir / FILE).is_file():
        raise JournalError(f"there is no journal in {state_dir}: name the state_dir of a sidecar that has run")
    with closing(JournalReader(state_dir)) as journal:
        yield from journal.remembered()


def latest(state_dir: Path, number: int) -> Sequence[AnyRecord]:
    """The last `number` records, the oldest first. Raises JournalError."""
    return deque(records(state_dir), maxlen=number)


def annotate(state_dir: Path, episode: str, reason: str, author: str | None) -> Annotation:
    """Record a note about the episode whose id begins with `episode`.

    Raises JournalError, UnknownEpisodeError, and NoteError when the note itself will not do.
    """
    noted = annotating.note(reason, author)
    annotation = annotating.annotation(find(records(state_dir), episode), noted, timestamp(Clock()().wall))
    append(state_dir, annotation)
    return annotation
