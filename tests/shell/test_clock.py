"""Steady time never runs backwards."""

from sidecar.core.moment import SECOND, Moment
from sidecar.runtime.clock import Clock

YEAR = 365 * 24 * 3600 * SECOND


def test_steady_time_goes_on_where_an_earlier_process_left_it() -> None:
    """Also when the wall clock was set back a year in between."""
    before = Clock()()
    left = Moment(before.steady + YEAR, before.wall + YEAR)
    now = Clock(after=left)()
    assert now.steady >= left.steady
    assert now.wall < left.wall


def test_steady_time_begins_at_wall_time() -> None:
    """So that a downtime counts as long as it was."""
    before = Clock()()
    now = Clock(after=Moment(before.steady - YEAR, 0))()
    after = Clock()()
    assert before.wall - SECOND < now.steady < after.wall + SECOND  # the wall clock may be adjusted meanwhile
