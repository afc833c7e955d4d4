"""How long a server asks to wait: a number or a date, and never an error, whatever it writes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis.strategies import one_of, sampled_from, text

from sidecar.net.retry_after import asked_wait

AT_EIGHT = {"Date": "Fri, 20 Nov 2026 08:00:00 GMT"}
HOSTILE = (
    "Fri, 20 Nov 99999999999 08:00:42 GMT",
    "Fri, 20 Nov 2026 99:99:99 +9999999",
    "1 Jan 99999 00:00:00",
    "-0001",
)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"Retry-After": "9" * 5000}, inf),
        ({"Retry-After": "Fri, 20 Nov 2026 08:00:42 GMT", **AT_EIGHT}, 42),
        ({"Retry-After": "Fri, 20 Nov 2026 07:00:00 GMT", **AT_EIGHT}, 0),
        *(({"Retry-After": value, **AT_EIGHT}, None) for value in ("", "soon", "-5", "1e3", "²", *HOSTILE)),
        ({}, None),
    ],
)
def test_a_number_or_a_date_is_how_long_to_wait(headers: Mapping[str, str], seconds: float | None) -> None:
    """A date counts from the answer's own date; all else is as if nothing were asked."""
    assert asked_wait(headers) == seconds


def test_a_date_counts_from_now_if_the_answer_has_none() -> None:
    """Within the second that dates are rounded to."""
    in_two_minutes = datetime.now(UTC) + timedelta(minutes=2)
    assert 60 <= (asked_wait({"Retry-After": format_datetime(in_two_minutes, usegmt=True)}) or 0) <= 120


@given(one_of(text(), sampled_from(HOSTILE)), one_of(text(), sampled_from(HOSTILE)))
def test_no_header_raises_an_error(value: str, date: str) -> None:
    """Nor asks for less than nothing."""
    seconds = asked_wait({"Retry-After": value, "Date": date})
    assert seconds is None or seconds >= 0
