"""The recorded last day of all clusters, for the pictures of the status page: read from the journal once for each new record."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from operator import attrgetter
from typing import Final, TypeVar

from msgspec import Struct

from sidecar.core.moment import SECOND, parsed, timestamp
from sidecar.core.records import Coverage, EpisodeRecord, Evidence, Record, TransitionRecord
from sidecar.core.views.episode_view import EpisodeOutcome, outcomes_of
from sidecar.core.views.timeline import Blind, Switch, blindness, change
from sidecar.journal import JournalReader

DAY: Final = 24 * 3600 * SECOND
MOST_TRANSITIONS: Final = 10_000
"""Of the clusters' own components. Beyond that the picture begins later."""
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
    """What the journal holds of the last day, and the latest failovers."""

    newest: int = 0
    """The journal's last record."""
    since: int = 0
    """What was recorded from then on (wall) is all here."""
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


def read(journal: JournalReader, at: int, previous: LastDay | None = None) -> LastDay:
    """The day before `at` (wall). Only records that are newer than `previous` are read. Raises JournalError."""
    start, newest = at - DAY, journal.newest()
    if previous is None or newest < previous.newest:  # the journal was replaced
        previous = LastDay(since=_first(journal, start, at))
    after = previous.newest
    transitions = _since(start, journal.newest_first(TransitionRecord, after, newest, _OF_CLUSTER), MOST_TRANSITIONS)
    changes = {key: [change for change in old if change.at >= start] for key, old in previous.changes.items()}
    for transition in reversed(transitions):
        changes.setdefault((transition.cluster_id, transition.component), []).append(change(transition))
    for timeline in changes.values():  # records that were salvaged from a damaged journal are read a second time
        timeline.sort(key=attrgetter("at"))
    blind = {name: [period for period in old if period[1] >= start] for name, old in previous.blind.items()}
    for coverage in reversed(_since(start, journal.newest_first(Coverage, after, newest), MOST_COVERAGE)):
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
    """When the journal begins, or `start` if that is later."""
    first = next(journal.remembered(), None)
    return max(start, parsed(first.observed_at)) if first else at


def _since(start: int, records: Iterator[_R], most: int) -> list[_R]:
    """The records since `start`, newest first, and at most so many."""
    begin = timestamp(start)
    return list(islice(takewhile(lambda record: record.observed_at >= begin, records), most))


def _job_names(journal: JournalReader, after: int, until: int) -> dict[str, str]:
    names: dict[str, str] = {}
    for evidence in islice(journal.newest_first(Evidence, after, until, _OF_JOB), MOST_JOB_NAMES):
        if name := evidence.attributes.get("name"):
            names.setdefault(evidence.subject, name)
    return names
