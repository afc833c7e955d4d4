"""Waits for SIGTERM and SIGINT, whichever thread receives them."""

import math
import os
import select
import signal
import threading
import time
from contextlib import suppress


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
