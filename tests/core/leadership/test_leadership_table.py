"""The leadership table, row by row, in the words of the contract."""

from itertools import product
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.flink.leadership import Blindness, Held, LeaderInformation, Leadership, Unknown, Vacant, ZNodePosition
from sidecar.core.leadership.transitions import QUIET, TABLE, Kind, Sight, Unreachable, compare, kind_of, pattern

POSITION = ZNodePosition("/leader/dispatcher/connection_info", 1, 1, 0, 7, 0)
LEADER = LeaderInformation("pekko.tcp://flink@jm-a:6123/user/rpc/dispatcher_0", UUID(int=1))

UNKNOWN, VACANT, HELD = Unknown(), Vacant(), Held(LEADER, POSITION)


@pytest.mark.parametrize(
    ("before", "sight", "kind", "letters"),
    [
        (UNKNOWN, Sight.ANOTHER_LEADER, Kind.DISCOVERED, "?->A"),
        (UNKNOWN, Sight.NO_LEADER, Kind.DISCOVERED, "?->null"),
        (UNKNOWN, Sight.JOB_ENDED, Kind.RETIRED, "?->gone"),
        (UNKNOWN, Sight.NO_VIEW, QUIET, None),
        (VACANT, Sight.ANOTHER_LEADER, Kind.GRANTED, "null->B"),
        (VACANT, Sight.NO_LEADER, QUIET, None),
        (VACANT, Sight.JOB_ENDED, Kind.RETIRED, "null->gone"),
        (VACANT, Sight.NO_VIEW, Kind.OBSCURED, "null->?"),
        (HELD, Sight.SAME_LEADER, QUIET, None),
        (HELD, Sight.SAME_SESSION_ELSEWHERE, Kind.READDRESSED, "A->A'"),
        (HELD, Sight.ANOTHER_LEADER, Kind.CHANGED, "A->B"),
        (HELD, Sight.NO_LEADER, Kind.REVOKED, "A->null"),
        (HELD, Sight.JOB_ENDED, Kind.RETIRED, "A->gone"),
        (HELD, Sight.NO_VIEW, Kind.OBSCURED, "A->?"),
    ],
)
def test_a_row_of_the_table(before: Leadership, sight: Sight, kind: Kind | None, letters: str | None) -> None:
    """What was true and what is seen now decide what happened, and how it is written."""
    assert kind_of(before, sight) == kind
    if kind is not None:
        assert pattern(before, kind, held_after=sight is Sight.ANOTHER_LEADER) == letters


def test_the_table_is_complete() -> None:
    """Every leadership meets every sight in exactly one cell, and every kind can happen."""
    assert set(TABLE) == set(product(get_args(Leadership), Sight))
    assert {cell for cell in TABLE.values() if isinstance(cell, Kind)} == set(Kind)


_LEADERS = st.builds(LeaderInformation, st.sampled_from(["a", "b"]), st.sampled_from([UUID(int=1), UUID(int=2)]))
_LEADERSHIPS: st.SearchStrategy[Leadership] = st.one_of(
    st.builds(Unknown, st.sampled_from(Blindness)), st.just(VACANT), st.builds(Held, _LEADERS, st.just(POSITION))
)


@given(_LEADERSHIPS, _LEADERS)
def test_a_leader_never_leads_to_an_unreachable_cell(before: Leadership, leader: LeaderInformation) -> None:
    """`compare` finds a cell that can be reached, and a quiet one only for the leader that was known."""
    kind = kind_of(before, compare(before, leader))
    assert (kind is QUIET) == (isinstance(before, Held) and before.leader == leader)


def test_an_unreachable_cell_is_refused() -> None:
    """Who asks for one has compared with something else than what was true: that must not go on."""
    unreachable = [cell for cell, kind in TABLE.items() if isinstance(kind, Unreachable)]
    assert {before for before, _ in unreachable} == {Unknown, Vacant}
    for before, sight in unreachable:
        with pytest.raises(AssertionError):
            kind_of(UNKNOWN if before is Unknown else VACANT, sight)
