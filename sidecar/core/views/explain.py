"""One failover: from its records, in words for terminals, page and API, and with an operator's note."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from textwrap import wrap
from typing import Any, ClassVar, Final

from msgspec import Struct, json

from sidecar.core.cluster.record_lines import (
    MOST_LINES,
    cluster_line,
    death_line,
    evidence_outcome,
    job_line,
    lasted,
    moved,
    transition_line,
)
from sidecar.core.counted import shortened
from sidecar.core.errors import OperatorError
from sidecar.core.moment import Timestamp
from sidecar.core.records import (
    Annotation,
    AnyRecord,
    Death,
    EpisodeRecord,
    Evidence,
    Notification,
    Recovery,
    StatusRecord,
    TransitionRecord,
    record_id,
)
from sidecar.core.sanitize import clean, printable
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import (
    EpisodeOutcome,
    EpisodeRecovery,
    EpisodeView,
    FailoverStage,
    best_death,
    later,
    recovery_of,
    stages,
)
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.status_view import ClusterVerdict, stated

MOST_KEPT: Final = 1000
"""Most transitions of jobs, of cluster components, notifications, annotations, pieces of evidence, recoveries of jobs that run and of
others kept of one episode.
"""
MOST_BYTES_KEPT: Final = 5 << 18
"""The size of each of these (of all recoveries together) as JSON: records with very long texts leave room for the others, in memory and in
one answer.
"""
_LEAST: Final = 4
"""The shortest prefix of an id that identifies an episode."""


class UnknownEpisodeError(OperatorError):
    """There is no such episode."""


class Explanation(Struct, frozen=True):
    """The records of one episode, in the order in which they were written."""

    id: str
    episode: EpisodeView | None
    """Null: its end was not recorded, because the sidecar lost its state."""
    transitions: Sequence[TransitionRecord]
    transitions_total: int
    """The number of all transitions: at most MOST_KEPT of each kind are kept, and MOST_BYTES_KEPT."""
    notifications: Sequence[Notification]
    annotations: Sequence[Annotation]
    evidence: Sequence[Evidence] = ()
    death: Death | None = None
    """Why the process of the previous leader ended. Null: nothing is recorded."""
    recovery: EpisodeRecovery | None = None
    """Whether everything came back. Null: nothing is recorded, as with `flink_rest: never`."""
    stages: Sequence[FailoverStage] = ()
    status: ClusterVerdict | None = None
    """How its cluster is now. Null: not known, or another failover has followed."""
    last_status: StatusRecord | None = None
    """The last recorded one before another failover."""

    @property
    def job_names(self) -> Mapping[str, str]:
        """By job id: the names that Flink's REST API reported. Untrusted text."""
        jobs = (evidence for evidence in self.evidence if evidence.kind == "job")
        return {job.subject: job.attributes["name"] for job in jobs if job.attributes.get("name")}


def find(records: Iterable[AnyRecord], name: str, snapshot: Snapshot | None = None) -> Explanation:
    """The episode whose id is `name`, or the only one that begins with it. `snapshot`: with what it knows and no record has yet. Raises
    UnknownEpisodeError.
    """
    candidates: dict[str, _Candidate] = {}
    in_progress = {view.id: view for view in episode_view.open_episodes(snapshot)} if snapshot else {}
    now = stated(snapshot) if snapshot else {}
    if len(name) >= _LEAST:
        candidates = {episode_id: _Candidate(exists=True) for episode_id in in_progress if episode_id.startswith(name)}
        for record in chain(records, episode_view.unrecorded(snapshot) if snapshot else ()):
            episode_id = _episode_of(record)
            if episode_id and episode_id.startswith(name):
                candidates.setdefault(episode_id, _Candidate()).add(record)
    fitting = [episode_id for episode_id, candidate in candidates.items() if candidate.exists]
    if len(fitting) != 1:
        problem = f"{len(fitting)} episodes begin" if fitting else "no known episode begins"
        raise UnknownEpisodeError(f"{problem} with {clean(name)!r}: `episodes` lists them")
    [episode_id], found = fitting, candidates[fitting[0]]
    recovery, kept, status = recovery_of(found.recoveries, found.jobs), found.others, now.get(fitting[0])
    view = episode_view.closed(found.record) if found.record else in_progress.get(episode_id)
    outcome = EpisodeOutcome(found.death, recovery.verdict if recovery else None, bool(kept[Annotation]), found.status)
    return Explanation(
        episode_id,
        view and episode_view.with_outcome(view, outcome, status),
        *(found.transitions, found.total, kept[Notification], kept[Annotation], kept[Evidence]),
        *(found.death, recovery, stages(found.transitions, found.death, recovery), status, found.status),
    )


class _Candidate:
    """The records so far of one episode whose id begins with the given name."""

    def __init__(self, *, exists: bool = False) -> None:
        self.exists = exists
        """Whether anything but annotations and notifications names the episode."""
        self.record: EpisodeRecord | None = None
        self.transitions: list[TransitionRecord] = []
        self.total = 0
        self.others: defaultdict[type[AnyRecord], list[Any]] = defaultdict(list)
        """Notifications, annotations and pieces of evidence, by type."""
        self.death: Death | None = None
        self.status: StatusRecord | None = None
        self.recoveries: list[Recovery] = []
        self.jobs = 0
        """All recoveries of jobs, also those without room."""
        self._count: Counter[object] = Counter()
        self._bytes: Counter[object] = Counter()

    def add(self, record: AnyRecord) -> None:
        match record:
            case EpisodeRecord():
                self.record, self.exists = record, True
            case TransitionRecord():
                self.exists = True
                self.total += 1
                if self._has_room(("job", record.job_id is not None), record):
                    self.transitions.append(record)
            case Notification() | Annotation() | Evidence() if self._has_room(type(record), record):
                self.others[type(record)].append(record)
            case Death():
                self.death = best_death(filter(None, (self.death, record)))
            case StatusRecord():
                self.status = later(self.status, record)
            case Recovery():
                self.jobs += record.job_id is not None
                if record.job_id is None or self._has_room((Recovery, record.outcome == "running"), record, Recovery):
                    self.recoveries.append(record)

    def _has_room(self, kind: object, record: AnyRecord, together: object = None) -> bool:
        """Whether the record is kept: it is among the first of its kind, and of those that share its bytes."""
        sharing = together or kind
        self._count[kind] += 1
        if self._count[kind] > MOST_KEPT or self._bytes[sharing] > MOST_BYTES_KEPT:
            return False
        self._bytes[sharing] += len(json.encode(record))
        return self._bytes[sharing] <= MOST_BYTES_KEPT


def _episode_of(record: AnyRecord) -> str | None:
    match record:
        case EpisodeRecord():
            return record.id
        case TransitionRecord() | Notification() | Annotation() | Evidence() | Death() | Recovery() | StatusRecord():
            return record.episode_id
    return None


_NOTE_WIDTH: Final = 100
"""Characters of a line of a note in a terminal."""

Fact = tuple[str, Sequence[str]]
"""A name, and at least one line."""


def explanation_lines(explained: Explanation) -> Iterator[str]:
    """The facts, notifications, evidence and notes of an episode, then its transitions in order; a line each."""
    evidence, notes = map(_evidence_fact, explained.evidence), map(_note, explained.annotations)
    stages_in_words = [("stages", lines)] if (lines := list(episode_view.stages_in_words(explained.stages))) else []
    notified = _notifications(explained.notifications)
    yield from below_names((*facts(explained, with_jobs=True), *stages_in_words, *notified, *evidence, *notes))
    if explained.transitions:
        yield ""
    first = [f"{each.observed_at} {transition_line(each)}" for each in explained.transitions[:MOST_LINES]]
    yield from shortened(first, MOST_LINES, explained.transitions_total)


def below_names(parts: Iterable[Fact]) -> Iterator[str]:
    """The lines of each part, the first one behind its name."""
    for name, (first, *others) in parts:
        yield f"{name:10} {first}"
        yield from (f"{'':10} {line}" for line in others)


def facts(explained: Explanation, *, with_jobs: bool = False) -> Iterator[Fact]:
    """What is known of the episode as a whole; `with_jobs`: also what became of each job."""
    yield "episode", [explained.id]
    if episode := explained.episode:
        yield from _episode_facts(episode, explained.death)
    elif explained.transitions:
        begin = explained.transitions[0]
        yield "cluster", [clean(begin.cluster_id)]
        yield "from", [f"{begin.observed_at}, in progress: the cause is decided when it is over"]
    if now := explained.status:
        step = [f"Next: {now.next_step}"] if now.next_step else []
        yield "status", [f"{now.status} since {now.status_since}: {now.sentence}", *step]
    elif then := explained.last_status:
        yield "status", [clean(f"{then.status} until the next failover: {then.sentence}")]
    if recovery := explained.recovery:
        jobs = shortened([*map(job_line, recovery.jobs)], MOST_LINES, recovery.jobs_total, "job") if with_jobs else []
        yield "recovery", [cluster_line(recovery.cluster) if recovery.cluster else clean(recovery.verdict), *jobs]


def _notifications(notifications: Sequence[Notification]) -> Iterator[Fact]:
    """What became of each notification, by its last attempt; suppressed alerts that differ in their subject alone are one line."""
    last = {notification.delivery_id or notification.id: notification for notification in notifications}.values()
    if lines := list(dict.fromkeys(map(_outcome, last))):
        yield "notified", shortened(lines, MOST_LINES)


def _outcome(notification: Notification) -> str:
    to, detail = notification.destination or notification.receiver, notification.detail
    silence = f" {notification.silence_id}" if notification.silence_id else ""
    subject = f"{notification.alert} {notification.reason}{silence}"
    return clean(
        f"{to}: {subject} {notification.outcome} at {notification.observed_at}{f': {detail}' if detail else ''}"
    )


def _note(annotation: Annotation) -> Fact:
    by = f" by {clean(annotation.author)}" if annotation.author else ""
    planned = ": planned" if annotation.planned else ""
    return "note", [
        f"{annotation.observed_at}{by}{planned}",
        *wrap(printable(annotation.reason), _NOTE_WIDTH, break_long_words=False),
    ]


def _evidence_fact(evidence: Evidence) -> Fact:
    outcome = f"{evidence_outcome(evidence)} by {clean(evidence.observer)}"
    lines = [outcome, evidence.detail, evidence.file and f"file {evidence.file}"]
    return "evidence", [clean(line) for line in lines if line]


def _episode_facts(episode: EpisodeView, death: Death | None) -> Iterator[Fact]:
    yield "cluster", [clean(episode.cluster_id)]
    end, so_far = (
        (f" to {episode.closed_at}", "") if episode.closed_at else (", in progress", ", as far as is known now")
    )
    yield "from", [f"{episode.opened_at}{end}"]
    yield "cause", [f"{episode.cause} ({episode.confidence}){so_far}", *map(clean, episode.facts)]
    if death:
        yield "died", [death_line(death), *map(clean, death.facts)]
    if episode.planned is not None:
        yield "planned", ["yes" if episode.planned else "no"]
    if episode.closed_at and not episode.failovers:
        return
    followed = [f"{episode.failovers} leaders in succession"] if episode.failovers > 1 else []
    if episode.after_address:
        yield "leader", [moved(episode), *followed]
    if not episode.closed_at:
        return
    vacant = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in episode.vacant_seconds_by_component.items())
    published = f"published: {vacant}" if vacant else "published: no gap was observed"
    if episode.downtime_seconds_at_least is None:
        yield "no leader", [published if vacant else "not known: this sidecar did not observe the change"]
    else:
        down = lasted(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
        yield "no leader", [published, f"working: {down}"]
    if episode.jobs_total:
        yield "jobs", [_counts(episode)]


def _counts(episode: EpisodeView) -> str:
    """How many jobs lost their leader, and what became of these."""
    if not episode.jobs_affected:
        return f"none of {episode.jobs_total} was observed to fail over"
    lost = episode.jobs_lost or 0
    counts = {
        f"{lost} lost (Flink does not know {'it' if lost == 1 else 'them'} any more)": lost,
        f"{episode.jobs_ended - lost} ended in it": episode.jobs_ended - lost,
        f"{episode.jobs_missing} still without a leader": episode.jobs_missing,
    }
    parts = [text for text, number in counts.items() if number]
    return ", ".join([f"{episode.jobs_affected} of {episode.jobs_total} failed over", *parts])


MOST_REASON: Final = 2000
MOST_AUTHOR: Final = 100


class NoteError(OperatorError):
    """A note that cannot be recorded."""

    exit_status: ClassVar[int] = 2


class Note(Struct, frozen=True):
    """One line of printable text each."""

    reason: str
    author: str | None
    planned: bool | None = None


def note(reason: str, author: str | None, *, planned: bool = False) -> Note:
    """The note as it is recorded: line breaks and tabs become spaces. Raises NoteError when it is empty, too long, or not printable."""
    by = None if author is None else _line("author", author, MOST_AUTHOR)
    return Note(_line("reason", reason, MOST_REASON), by, planned or None)


def annotation(explained: Explanation, noted: Note, at: Timestamp) -> Annotation:
    """The record of a note. The same note at another time is another record."""
    of = explained.episode or explained.transitions[0]
    return Annotation(
        id=record_id("annotation", explained.id, noted.author, noted.reason, at),
        cluster_id=of.cluster_id,
        external_labels=of.external_labels,
        store=of.store,
        observer=of.observer,
        observed_at=at,
        recorded_at=at,
        episode_id=explained.id,
        reason=noted.reason,
        author=noted.author,
        planned=noted.planned,
    )


def _line(part: str, text: str, most: int) -> str:
    line = " ".join(text.split())
    if not line:
        raise NoteError(f"the {part} of a note is empty: 1 to {most} characters are needed")
    if len(line) > most:
        raise NoteError(f"the {part} of a note has {len(line)} characters: at most {most} are recorded")
    if bad := next((character for character in line if not character.isprintable()), None):
        raise NoteError(
            f"the {part} of a note holds the control character U+{ord(bad):04X}: only printable text is recorded"
        )
    return line
