"""Whether a leader has a standby that can be relied on, over any history of JobManagers that come and go."""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.leadership.leadership_account import MOST_LACKED, STANDBY_AGE, Standby
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.triggers import Trigger
from tests.core.triggers import contend, watching
from tests.kit.groups import examples

MINUTE: Final = 60
NO_STANDBY: Final = Rule("FlinkNoStandby", Trigger.NO_STANDBY, Severity.WARNING, hold_for=600 * SECOND)


def at(second: float) -> Moment:
    return Moment(round(second * SECOND), round(second * SECOND))


def after(stints: Sequence[tuple[int, int]], *, until: int) -> Standby:
    """One that has contended for ten minutes, and then was away and back again for so many seconds."""
    now = 10 * MINUTE
    standby = Standby().with_contenders(2, at(0))
    for away, back in stints:
        if now >= until:
            break
        standby = standby.with_contenders(1, at(now))
        if now + away >= until:
            break
        standby = standby.with_contenders(2, at(now + away))
        now += away + back
    return standby.settled(at(until))


def is_reported(standby: Standby, now: int) -> bool:
    """Whether the rule of ten minutes fires."""
    since = standby.lacking_since
    return (
        since is not None
        and (standby.alone_since is not None or standby.loops)
        and now - since.steady // SECOND >= 10 * MINUTE
    )


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 230)), min_size=3, max_size=12))
@settings(max_examples=examples(200))
def test_a_standby_that_is_back_for_less_than_four_minutes_each_time_is_reported_within_ten(
    stints: list[tuple[int, int]],
) -> None:
    """However short it is away: of the last ten minutes it was one that can be relied on for less than half."""
    for now in (20 * MINUTE, 25 * MINUTE, 60 * MINUTE):
        standby = after(stints * 3600, until=now)
        assert is_reported(standby, now) or (standby.left == 1 and standby.alone_since is None)


@given(st.integers(1, 590))
def test_one_absence_is_not_reported(away: int) -> None:
    """It is back in less than ten minutes and stays: at no time afterwards."""
    for now in range(10 * MINUTE, 40 * MINUTE, 31):
        assert not is_reported(after([(away, 3600)], until=now), now)
    assert after([(away, 3600)], until=40 * MINUTE).lacking_since is None


def is_lacking(stints: Sequence[tuple[int, int]], until: int) -> bool:
    """What a clock counts, second by second: one more without a standby or with one that has just come back, one less with a proven one."""
    turns: list[int] = []
    now = 10 * MINUTE
    for away, back in stints:
        turns += [now, now + away]
        now += away + back
    is_alone, is_lacking, since, lacked = False, False, 0, 0
    for second in range(until):
        if second in turns:
            was_proven = second - since >= STANDBY_AGE // SECOND
            is_alone, since = not is_alone, second
            is_lacking = is_lacking or (is_alone and was_proven)
        if is_lacking:
            proven = not is_alone and second - since >= STANDBY_AGE // SECOND
            lacked = lacked - 1 if proven else min(lacked + 1, MOST_LACKED // SECOND)
            is_lacking = lacked > 0
    return is_lacking


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(1, 2000)), max_size=8), st.integers(1, 3000))
@settings(max_examples=examples(200))
def test_what_is_lacked_is_what_a_clock_counts(stints: list[tuple[int, int]], more: int) -> None:
    """In any history: of two minutes of each return nothing is made up for, and of ten minutes at most."""
    until = 10 * MINUTE + more
    assert (after(stints, until=until).lacking_since is not None) == is_lacking(stints, until)


@pytest.mark.parametrize(("away", "back"), [(5, 100), (30, 100), (60, 10), (20, 180), (3, 3)])
def test_a_standby_that_comes_and_goes_is_one_alert(away: int, back: int) -> None:
    """After ten minutes, as a loop, with the number of times; resolved once when it stays."""
    flink, sidecar = watching(NO_STANDBY)
    contend(2)(flink, sidecar)
    sidecar.waits(300, tick=5)
    begun = sidecar.now
    while not sidecar.sent and sidecar.now < begun + 700 * SECOND:
        contend(1)(flink, sidecar)
        sidecar.waits(away, tick=5)
        contend(2)(flink, sidecar)
        sidecar.waits(back, tick=5)
    [delivery] = sidecar.sent
    assert "again and again" in delivery.title
    sidecar.waits(1800, tick=10)
    assert [delivery.reason for delivery in sidecar.sent] == ["FIRST", "RESOLVED"]
