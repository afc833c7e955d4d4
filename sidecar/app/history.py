"""`timeline`, `episodes`, `explain`, `annotate` and `silence list`: read one sidecar's journal, whether or not that sidecar runs."""

import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Component
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.policy.policy import Policy
from sidecar.core.records import (
    Annotation,
    AnyRecord,
    Contention,
    EpisodeRecord,
    Notification,
    Recovery,
    TransitionRecord,
)
from sidecar.core.state_and_effects import State
from sidecar.core.views import episode_view, silence_view
from sidecar.core.views.annotate import annotation, note
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.explain import Explanation, UnknownEpisodeError, find
from sidecar.core.views.outcome import needs_review, outcomes_of
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import FILE, JournalError, JournalReader, append
from sidecar.runtime.clock import Clock

LAST: Final = "last"
"""Used in place of an episode's id: the newest episode."""
_FOLLOW_PAUSE: Final = 0.5
_OF_CLUSTER: Final = tuple(component.component.value for component in CLUSTER_COMPONENTS)


def records(state_dir: Path) -> Iterator[AnyRecord]:
    """All records of the journal in `state_dir`, oldest first. Raises JournalError."""
    with closing(reader(state_dir)) as journal:
        yield from journal.remembered()


def state(state_dir: Path) -> State:
    """The state of the sidecar as of the last commit to the journal in `state_dir`. Raises JournalError."""
    with closing(reader(state_dir)) as journal:
        return journal.state()


def reader(state_dir: Path) -> JournalReader:
    """The journal in `state_dir`, to be closed. Raises JournalError."""
    try:
        (state_dir / FILE).stat()  # since Python 3.14, is_file() says False where it cannot look
    except (FileNotFoundError, NotADirectoryError):
        raise JournalError(
            f"there is no journal in {state_dir}: name the state_dir of a sidecar that has run"
        ) from None
    except OSError as error:
        raise JournalError(f"cannot read {state_dir}: {error.strerror}; run this as the sidecar's user") from error
    return JournalReader(state_dir)


class WantedRecords(Struct, frozen=True):
    """The records that a timeline shows: those that meet every condition given here."""

    last: int | None = None
    """The number of newest records to show."""
    since: Timestamp | None = None
    components: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    """Kinds of transitions, or types of records."""

    def fits(self, record: AnyRecord) -> bool:
        """True if the record is wanted, apart from `last`."""
        kind = record.kind if isinstance(record, TransitionRecord) else ""
        return (
            (self.since is None or record.observed_at >= self.since)
            and (not self.components or not self.components.isdisjoint(_components(record)))
            and (not self.kinds or not self.kinds.isdisjoint({kind, type_of(record)}))
        )


def type_of(record: AnyRecord) -> str:
    """The type of the record, as in its JSON."""
    return str(type(record).__struct_config__.tag)


def _components(record: AnyRecord) -> Collection[str]:
    match record:
        case TransitionRecord():
            return (record.component,)
        case Contention():
            return (record.component,) if record.component else _OF_CLUSTER
        case Notification(component=str(component)):
            return (component,)
        case EpisodeRecord():
            return record.components
        case Recovery(job_id=str()):
            return (Component.JOB,)
    return ()


class Latest(NamedTuple):
    """Records, oldest first."""

    records: Sequence[AnyRecord]
    clusters: frozenset[str]
    """The clusters of all records, also of earlier ones."""
    newest: int
    """The number of the newest record, for `following`."""


def latest(state_dir: Path, wanted: WantedRecords) -> Latest:
    """The wanted records. Raises JournalError."""
    last, clusters, newest = deque[AnyRecord](maxlen=wanted.last), set[str](), 0
    with closing(reader(state_dir)) as journal:
        for newest, record in journal.numbered():  # noqa: B007  used below
            clusters.add(record.cluster_id)
            if wanted.fits(record):
                last.append(record)
    return Latest(last, frozenset(clusters), newest)


def following(state_dir: Path, wanted: WantedRecords, after: int) -> Iterator[AnyRecord]:
    """The wanted records after number `after`, each as soon as it is written, until the caller stops. Raises JournalError."""
    with closing(reader(state_dir)) as journal:
        while True:
            for number, record in journal.numbered(after):
                after = number
                if wanted.fits(record):
                    yield record
            time.sleep(_FOLLOW_PAUSE)


def episodes(state_dir: Path, number: int, *, unreviewed: bool = False) -> list[EpisodeView]:
    """The last `number` failovers: those in progress, then the newest first; `unreviewed`: only those that nobody has annotated. Raises
    JournalError.
    """
    with closing(reader(state_dir)) as journal:
        newest = journal.newest()
        outcomes = outcomes_of(journal.outcomes(0, newest))
        recorded = journal.newest_first(EpisodeRecord, 0, newest)
        wanted = (episode for episode in recorded if not unreviewed or needs_review(episode, outcomes))
        views = episode_view.latest(list(islice(wanted, number)), outcomes, Snapshot(Clock()(), journal.state()))
    return [episode for episode in views if not unreviewed or episode.reviewed is False][:number]


def explain(state_dir: Path, name: str) -> Explanation:
    """The episode whose id begins with `name`; LAST: the newest one. Raises JournalError, UnknownEpisodeError."""
    with closing(reader(state_dir)) as journal:
        snapshot = Snapshot(Clock()(), journal.state())
    return find(records(state_dir), _id_of(state_dir, name), snapshot)


def _id_of(state_dir: Path, name: str) -> str:
    if name != LAST:
        return name
    if newest := episodes(state_dir, 1):
        return newest[0].id
    raise UnknownEpisodeError("no failover is recorded")


def hidden(state_dir: Path, policy: Policy) -> Mapping[str, int] | None:
    """The number of alerts that each silence has hidden, those that it hides now included; None: there is no journal that can be read."""
    try:
        silences = (record.silence_id for record in records(state_dir) if isinstance(record, Notification))
        recorded = Counter(silence_id for silence_id in silences if silence_id)
        now = state(state_dir)
    except JournalError:
        return None
    return recorded | silence_view.hidden(policy, now, now.alive) if now.alive else recorded


def annotate(state_dir: Path, episode: str, reason: str, author: str | None, *, planned: bool = False) -> Annotation:
    """Record a note about the episode whose id begins with `episode`, or LAST. Raises JournalError, UnknownEpisodeError, NoteError."""
    noted = note(reason, author, planned=planned)
    explained = find(records(state_dir), _id_of(state_dir, episode))
    record = annotation(explained, noted, timestamp(Clock()().wall))
    append(state_dir, record)
    return record
