"""The only clock: wall time for people, steady time for durations and deadlines."""

import time

from sidecar.core.moment import Moment


class Clock:
    """Calls give the present `Moment`. Steady time runs with the system's monotonic clock, whatever happens to the wall clock.

    It begins at wall time or where an earlier process left it (`after`), whichever is later: so it never runs backwards over a restart.
    """

    def __init__(self, after: Moment | None = None) -> None:
        begin = max(time.time_ns() // 1000, after.steady if after else 0)
        self._offset = begin - time.monotonic_ns() // 1000

    def __call__(self) -> Moment:
        return Moment(steady=self._offset + time.monotonic_ns() // 1000, wall=time.time_ns() // 1000)
