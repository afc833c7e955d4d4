"""A mapping that is shared by many states is the same as the dict that is copied for each."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.overlay import Overlay, differing, with_items, without_items

_KEYS = st.integers(290, 310)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("with"), st.dictionaries(_KEYS, st.text(max_size=3), max_size=3)),
        st.tuples(st.just("without"), st.lists(_KEYS, max_size=3)),
        st.tuples(st.just("read"), st.none()),
    ),
    max_size=60,
)


@given(st.sampled_from((0, 256, 300, 500)), _CHANGES)
def test_an_overlay_is_what_a_copied_dict_is(size: int, steps: list[tuple[str, object]]) -> None:
    """After any changes: the same items in the same order, whether or not it was read as a whole between them; no state changes later."""
    copied: dict[int, str] = dict.fromkeys(range(size), "")
    shared = with_items({}, copied)
    history = []
    for what, change in steps:
        match what, change:
            case "with", dict():
                copied, shared = {**copied, **change}, with_items(shared, change)
            case "without", list():
                copied = {key: value for key, value in copied.items() if key not in change}
                shared = without_items(shared, change)
            case _:
                assert [*shared] == [*copied]
        history.append((copied, shared))
    for expected, state in history:
        keys = range(610)
        assert [state.get(key) for key in keys] == [expected.get(key) for key in keys]
        assert [key in state for key in keys] == [key in expected for key in keys]
        assert (len(state), bool(state)) == (len(expected), bool(expected))
        assert [*state.items()] == [*expected.items()]
        assert [*state.keys(), *state.values()] == [*expected, *expected.values()]
        assert state == expected
    for (old, before), (new, after) in pairwise(history):
        removed, replaced = differing(before, after)
        assert sorted(removed) == sorted(old.keys() - new.keys())
        assert replaced == {key: value for key, value in new.items() if old.get(key) is not value}


def test_a_change_shares_what_it_does_not_change() -> None:
    """Of ten thousand items one is replaced: the others are not copied."""
    before: dict[int, str] = dict.fromkeys(range(10_000), "")
    after = with_items(before, {7: "x"})
    assert isinstance(after, Overlay)
    assert after.layers == (before, {7: "x"})
    assert after.layers[0] is before


def test_a_removed_item_is_not_there() -> None:
    """As in a dict, also if it was never in what lies below."""
    one = without_items(with_items(dict.fromkeys(range(1_000), ""), {1_001: "x"}), [3, 1_001])
    assert isinstance(one, Overlay)
    for key in (3, 1_001, 5_000):
        with pytest.raises(KeyError):
            one[key]
    assert len(one) == 999
    assert without_items(one, [3]) is one
