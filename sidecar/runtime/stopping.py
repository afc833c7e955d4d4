"""The end of the process: waits for SIGTERM and SIGINT, then stops everything in reverse order, before one deadline."""

import logging
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self


class Termination(threading.Event):
    """Set by SIGTERM, SIGINT and `set`. Create it, and wait for it, in the main thread.

    The kernel may deliver a signal to any thread. CPython runs its handler when the main thread next executes Python code, which a main
    thread that waits for a lock never does. But the C handler also writes to the wakeup descriptor, in any thread: `wait` waits for that.
    Handlers of other signals (SIGHUP) also run in time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.set())

    def set(self) -> None:
        """May be called in any thread, and by a signal handler."""
        super().set()
        with suppress(BlockingIOError):  # bytes are waiting: it wakes anyway
            os.write(self._waker, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds, in the main thread. Returns whether it is set."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        while not self.is_set() and (seconds := deadline - time.monotonic()) > 0:
            if poll.poll(None if timeout is None else seconds * 1000):
                os.read(self._woken, 4096)
        return self.is_set()


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
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_logged, args=(step.name, stop), name=f"stop {step.name}", daemon=True)
        for stop in step.stops
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        log.warning("stopping: %s did not end within %.1f s and was abandoned", step.name, seconds)


def _logged(name: str, stop: Callable[[], object]) -> None:
    try:
        stop()
    except Exception as error:
        debug = log.isEnabledFor(logging.DEBUG)
        log.error("stopping: %s failed: %s: %s", name, type(error).__name__, error, exc_info=debug)
