"""Logs a lasting problem once a minute, not at each attempt."""

import time
from typing import Final

_INTERVAL_SECONDS: Final = 60.0
_MOST_LINES: Final = 100


class LogThrottle:
    """The lines logged lately. Bounded: when there are too many, all are forgotten."""

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def __contains__(self, line: str) -> bool:
        return line in self._logged

    def is_due(self, line: str) -> bool:
        """True if `line` is to be logged now; it then counts as logged."""
        now = time.monotonic()
        if now - self._logged.get(line, -_INTERVAL_SECONDS) < _INTERVAL_SECONDS:
            return False
        if len(self._logged) >= _MOST_LINES:
            self._logged.clear()
        self._logged[line] = now
        return True

    def reset(self) -> None:
        """Forget all lines: the problem is over, and the next one is logged at once."""
        self._logged.clear()
