"""How old the view is: when to ask the server something, how long its answer may take, and what the answer confirms."""

import threading
import time
from collections import deque

from sidecar.core.moment import Moment

_LONGEST_SILENCE = 10.0
_LONGEST_ANSWER = 10.0
"""For how long a probe may wait for its answer while other bytes come in: what they say is as old."""
_EACH_SECONDS = 1.0


class Probe:
    """One question at a time: kazoo believes in a connection for as long as it can put questions into it. Times are monotonic seconds."""

    def __init__(self, session_timeout: float) -> None:
        self.longest_silence = min(_LONGEST_SILENCE, session_timeout / 3)
        self.each = min(_EACH_SECONDS, self.longest_silence / 3)
        """Seconds between two probes."""
        self._answered = threading.Event()
        self._answered.set()
        self._sent_at = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last one was answered."""
        return self._answered.is_set()

    @property
    def waited(self) -> float:
        """Seconds since the last one was sent."""
        return time.monotonic() - self._sent_at

    def send(self) -> threading.Event:
        """What is to be set, from any thread, when it is answered."""
        self._sent_at = time.monotonic()
        self._answered = threading.Event()
        return self._answered

    def forget(self) -> None:
        """What an earlier connection owes us is not due on this one."""
        self._answered.set()

    def patience(self, heard_at: float) -> float:
        """Seconds until the connection is to be cut, where something was last heard at `heard_at`; none are left: 0 or less."""
        silent = time.monotonic() - heard_at
        silence_left = max(self.longest_silence - silent, self.longest_silence * 2 / 3 - self.waited)
        return min(silence_left, _LONGEST_ANSWER - self.waited)


class Confirmations:
    """Which probe confirms the view: the one behind which every read that it led to was answered. Answers to reads come in order."""

    def __init__(self) -> None:
        self.answered = 0
        """Reads that were answered so far."""
        self._waiting: deque[tuple[int, Moment]] = deque()

    def forget(self) -> None:
        """Begin anew, on a new connection."""
        self._waiting.clear()

    def heard_all_before(self, at: Moment, reads: int) -> None:
        """All that happened before `at` has been heard, and `reads` are under way or to come because of it."""
        self._waiting.append((self.answered + reads, at))

    def confirmed(self) -> Moment | None:
        """The latest moment of which everything has been observed, if there is a new one."""
        at = None
        while self._waiting and self._waiting[0][0] <= self.answered:
            _, at = self._waiting.popleft()
        return at
