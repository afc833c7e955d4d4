"""The only clock: wall time to print, steady time for durations and deadlines."""

import time

from sidecar.core.moment import Moment


class Clock:
    """Returns the current `Moment` when called. Steady time follows the system's monotonic clock.

    Steady time starts at the later of wall time and `after`, the last moment of the previous process: it never goes back at a restart.
    """

    def __init__(self, after: Moment | None = None) -> None:
        begin = max(time.time_ns() // 1000, after.steady if after else 0)
        self._offset = begin - time.monotonic_ns() // 1000

    def __call__(self) -> Moment:
        return Moment(steady=self._offset + time.monotonic_ns() // 1000, wall=time.time_ns() // 1000)
