"""Essential threads: they survive exceptions, a dead one is reported, and where one hangs, the log says what each thread does."""

import logging
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import PurePath
from types import FrameType
from typing import Final
from weakref import WeakSet

PAUSE_SECONDS: Final = 1.0
"""The pause between an exception and the next run."""
_POLL_SECONDS: Final = 1.0
_MOST_DOUBLINGS: Final = 6
"""The longest pause after failures is about a minute."""

_log = logging.getLogger("sidecar.threads")
_started: "WeakSet[ServiceThread]" = WeakSet()


class ServiceThread(threading.Thread):
    """A daemon thread that runs `work` until it returns; after an exception it logs one line and runs it again.

    `work` returns only to stop. It must settle its current item before it raises.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.finished = False
        """True if `work` has returned."""

    def start(self) -> None:
        super().start()
        _started.add(self)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, if it was started."""
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        while not self.finished:
            try:
                self._work()
                self.finished = True
            except Exception as error:  # noqa: BLE001  a thread that ended silently would lose alerts
                self._log(logging.ERROR, "failed and is restarted", error)
                time.sleep(PAUSE_SECONDS)
            except BaseException as error:  # noqa: BLE001  such as SystemExit: `dead` names the thread
                self._log(logging.CRITICAL, "has ended", error)
                return

    def _log(self, level: int, event: str, error: BaseException) -> None:
        debug = _log.isEnabledFor(logging.DEBUG)
        _log.log(level, "thread %s %s: %s: %s", self.name, event, type(error).__name__, error, exc_info=debug)


def dead() -> list[str]:
    """The names of the threads that have ended although their work has not returned."""
    return sorted(thread.name for thread in list(_started) if not (thread.finished or thread.is_alive()))


def join_all(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait until all have ended, at most so many seconds altogether."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def jittered(seconds: float, least: float = 0.75) -> float:
    """Between `least` times these seconds and all of them: spreads sidecars, and their attempts, over time."""
    return seconds * random.uniform(least, 1.0)  # noqa: S311  not for secrecy


def poll_pause(failures: int) -> float:
    """Seconds until a thread that polls tries again, after this many failures in a row: with jitter, a minute at most."""
    return jittered(_POLL_SECONDS * (1 << min(failures, _MOST_DOUBLINGS)))


STALLED_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_MOST_THREADS: Final = 40
_MOST_FRAMES: Final = 12

_watchdog_log = logging.getLogger("sidecar.watchdog")


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
        _watchdog_log.warning("the thread %s has not turned for %.0f s; where each thread is:", self._name, seconds)
        frames = sys._current_frames()  # noqa: SLF001  documented, in spite of its name
        threads = sorted(threading.enumerate(), key=lambda thread: thread.name != self._name)
        for thread in threads[:_MOST_THREADS]:
            if frame := frames.get(thread.ident or 0):
                _watchdog_log.warning("thread %s: %s", thread.name, stack(frame))
        if len(threads) > _MOST_THREADS:
            _watchdog_log.warning("… and %d more threads", len(threads) - _MOST_THREADS)


def stack(frame: FrameType | None) -> str:
    """`loop.py:250 _turn < loop.py:164 _run`."""
    places: list[str] = []
    while frame and len(places) < _MOST_FRAMES:
        code = frame.f_code
        places.append(f"{PurePath(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join([*places, *(["…"] if frame else [])])
