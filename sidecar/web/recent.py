"""The recorded last day of all clusters, for the pictures of the status page: read from the journal once for each new record."""

from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND, parsed, timestamp
from sidecar.core.records import Coverage, EpisodeRecord, Evidence, TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.timeline import Blind, Change, blindness, change
from sidecar.journal import JournalReader

DAY: Final = 24 * 3600 * SECOND
MOST_TRANSITIONS: Final = 10_000
"""Of the clusters' own components. Beyond that the picture begins later."""
MOST_COVERAGE: Final = 10_000
MOST_EPISODES: Final = 1_000
LATEST_EPISODES: Final = 10
"""Read however old they are."""
MOST_JOB_EVIDENCE: Final = 500

_OF_CLUSTER: Final = b'"job_id":null'
_OF_JOB: Final = b'"kind":"job"'


class Recent(Struct, frozen=True):
    """What the journal holds of the last day, and the latest failovers."""

    newest: int = 0
    """The journal's last record."""
    since: int = 0
    """What was recorded from then on (wall) is all here."""
    changes: Mapping[tuple[str, str], Sequence[Change]] = {}
    """By cluster and component, in order."""
    blind: Mapping[str, Sequence[Blind]] = {}
    """By cluster: when the store could not be read."""
    episodes: Sequence[EpisodeView] = ()
    """Closed ones, newest first."""
    job_names: Mapping[str, str] = {}
    """By job id: the names that Flink's REST API told when evidence was captured. Untrusted text."""


def read(journal: JournalReader, at: int) -> Recent:
    """The day before `at` (wall). Raises JournalError."""
    start = timestamp(at - DAY)
    newest = journal.newest()
    recorded = takewhile(
        lambda each: each.observed_at >= start, journal.newest_first(TransitionRecord, containing=_OF_CLUSTER)
    )
    transitions = list(islice(recorded, MOST_TRANSITIONS))
    changes: dict[tuple[str, str], list[Change]] = {}
    for each in reversed(transitions):
        changes.setdefault((each.cluster_id, each.component), []).append(change(each))
    covered = takewhile(lambda each: each.to >= start, journal.newest_first(Coverage))
    blind: dict[str, list[Blind]] = {}
    for coverage in islice(covered, MOST_COVERAGE):
        if found := blindness(coverage):
            blind.setdefault(coverage.cluster_id, []).append(found)
    return Recent(
        newest,
        _since(journal, transitions, at - DAY),
        changes,
        blind,
        _episodes(journal, start),
        _job_names(journal),
    )


def _since(journal: JournalReader, transitions: Sequence[TransitionRecord], start: int) -> int:
    if len(transitions) == MOST_TRANSITIONS:
        return parsed(transitions[-1].observed_at)
    first = next(journal.remembered(), None)
    return max(start, parsed(first.observed_at)) if first else start + DAY


def _episodes(journal: JournalReader, start: str) -> list[EpisodeView]:
    found = []
    for record in islice(journal.newest_first(EpisodeRecord), MOST_EPISODES):
        if len(found) >= LATEST_EPISODES and record.opened_at < start:
            break
        found.append(episode_view.closed(record))
    return found


def _job_names(journal: JournalReader) -> dict[str, str]:
    names: dict[str, str] = {}
    for evidence in islice(journal.newest_first(Evidence, containing=_OF_JOB), MOST_JOB_EVIDENCE):
        if name := evidence.attributes.get("name"):
            names.setdefault(evidence.subject, name)
    return names
