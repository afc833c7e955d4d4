"""Recorded transitions and failovers for the pages and the API, and the last day of all clusters for the page's pictures: from the journal,
and failovers in progress from the newest snapshot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice, takewhile
from operator import attrgetter
from threading import BoundedSemaphore
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from sidecar.core.moment import SECOND, parsed, timestamp
from sidecar.core.records import Coverage, EpisodeRecord, Evidence, Record, TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import EpisodeOutcome, EpisodeView, outcomes_of
from sidecar.core.views.explain import Explanation, explanation_lines, find
from sidecar.core.views.snapshot import Snapshot
from sidecar.core.views.timeline import Blind, Switch, blindness, change
from sidecar.journal import JournalReader

DAY: Final = 24 * 3600 * SECOND
MOST_TRANSITIONS: Final = 10_000
"""Transitions of the clusters' own components. Beyond that the picture begins later."""
MOST_COVERAGE: Final = 10_000
MOST_EPISODES: Final = 500
"""However old they are."""
MOST_OUTCOMES: Final = 2 * MOST_EPISODES
MOST_JOB_NAMES: Final = 500

_R = TypeVar("_R", bound=Record)
_V = TypeVar("_V")
_OF_CLUSTER: Final = b'"job_id":null'
_OF_JOB: Final = b'"kind":"job"'


class LastDay(Struct, frozen=True):
    """The journal's records of the last day, and the latest failovers."""

    newest: int = 0
    """The journal's last record."""
    since: int = 0
    """Everything that was recorded from then on (wall) is here."""
    changes: Mapping[tuple[str, str], Sequence[Switch]] = {}
    """By cluster and component, in order."""
    blind: Mapping[str, Sequence[Blind]] = {}
    """By cluster: when the store could not be read."""
    episodes: Mapping[str, EpisodeRecord] = {}
    """By id, newest first."""
    outcomes: Mapping[str, EpisodeOutcome] = {}
    """By the id of the episode, also of those in progress."""
    job_names: Mapping[str, str] = {}
    """By job id: the names that Flink's REST API reported when evidence was captured. Untrusted text."""


def read_last_day(journal: JournalReader, at: int, previous: LastDay | None = None) -> LastDay:
    """The day before `at` (wall). Only records that are newer than `previous` are read. Raises JournalError."""
    start, newest = at - DAY, journal.newest()
    if previous is None or newest < previous.newest:  # the journal was replaced
        previous = LastDay(since=_first(journal, start, at))
    after = previous.newest
    transitions = _records_since(
        start, journal.newest_first(TransitionRecord, after, newest, _OF_CLUSTER), MOST_TRANSITIONS
    )
    changes = {key: [change for change in old if change.at >= start] for key, old in previous.changes.items()}
    for transition in reversed(transitions):
        changes.setdefault((transition.cluster_id, transition.component), []).append(change(transition))
    for timeline in changes.values():  # records that were salvaged from a damaged journal are read a second time
        timeline.sort(key=attrgetter("at"))
    blind = {name: [period for period in old if period[1] >= start] for name, old in previous.blind.items()}
    for coverage in reversed(_records_since(start, journal.newest_first(Coverage, after, newest), MOST_COVERAGE)):
        if period := blindness(coverage):
            blind.setdefault(coverage.cluster_id, []).append(period)
    closed = islice(journal.newest_first(EpisodeRecord, after, newest), MOST_EPISODES)
    episodes = {episode.id: episode for episode in closed}
    outcomes = outcomes_of(journal.outcomes(after, newest), previous.outcomes)
    is_full = len(transitions) == MOST_TRANSITIONS
    return LastDay(
        newest,
        parsed(transitions[-1].observed_at) if is_full else previous.since,
        changes,
        blind,
        _first_of(episodes, previous.episodes, MOST_EPISODES),
        _first_of(outcomes, previous.outcomes, MOST_OUTCOMES),
        _first_of(_job_names(journal, after, newest), previous.job_names, MOST_JOB_NAMES),
    )


def _first_of(new: Mapping[str, _V], old: Mapping[str, _V], most: int) -> Mapping[str, _V]:
    """At most so many of both, new ones first."""
    return dict(islice({**new, **{key: value for key, value in old.items() if key not in new}}.items(), most))


def _first(journal: JournalReader, start: int, at: int) -> int:
    """The time at which the journal begins, or `start` if that is later."""
    first = next(journal.remembered(), None)
    return max(start, parsed(first.observed_at)) if first else at


def _records_since(start: int, records: Iterator[_R], most: int) -> list[_R]:
    """The records since `start`, newest first, and at most so many."""
    begin = timestamp(start)
    return list(islice(takewhile(lambda record: record.observed_at >= begin, records), most))


def _job_names(journal: JournalReader, after: int, until: int) -> dict[str, str]:
    names: dict[str, str] = {}
    for evidence in islice(journal.newest_first(Evidence, after, until, _OF_JOB), MOST_JOB_NAMES):
        if name := evidence.attributes.get("name"):
            names.setdefault(evidence.subject, name)
    return names


_READERS: Final = 2
"""Concurrent queries. Fewer than the server's threads, so that metrics are served while a disk hangs."""
_MOST_BYTES: Final = 4 << 20
"""Bytes of the records in one answer."""


class BusyError(Exception):
    """Too many queries are running."""


class EpisodeDetails(Explanation, frozen=True, kw_only=True):
    """Everything known of one episode."""

    words: list[str]
    """The text of `explain`."""


class Queries:
    """Thread-safe. Every method raises JournalError if the journal cannot be read, and BusyError while others read it."""

    def __init__(self, snapshot: Callable[[], Snapshot], journal: Callable[[], JournalReader]) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._readers = BoundedSemaphore(_READERS)
        self._last_day: LastDay | None = None

    def transitions(self, last: int) -> list[TransitionRecord]:
        """The last `last` transitions, newest first; fewer if they are too large together."""
        with self._reading() as journal:
            return journal.latest(TransitionRecord, last, _MOST_BYTES)

    def episodes(self, last: int) -> list[EpisodeView]:
        """The last `last` failovers: those in progress, then the newest first; fewer if they are too large together."""
        with self._reading() as journal:
            recorded = journal.latest(EpisodeRecord, last, _MOST_BYTES)
            outcomes = outcomes_of(journal.outcomes(0, journal.newest()))
        return episode_view.latest(recorded, outcomes, self._snapshot())[:last]

    def last_day(self) -> LastDay:
        """The recorded last day. The journal is read again when it has a new record, and while others read it, the last answer holds."""
        day = self._last_day
        try:
            with self._reading() as journal:
                if day is None or day.newest != journal.newest():
                    self._last_day = day = read_last_day(journal, self._snapshot().at.wall, day)
        except BusyError:
            if day is None:
                raise
        return day

    def episode(self, name: str) -> Explanation:
        """The episode whose id begins with `name`. Raises UnknownEpisodeError."""
        with self._reading() as journal:
            return find(journal.remembered(), name, self._snapshot())

    def details(self, name: str) -> EpisodeDetails:
        """The explanation of an episode, with its text, for the API. Raises UnknownEpisodeError."""
        why = self.episode(name)
        return EpisodeDetails(**asdict(why), words=list(explanation_lines(why)))

    @contextmanager
    def _reading(self) -> Iterator[JournalReader]:
        if not self._readers.acquire(blocking=False):
            raise BusyError("other requests are reading the journal: try again")
        try:
            with closing(self._journal()) as journal:
                yield journal
        finally:
            self._readers.release()
