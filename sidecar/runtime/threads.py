"""Essential threads: they survive exceptions, and a dead one is reported."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
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
        """Whether `work` has returned."""

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
