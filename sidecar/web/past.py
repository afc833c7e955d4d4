"""What happened, for scripts and people: from the journal, and of what is not over from the newest snapshot."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import BoundedSemaphore
from typing import Final

from msgspec import Struct

from sidecar.core.records import Annotation, EpisodeRecord, Evidence, Notification, TransitionRecord
from sidecar.core.views import episode_view
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.explain import Explanation, find, in_words
from sidecar.core.views.snapshot import Snapshot
from sidecar.journal import JournalReader

_READERS: Final = 2
"""Readings at one time: health and metrics have threads left while a disk hangs."""


class BusyError(Exception):
    """Others are reading."""


class Story(Struct, frozen=True):
    """All that is told of one episode."""

    episode: EpisodeView | None
    """Null: it was left before its end, by a sidecar that has lost its state."""
    words: list[str]
    """What `explain` says."""
    transitions: list[TransitionRecord]
    transitions_total: int
    notifications: list[Notification]
    annotations: list[Annotation]
    evidence: list[Evidence]
    """What was captured, or why it was not: its files are with the sidecar, and are not served."""


class Past:
    """Ask it from any thread. Everything raises JournalError when the journal cannot be read, and BusyError while others read it."""

    def __init__(self, snapshot: Callable[[], Snapshot], journal: Callable[[], JournalReader]) -> None:
        self._snapshot = snapshot
        self._journal = journal
        self._readers = BoundedSemaphore(_READERS)

    def transitions(self, last: int) -> list[TransitionRecord]:
        """The last so many, the newest first."""
        with self._reading() as journal:
            return journal.latest(TransitionRecord, last)

    def episodes(self, last: int) -> list[EpisodeView]:
        """The last so many, the newest first: what is not over leads."""
        with self._reading() as journal:
            recorded = [episode_view.closed(episode) for episode in journal.latest(EpisodeRecord, last)]
        known = {episode.id for episode in recorded}
        # One that has just been recorded may not have left the snapshot yet.
        return [*(each for each in episode_view.in_progress(self._snapshot()) if each.id not in known), *recorded][
            :last
        ]

    def episode(self, name: str) -> tuple[Explanation, EpisodeView | None]:
        """That whose id begins with `name`. Raises UnknownEpisodeError."""
        with self._reading() as journal:
            in_progress = {each.id: each for each in episode_view.in_progress(self._snapshot())}
            explained = find(journal.remembered(), name, in_progress)
        recorded = episode_view.closed(explained.episode) if explained.episode else None
        return explained, recorded or in_progress.get(explained.id)

    def story(self, name: str) -> Story:
        """The same, as data."""
        found, episode = self.episode(name)
        return Story(
            episode,
            list(in_words(found)),
            list(found.transitions),
            found.transitions_total,
            list(found.notifications),
            list(found.annotations),
            list(found.evidence),
        )

    @contextmanager
    def _reading(self) -> Iterator[JournalReader]:
        if not self._readers.acquire(blocking=False):
            raise BusyError("others are reading the journal: ask again")
        try:
            with closing(self._journal()) as journal:
                yield journal
        finally:
            self._readers.release()
