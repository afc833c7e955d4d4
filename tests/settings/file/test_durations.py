"""Durations, ours and Flink's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.settings.file.durations import (
    DAY,
    HOUR,
    LONGEST,
    MILLISECOND,
    MINUTE,
    SECOND,
    format_duration,
    parse_duration,
    parse_flink_duration,
)


@given(st.integers(0, LONGEST // MILLISECOND))
def test_a_duration_that_was_written_is_read_as_it_was(millis: int) -> None:
    """Whole milliseconds survive being written and read."""
    assert parse_duration(format_duration(millis * MILLISECOND)) == millis * MILLISECOND


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("0", 0),
        ("250ms", 250 * MILLISECOND),
        ("10s", 10 * SECOND),
        ("1h30m", 90 * MINUTE),
        ("1w2d3h4m5s6ms", 9 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND + 6 * MILLISECOND),
        ("90m", 90 * MINUTE),
    ],
)
def test_durations_are_written_as_in_prometheus(text: str, micros: int) -> None:
    """Units from weeks to milliseconds, largest first."""
    assert parse_duration(text) == micros


@pytest.mark.parametrize("text", ["", "10", "s", "10 s", "1m1h", "1m1m", "-1s", "1.5s", "10sec", "1h ", "٣s", "367d"])
def test_anything_else_is_no_duration(text: str) -> None:
    """No unit, no number, a unit twice or out of order, more than a year: each is refused."""
    with pytest.raises(ValueError, match=r"is not a duration|longer than 366 days"):
        parse_duration(text)


# As org.apache.flink.util.TimeUtils.parseDuration of Flink 2.3.0 answered; 1.20.5 gave the same, but knows no ISO 8601.
@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("60000", 60 * SECOND),
        ("00060 s", 60 * SECOND),
        ("60s", 60 * SECOND),
        ("5000 ms", 5 * SECOND),
        ("1 min", MINUTE),
        ("1 m", MINUTE),
        ("2 minutes", 2 * MINUTE),
        ("1 hours", HOUR),
        ("3 days", 3 * DAY),
        (" 10  SEC ", 10 * SECOND),
        ("10 millis", 10 * MILLISECOND),
        ("5 µs", 5),
        ("5 micros", 5),
        ("7 ns", 0),
        ("7000 nanos", 7),
        ("PT60S", MINUTE),
        ("pt1m", MINUTE),
        ("P1DT2H", 26 * HOUR),
        ("PT1.5S", 1_500 * MILLISECOND),
        ("+PT1S", SECOND),
    ],
)
def test_flinks_durations_are_read_as_flink_reads_them(text: str, micros: int) -> None:
    """Every unit label, whole milliseconds without one, and ISO 8601."""
    assert parse_flink_duration(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "5 us",
        "5 μs",
        "1.5 s",
        "-1 s",
        "1d 2h",
        "10 week",
        "\uff19 s",
        "PT",
        "P",
        "P1Y",
        "-PT1S",
        "9223372036854775807 d",
    ],
)
def test_what_flink_refuses_is_refused(text: str) -> None:
    """Values with which Flink itself would not start are errors here too."""
    with pytest.raises(ValueError, match=r"is not a Flink duration|longer than"):
        parse_flink_duration(text)


@given(st.text())
def test_any_text_is_a_bounded_duration_or_refused(text: str) -> None:
    """Neither reader does anything else with any text than answer within bounds or raise ValueError."""
    for parse in (parse_duration, parse_flink_duration):
        try:
            micros = parse(text)
        except ValueError:
            continue
        assert 0 <= micros <= LONGEST
