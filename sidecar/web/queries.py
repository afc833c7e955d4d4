"""Recorded transitions and failovers for the pages and the API: from the journal, and failovers in progress from the newest snapshot."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import BoundedSemaphore
from typing import Final

from msgspec.structs import asdict

from sidecar.core.records import EpisodeRecord, TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import EpisodeView, outcomes_of
from sidecar.core.views.explain import Explanation, find, in_words
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalReader
from sidecar.web import last_day
from sidecar.web.last_day import LastDay

_READERS: Final = 2
"""Concurrent queries. Fewer than the server's threads, so that metrics are served while a disk hangs."""
_MOST_BYTES: Final = 4 << 20
"""Of the records in one answer."""


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
                    self._last_day = day = last_day.read(journal, self._snapshot().at.wall, day)
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
        return EpisodeDetails(**asdict(why), words=list(in_words(why)))

    @contextmanager
    def _reading(self) -> Iterator[JournalReader]:
        if not self._readers.acquire(blocking=False):
            raise BusyError("other requests are reading the journal: try again")
        try:
            with closing(self._journal()) as journal:
                yield journal
        finally:
            self._readers.release()
