"""One failover, from its records."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct, json

from sidecar.core.errors import OperatorError
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
)
from sidecar.core.sanitize import clean
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.outcome import EpisodeOutcome, RecoveryView, best_death, later, recovery_of
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.stages import FailoverStage, stages
from sidecar.core.views.verdict import ClusterVerdict, stated

MOST_KEPT: Final = 1000
"""Most transitions of jobs, of cluster components, notifications, annotations, pieces of evidence, recoveries of jobs that run and of
others kept of one episode.
"""
MOST_BYTES_KEPT: Final = 5 << 18
"""Of each of these (of all recoveries together), as JSON: also records whose texts are very long leave room for the others in memory, and
in one answer.
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
    recovery: RecoveryView | None = None
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
    in_progress = {view.id: view for view in episode_view.in_progress(snapshot)} if snapshot else {}
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
