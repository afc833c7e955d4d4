"""How long to wait between two attempts to watch."""

import random
from typing import Final

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_GROWTH: Final = 1.3
"""A pause is a quarter of the outage so far: an outage of two seconds stays below the trust window."""


class Retries:
    """A pause that grows with each attempt that fails or ends early, with jitter."""

    def __init__(self) -> None:
        self._pause = 0.0

    def ended(self, *, well: bool) -> None:
        """An attempt ended: in order, or not."""
        self._pause = 0.0 if well else min(max(self._pause * _GROWTH, _FIRST_PAUSE), _LONGEST_PAUSE)

    def pause(self) -> float:
        """Seconds until the next attempt."""
        return self._pause * random.uniform(0.5, 1.0)  # noqa: S311  spreads sidecars over time, hides nothing
