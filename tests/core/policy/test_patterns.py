"""Patterns from documents that others write: Python's own meaning, in bounded time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.policy.patterns import LONGEST_PATTERN, LONGEST_TEXT, PatternError, check, full_match

atoms = st.sampled_from(["a", "b", "-", "é", ".", r"\.", r"\d", r"\W", r"\s", "[ab]", "[^a-c]", r"[\d_-]", "[b-]"])
times = st.sampled_from(["", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map("|".join),
        st.tuples(inner, times).map(lambda each: f"({each[0]}){each[1]}"),
        inner.map(lambda each: f"(?:{each})"),
    )


patterns = st.recursive(st.tuples(atoms, times).map("".join), grown, max_leaves=6)


@given(patterns, st.text("ab.-1_ é\n", max_size=8))
def test_a_pattern_means_what_it_means_in_rule_files(pattern: str, text: str) -> None:
    """Every pattern that is understood; classes of ASCII, as in Alertmanager."""
    try:
        found = full_match(pattern, text)
    except PatternError:
        return
    assert found == (re.fullmatch(pattern, text, re.ASCII) is not None)


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
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    """Those that take Python's own matcher years: a tenth of a second at most, on a busy machine."""
    check(pattern)
    began = time.process_time()
    assert not full_match(pattern, "a" * LONGEST_TEXT)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(a", 'a "(" without ")"'),
        ("a)", 'a ")" without "("'),
        ("[a", "ends too soon"),
        ("[]", "an empty class"),
        ("[[:alpha:]]", 'a "[" in a class'),
        ("[z-a]", "from one letter or digit to a later one"),
        ("*a", 'a "*" out of place'),
        ("a**", "repeats a repetition"),
        ("((a*)*)*", "more than 2 repetitions inside each other"),
        ("(a*){3}", "inside of a number"),
        ("a{2,1}", "fewer times"),
        ("a{101}", "more than 100 times"),
        ("a{x}", "not a number of repetitions"),
        ("^a$", "leave them out"),
        ("(?!a)b", "only (?:…) is understood"),
        (r"(a)\1", r"\1, which is not understood"),
        (r"\ba", r"\b, which is not understood"),
        ("a\\", "ends too soon"),
        ("a" * (LONGEST_PATTERN + 1), f"longer than {LONGEST_PATTERN}"),
        ("(" * 150, 'a "(" without ")"'),
    ],
)
def test_what_is_not_understood_is_named(pattern: str, problem: str) -> None:
    """Backreferences, assertions, deep repetitions: what would need backtracking, or has another meaning elsewhere."""
    with pytest.raises(PatternError, match=re.escape(problem).replace("…", ".")):
        check(pattern)


def test_a_long_value_matches_no_pattern() -> None:
    """The value of an external label may have any length."""
    assert full_match("a*", "a" * LONGEST_TEXT)
    assert not full_match("a*", "a" * (LONGEST_TEXT + 1))
