"""One failover in words, from its records."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import Final

from msgspec import Struct, json

from sidecar.core.cluster.record_lines import MOST_LINES, evidence_outcome, lasted, move, transition_line
from sidecar.core.errors import OperatorError
from sidecar.core.pods import spelled
from sidecar.core.records import Annotation, AnyRecord, EpisodeRecord, Evidence, Notification, TransitionRecord
from sidecar.core.sanitize import clean, printable
from sidecar.core.views.episode_view import EpisodeView

MOST_KEPT: Final = 1000
"""Most transitions of jobs, of cluster components, notifications, annotations and pieces of evidence kept of one episode."""
MOST_BYTES_KEPT: Final = 3 << 19
"""Of each of these, as JSON: also records whose texts are very long leave room for the others in memory, and in one answer."""
_LEAST: Final = 4
"""The shortest prefix of an id that identifies an episode."""
_NOTE_WIDTH: Final = 100
"""Characters of a line of a note in a terminal."""

Fact = tuple[str, Sequence[str]]
"""A name, and at least one line."""


class UnknownEpisodeError(OperatorError):
    """There is no such episode."""


class Explanation(Struct, frozen=True):
    """The records of one episode, in the order in which they were written. `episode` is null while it is in progress."""

    id: str
    episode: EpisodeRecord | None
    transitions: Sequence[TransitionRecord]
    transitions_total: int
    """The number of all transitions: at most MOST_KEPT of each kind are kept, and MOST_BYTES_KEPT."""
    notifications: Sequence[Notification]
    annotations: Sequence[Annotation]
    evidence: Sequence[Evidence] = ()
    failover: EpisodeView | None = None
    """While it is in progress: what is known so far."""


def find(
    records: Iterable[AnyRecord], name: str, in_progress: Mapping[str, EpisodeView] = MappingProxyType({})
) -> Explanation:
    """The episode whose id is `name`, or the only one that begins with it. Raises UnknownEpisodeError.

    `in_progress`: open episodes by their ids, which may have no record yet.
    """
    found: dict[str, _Found] = {}
    if len(name) >= _LEAST:
        found = {episode_id: _Found(known=True) for episode_id in in_progress if episode_id.startswith(name)}
        for record in records:
            episode_id = _episode_of(record)
            if episode_id and episode_id.startswith(name):
                found.setdefault(episode_id, _Found()).add(record)
    fitting = [episode_id for episode_id, of in found.items() if of.known]
    if len(fitting) != 1:
        what = f"{len(fitting)} episodes begin" if fitting else "no known episode begins"
        raise UnknownEpisodeError(f"{what} with {clean(name)!r}: `episodes` lists them")
    of = found[fitting[0]]
    failover = None if of.episode else in_progress.get(fitting[0])
    records_of = of.transitions, of.total, of.notifications, of.annotations, of.evidence
    return Explanation(fitting[0], of.episode, *records_of, failover)


def in_words(explained: Explanation) -> Iterator[str]:
    """The facts, notifications, evidence and notes of an episode, then its transitions in order; a line each."""
    evidence, notes = map(_of_evidence, explained.evidence), map(_noted, explained.annotations)
    for name, lines in (*facts(explained), *_notified(explained.notifications), *evidence, *notes):
        for line in lines:
            yield f"{name:10} {line}"
            name = ""  # noqa: PLW2901  further lines are indented below the name
    if explained.transitions:
        yield ""
    for transition in explained.transitions[:MOST_LINES]:
        yield f"{transition.observed_at} {transition_line(transition)}"
    if (more := explained.transitions_total - MOST_LINES) > 0:
        yield f"… and {more} more"


def facts(explained: Explanation) -> Iterator[Fact]:
    """What is known of the episode as a whole."""
    yield "episode", [explained.id]
    if explained.episode:
        yield from _of_episode(explained.episode)
    elif explained.failover:
        yield from _of_episode(explained.failover)
    elif explained.transitions:
        begin = explained.transitions[0]
        yield "cluster", [clean(begin.cluster_id)]
        yield "from", [f"{begin.observed_at}, in progress: the cause is decided when it is over"]


class _Found:
    """The records of one episode found so far."""

    def __init__(self, *, known: bool = False) -> None:
        self.known = known
        """Whether anything but annotations and notifications names the episode."""
        self.episode: EpisodeRecord | None = None
        self.transitions: list[TransitionRecord] = []
        self.total = 0
        self.notifications: list[Notification] = []
        self.annotations: list[Annotation] = []
        self.evidence: list[Evidence] = []
        self._count: Counter[object] = Counter()
        self._bytes: Counter[object] = Counter()

    def add(self, record: AnyRecord) -> None:
        match record:
            case EpisodeRecord():
                self.episode, self.known = record, True
            case TransitionRecord():
                self.known = True
                self.total += 1
                if self._has_room(("job", record.job_id is not None), record):
                    self.transitions.append(record)
            case Notification() if self._has_room(Notification, record):
                self.notifications.append(record)
            case Annotation() if self._has_room(Annotation, record):
                self.annotations.append(record)
            case Evidence() if self._has_room(Evidence, record):
                self.evidence.append(record)

    def _has_room(self, kind: object, record: AnyRecord) -> bool:
        """Whether the record is kept: it is among the first of its kind."""
        self._count[kind] += 1
        if self._count[kind] > MOST_KEPT or self._bytes[kind] > MOST_BYTES_KEPT:
            return False
        self._bytes[kind] += len(json.encode(record))
        return self._bytes[kind] <= MOST_BYTES_KEPT


def _episode_of(record: AnyRecord) -> str | None:
    match record:
        case EpisodeRecord():
            return record.id
        case TransitionRecord() | Notification() | Annotation() | Evidence():
            return record.episode_id
    return None


def _notified(notifications: Sequence[Notification]) -> Iterator[Fact]:
    """What became of each notification, by its last attempt; suppressed alerts that differ in their subject alone are one line."""
    last = {each.delivery_id or each.id: each for each in notifications}.values()
    if lines := list(dict.fromkeys(map(_outcome, last))):
        more = [f"… and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        yield "notified", [*lines[:MOST_LINES], *more]


def _outcome(notification: Notification) -> str:
    to, detail = notification.destination or notification.receiver, notification.detail
    silence = f" {notification.silence_id}" if notification.silence_id else ""
    what = f"{notification.alert} {notification.reason}{silence}"
    return clean(f"{to}: {what} {notification.outcome} at {notification.observed_at}{f': {detail}' if detail else ''}")


def _noted(annotation: Annotation) -> Fact:
    by = f" by {clean(annotation.author)}" if annotation.author else ""
    planned = ": planned" if annotation.planned else ""
    return "note", [
        f"{annotation.observed_at}{by}{planned}",
        *wrap(printable(annotation.reason), _NOTE_WIDTH, break_long_words=False),
    ]


def _of_evidence(evidence: Evidence) -> Fact:
    what = f"{evidence_outcome(evidence)} by {clean(evidence.observer)}"
    lines = [what, evidence.detail, evidence.file and f"file {evidence.file}"]
    return "evidence", [clean(line) for line in lines if line]


def _of_episode(episode: EpisodeRecord | EpisodeView) -> Iterator[Fact]:
    yield "cluster", [clean(episode.cluster_id)]
    so_far = "" if episode.closed_at else ", as far as is known now"
    yield (
        "from",
        [f"{episode.opened_at} to {episode.closed_at}" if episode.closed_at else f"{episode.opened_at}, in progress"],
    )
    yield "cause", [f"{episode.cause} ({episode.confidence}){so_far}", *map(clean, episode.facts)]
    if episode.planned is not None:
        yield "planned", ["yes" if episode.planned else "no"]
    if not episode.closed_at:
        yield from _of_progress(episode)
    if not episode.closed_at or not episode.failovers:
        return
    followed = [f"{episode.failovers} leaders in succession"] if episode.failovers > 1 else []
    before = spelled(episode.before_address, episode.before_pod)
    after = spelled(episode.after_address, episode.after_pod)
    yield "leader", [move(before, after), *followed]
    vacant = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in episode.vacant_seconds_by_component.items())
    published = f"published: {vacant}" if vacant else "published: no gap was observed"
    if episode.downtime_seconds_at_least is None:
        yield "no leader", [published if vacant else "not known: this sidecar did not observe the change"]
    else:
        down = lasted(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
        yield "no leader", [published, f"working: {down}"]
    if episode.jobs_total:
        missing = f", {episode.jobs_missing} still without a leader" if episode.jobs_missing else ""
        ended = f", {episode.jobs_ended} ended in it" if episode.jobs_ended else ""
        yield "jobs", [f"{episode.jobs_affected} of {episode.jobs_total} failed over{ended}{missing}"]


def _of_progress(episode: EpisodeRecord | EpisodeView) -> Iterator[Fact]:
    """Who leads, and which jobs have no leader, while it is in progress."""
    before = spelled(episode.before_address, episode.before_pod)
    after = spelled(episode.after_address, episode.after_pod) if episode.after_address else None
    yield "leader", [move(before, after) if after else f"none now; {clean(before)} led before"]
    if episode.jobs_total:
        yield (
            "jobs",
            [
                f"{episode.jobs_affected} of {episode.jobs_total} failed over, {episode.jobs_missing} without a leader now"
            ],
        )
