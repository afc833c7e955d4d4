"""The age of the view: when to probe the server, how long an answer may take, and what an answer confirms."""

import threading
import time
from collections import deque

from sidecar.core.moment import Moment

_LONGEST_SILENCE = 10.0
_LONGEST_ANSWER = 10.0
"""Seconds that a probe may wait while other data arrives: that data is as old as the probe."""
_INTERVAL_SECONDS = 1.0


class Probe:
    """One probe at a time. kazoo considers a connection alive as long as it can write to it. Times are monotonic seconds."""

    def __init__(self, session_timeout: float) -> None:
        self.longest_silence = min(_LONGEST_SILENCE, session_timeout / 3)
        self.interval = min(_INTERVAL_SECONDS, self.longest_silence / 3)
        """Seconds between two probes."""
        self._answered = threading.Event()
        self._answered.set()
        self._sent_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last probe was answered."""
        return self._answered.is_set()

    @property
    def waited(self) -> float:
        """Seconds since the last probe was sent."""
        return time.monotonic() - self._sent_at

    def send(self) -> threading.Event:
        """Start a probe. Returns the event to set, from any thread, when it is answered."""
        self._sent_at = time.monotonic()
        self._answered = threading.Event()
        return self._answered

    def forget(self) -> None:
        """Forget the probe of an earlier connection."""
        self._answered.set()

    def patience(self, heard_at: float) -> float:
        """Seconds until the connection must be cut, if the server last sent anything at `heard_at`. 0 or less: now."""
        silent = time.monotonic() - heard_at
        silence_left = max(self.longest_silence - silent, self.longest_silence * 2 / 3 - self.waited)
        return min(silence_left, _LONGEST_ANSWER - self.waited)


class Confirmations:
    """Decides when a probe confirms the view: when all reads pending at its answer are answered. Answers arrive in order."""

    def __init__(self) -> None:
        self.answered = 0
        """The number of answered reads."""
        self._waiting: deque[tuple[int, Moment]] = deque()

    def forget(self) -> None:
        """Start over, on a new connection."""
        self._waiting.clear()

    def notified_until(self, at: Moment, reads: int) -> None:
        """All watch events from before `at` have arrived; `reads` caused by them are pending."""
        self._waiting.append((self.answered + reads, at))

    def confirmed(self) -> Moment | None:
        """The latest moment up to which everything has been observed; None: unchanged."""
        at = None
        while self._waiting and self._waiting[0][0] <= self.answered:
            _, at = self._waiting.popleft()
        return at
