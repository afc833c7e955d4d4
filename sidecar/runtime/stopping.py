"""Stops everything in reverse order, before one deadline."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from sidecar.runtime.threads import join_all

log = logging.getLogger("sidecar")

STOP_SECONDS: Final = 10.0
"""The time for the whole shutdown after SIGTERM: Kubernetes and Docker kill processes that take longer than their grace period."""
_KEPT: Final = 0.05
"""The share of the time that is reserved for each remaining step."""


class _Step(NamedTuple):
    name: str
    stops: tuple[Callable[[], object], ...]
    at_most: float


class Stopping:
    """A context manager that takes the steps in reverse order at its end, and abandons a step that hangs."""

    def __init__(self, seconds: float = STOP_SECONDS) -> None:
        self._seconds = seconds
        self._steps: list[_Step] = []

    def add(self, name: str, *stops: Callable[[], object], at_most: float = STOP_SECONDS) -> None:
        """Add a step: call all `stops` in parallel, and wait at most `at_most` seconds."""
        self._steps.append(_Step(name, stops, at_most))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        deadline = time.monotonic() + self._seconds
        while self._steps:
            step = self._steps.pop()
            seconds = deadline - time.monotonic() - self._seconds * _KEPT * len(self._steps)
            _take(step, max(0.0, min(step.at_most, seconds)))


def _take(step: _Step, seconds: float) -> None:
    threads = [
        threading.Thread(target=_logged, args=(step.name, stop), name=f"stop {step.name}", daemon=True)
        for stop in step.stops
    ]
    for thread in threads:
        thread.start()
    join_all(threads, seconds)
    if any(thread.is_alive() for thread in threads):
        log.warning("stopping: %s did not end within %.1f s and was abandoned", step.name, seconds)


def _logged(name: str, stop: Callable[[], object]) -> None:
    try:
        stop()
    except Exception as error:
        debug = log.isEnabledFor(logging.DEBUG)
        log.error("stopping: %s failed: %s: %s", name, type(error).__name__, error, exc_info=debug)
