"""`timeline`, `explain`, `annotate` and `silence list`: read one sidecar's journal, whether or not that sidecar runs."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sidecar.clock import Clock
from sidecar.core.moment import timestamp
from sidecar.core.records import Annotation, AnyRecord, Notification
from sidecar.core.views.annotate import annotation, note
from sidecar.core.views.explain import find
from sidecar.journal import FILE, JournalError, JournalReader, append


def records(state_dir: Path) -> Iterator[AnyRecord]:
    """All records of the journal in `state_dir`, oldest first. Raises JournalError."""
    try:
        exists = (state_dir / FILE).is_file()
    except OSError as error:
        raise JournalError(f"cannot read {state_dir}: {error.strerror}; run this as the sidecar's user") from error
    if not exists:
        raise JournalError(f"there is no journal in {state_dir}: name the state_dir of a sidecar that has run")
    with closing(JournalReader(state_dir)) as journal:
        yield from journal.remembered()


class Latest(NamedTuple):
    """The last records, oldest first."""

    records: Sequence[AnyRecord]
    clusters: frozenset[str]
    """The clusters of all records, also of earlier ones."""


def latest(state_dir: Path, number: int) -> Latest:
    """The last `number` records. Raises JournalError."""
    last, clusters = deque[AnyRecord](maxlen=number), set[str]()
    for record in records(state_dir):
        last.append(record)
        clusters.add(record.cluster_id)
    return Latest(last, frozenset(clusters))


def hidden(state_dir: Path) -> Mapping[str, int] | None:
    """How many alerts each silence has hidden; None: there is no journal that can be read."""
    try:
        found = (each.silence_id for each in records(state_dir) if isinstance(each, Notification))
        return Counter(silence_id for silence_id in found if silence_id)
    except JournalError:
        return None


def annotate(state_dir: Path, episode: str, reason: str, author: str | None, *, planned: bool = False) -> Annotation:
    """Record a note about the episode whose id begins with `episode`. Raises JournalError, UnknownEpisodeError, NoteError."""
    noted = note(reason, author, planned=planned)
    made = annotation(find(records(state_dir), episode), noted, timestamp(Clock()().wall))
    append(state_dir, made)
    return made
