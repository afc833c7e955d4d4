"""The request to end: SIGTERM and SIGINT, noticed whichever thread they reach."""

import os
import select
import signal
import threading
import time
from contextlib import suppress


class Termination(threading.Event):
    """Set by SIGTERM, by SIGINT, and by `set`. Made, and waited for, in the main thread.

    The kernel may hand a signal to any thread, often to one that is starting a child process. CPython then only notes the signal: its
    handler runs when the main thread next executes Python code, and a main thread that waits for a lock never does. The C handler also
    writes to the wakeup descriptor, in any thread: that is what `wait` waits for. Handlers of other signals (SIGHUP) run in time as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: self.set())

    def set(self) -> None:
        """From any thread, and from a signal handler."""
        super().set()
        with suppress(BlockingIOError):  # bytes wait already: it will wake
            os.write(self._waker, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; whether it is set. In the main thread."""
        deadline = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        while not self.is_set():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            if poll.poll(None if left is None else left * 1000):
                os.read(self._woken, 4096)
        return self.is_set()
