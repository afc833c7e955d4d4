"""What a driver has told people lately: a problem that lasts is said once a minute, not at each attempt."""

import time
from typing import Final

_INTERVAL_SECONDS: Final = 60.0
_MOST_LINES: Final = 100


class Said:
    """The lines that were said. Bounded: of too many, all are forgotten."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def __contains__(self, line: str) -> bool:
        return line in self._said

    def is_news(self, line: str) -> bool:
        """Whether it is time to say `line`, which then counts as said."""
        now = time.monotonic()
        if now - self._said.get(line, -_INTERVAL_SECONDS) < _INTERVAL_SECONDS:
            return False
        if len(self._said) >= _MOST_LINES:
            self._said.clear()
        self._said[line] = now
        return True

    def forget(self) -> None:
        """All is well again: the next problem is news."""
        self._said.clear()
