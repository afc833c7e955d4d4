"""Patterns from documents that others write: Alertmanager's meaning, in bounded time."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.alerting.silence_document import (
    LARGEST,
    LONGEST_MATCHED,
    LONGEST_PATTERN,
    PatternError,
    full_match,
    pattern_size,
)

atoms = st.sampled_from(["a", "b", "-", "é", ".", r"\.", r"\d", r"\W", r"\s", "[ab]", "[^a-c]", r"[\d_-]", "[b-]"])
times = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        st.tuples(inner, times).map(lambda parts: f"({parts[0]}){parts[1]}"),
        inner.map(lambda pattern: f"(?:{pattern})"),
    )


patterns = st.recursive(st.tuples(atoms, times).map("".join), grown, max_leaves=6)


@given(patterns, st.text("ab.-1_ é\n", max_size=8))
def test_a_pattern_means_what_it_means_in_rule_files(pattern: str, text: str) -> None:
    """Every pattern that is understood; classes of ASCII, as in Alertmanager."""
    try:
        matches = full_match(pattern, text)
    except PatternError:
        return
    assert matches == (re.fullmatch(pattern, text, re.ASCII) is not None)


@pytest.mark.timing
@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+x",
        "(a|a)*x",
        "(a|aa)+x",
        "(.*)*x",
        "(" + "a*" * 95 + ")*b",
        "(?:" + "|".join(["a*"] * 40) + ")*b",
        "(a|a?)" * 30 + "x",
        "a{0,100}" * 24 + "x",
        "(" + "[a-z0-9]?" * 19 + ")*x",
        ".*a.{30}x",
        "(.*[a0]){8}x",
        "(?:.*a.{12}|.*b.{13}|.*c.{11})x",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Those that take Python's own matcher years: a thousand texts in half a second at most, on a busy machine; or refused at once."""
    began = time.process_time()
    with suppress(PatternError):
        assert not any(full_match(pattern, f"{n:03}{'a' * (LONGEST_MATCHED - 3)}") for n in range(1000))
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a", "missing ): (a"),
        ("a)", "unexpected ): a)"),
        ("[a", "missing ]"),
        ("[z-a]", "invalid character class range: z-a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("a{2,1}", "invalid repetition size: {2,1}"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{50}){50}", "invalid repetition size"),
        ("(?!a)b", "invalid perl operator: (?!"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a\\", "trailing \\"),
        ("a" * (LONGEST_PATTERN + 1), f"longer than {LONGEST_PATTERN}"),
        ("(" * 150, "missing )"),
        ("(" + "a{0,30}" * 8 + "){0,9}x", "too large"),
        ("[^a]{150}", "too large: use fewer repetitions, or two patterns"),
        ("\ud800", "is not text"),
    ],
)
def test_what_is_not_understood_is_named(pattern: str, problem: str) -> None:
    """Backreferences, assertions, too many repetitions: what would need backtracking, or very many steps."""
    with pytest.raises(PatternError, match=re.escape(problem)):
        pattern_size(pattern)


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("^orders$", ["orders"], ["orders-1"]),
        ("orders|billing", ["orders", "billing"], ["orders-billing", "my-orders"]),
        ("(?i)Orders", ["ORDERS"], ["orders-1"]),
        (r"\borders\b", ["orders"], ["my orders"]),
        ("[[:alpha:]]+", ["orders"], ["orders1"]),
        (".*", ["", "orders"], ["orders\n"]),
        ("", [""], ["a"]),
        (r"\p{Greek}+", ["αβγ"], ["abc"]),
    ],
)
def test_a_pattern_is_anchored_as_in_alertmanager(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    """At both ends, around all of its alternatives; with the syntax of RE2."""
    assert [full_match(pattern, text) for text in matched] == [True] * len(matched)
    assert [full_match(pattern, text) for text in not_matched] == [False] * len(not_matched)


def test_a_value_that_is_no_text_matches_nothing() -> None:
    """JSON can hold lone surrogates."""
    assert not full_match(".*", "\ud800")


def test_a_size_is_about_the_length_of_a_literal() -> None:
    """Ordinary patterns are far from the bound."""
    assert pattern_size("team-a-.*|billing-[0-9]{1,3}") < 50
    assert pattern_size("a" * LONGEST_PATTERN) < LARGEST


def test_a_long_value_matches_no_pattern() -> None:
    """The value of an external label may have any length."""
    assert full_match("a*", "a" * LONGEST_MATCHED)
    assert not full_match("a*", "a" * (LONGEST_MATCHED + 1))
