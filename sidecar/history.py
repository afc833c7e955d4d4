"""`timeline`, `explain` and `annotate`: what one sidecar's journal remembers, whether or not that sidecar runs."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sidecar.clock import Clock
from sidecar.core.moment import timestamp
from sidecar.core.records import Annotation, AnyRecord
from sidecar.core.views.annotate import annotation, note
from sidecar.core.views.explain import find
from sidecar.journal import FILE, JournalError, JournalReader, append


def records(state_dir: Path) -> Iterator[AnyRecord]:
    """All that the journal in `state_dir` still has, the oldest first. Raises JournalError."""
    try:
        there = (state_dir / FILE).is_file()
    except OSError as error:
        raise JournalError(
            f"cannot read {state_dir}: {error.strerror}; run this as the user of that sidecar"
        ) from error
    if not there:
        raise JournalError(f"there is no journal in {state_dir}: name the state_dir of a sidecar that has run")
    with closing(JournalReader(state_dir)) as journal:
        yield from journal.remembered()


class Latest(NamedTuple):
    """The last records, the oldest first."""

    records: Sequence[AnyRecord]
    clusters: frozenset[str]
    """Of which clusters there are any records, also earlier ones."""


def latest(state_dir: Path, number: int) -> Latest:
    """The last `number` records. Raises JournalError."""
    last, clusters = deque[AnyRecord](maxlen=number), set[str]()
    for record in records(state_dir):
        last.append(record)
        clusters.add(record.cluster_id)
    return Latest(last, frozenset(clusters))


def annotate(state_dir: Path, episode: str, reason: str, author: str | None) -> Annotation:
    """Record a note about the episode whose id begins with `episode`.

    Raises JournalError, UnknownEpisodeError, and NoteError when the note itself will not do.
    """
    noted = note(reason, author)
    made = annotation(find(records(state_dir), episode), noted, timestamp(Clock()().wall))
    append(state_dir, made)
    return made
