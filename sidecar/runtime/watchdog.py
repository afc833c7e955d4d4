"""Logs what all threads of this process do when one of them hangs: afterwards nobody can see it."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Final

from sidecar.runtime.threads import ServiceThread

STALLED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_MOST_THREADS: Final = 40
_MOST_FRAMES: Final = 12

_log = logging.getLogger("sidecar.watchdog")


class Watchdog:
    """A thread that looks whether another one goes on."""

    def __init__(self, name: str, turned_at: Callable[[], float]) -> None:
        """`name`: of the thread that is watched. `turned_at`: when it began its last turn (monotonic)."""
        self._name = name
        self._turned_at = turned_at
        self._stopping = threading.Event()
        self._thread = ServiceThread(self._watch, "watchdog")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End soon. May be called twice, and before `start`."""
        self._stopping.set()

    def _watch(self) -> None:
        logged = None
        looked_at = time.monotonic()
        while not self._stopping.wait(_LOOK_SECONDS):
            before, looked_at = looked_at, time.monotonic()
            turned_at = self._turned_at()
            if looked_at - before > STALLED_SECONDS:
                continue  # the whole process was stopped
            if looked_at - turned_at >= STALLED_SECONDS and turned_at != logged:
                logged = turned_at
                self._log_stacks(looked_at - turned_at)

    def _log_stacks(self, seconds: float) -> None:
        """Log one line for each thread: where it is, the innermost frame first. No values."""
        _log.warning("the thread %s has not turned for %.0f s; where each thread is:", self._name, seconds)
        frames = sys._current_frames()  # noqa: SLF001  documented, in spite of its name
        threads = sorted(threading.enumerate(), key=lambda thread: thread.name != self._name)
        for thread in threads[:_MOST_THREADS]:
            if frame := frames.get(thread.ident or 0):
                _log.warning("thread %s: %s", thread.name, stack(frame))
        if len(threads) > _MOST_THREADS:
            _log.warning("… and %d more threads", len(threads) - _MOST_THREADS)


def stack(frame: FrameType | None) -> str:
    """`loop.py:250 _turn < loop.py:164 _run`."""
    places: list[str] = []
    while frame and len(places) < _MOST_FRAMES:
        code = frame.f_code
        places.append(f"{PurePath(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join([*places, *(["…"] if frame else [])])
