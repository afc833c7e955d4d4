"""Waiting for a condition: as long as it takes, up to a limit."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""For what comes: far more than it takes on a busy machine, and paid only where it does not come."""
LOADED_MACHINE_SECONDS = 10.0
"""How late anything may be because others use the machine too: added to what is promised where seconds are asserted beside other tests.
The figures of a machine of one's own are those of the tests marked `timing` and of `tests/bench`.
"""
_POLL_SECONDS = 0.05


def wait_for(what: str, ready: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """What `ready` gives as soon as it gives something that is true."""
    deadline = time.monotonic() + seconds
    while not (value := ready()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(_POLL_SECONDS)
    return value


def until(condition: Callable[[], object], seconds: float, every: float = 0.01) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True
