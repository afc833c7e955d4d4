"""Numbers of things, as people write them."""

import pytest

from sidecar.core.counted import counted, shortened


@pytest.mark.parametrize(
    ("number", "thousands", "expected"),
    [(0, False, "0 jobs"), (1, True, "1 job"), (2000, False, "2000 jobs"), (2000, True, "2,000 jobs")],
)
def test_one_is_not_many(number: int, thousands: bool, expected: str) -> None:
    """None is many, too."""
    assert counted(number, "job", thousands=thousands) == expected


@pytest.mark.parametrize(
    ("most", "total", "noun", "expected"),
    [
        (3, None, "", ["a", "b", "c"]),
        (2, None, "", ["a", "b", "… and 1 more"]),
        (5, 4, "job", ["a", "b", "c", "… and 1 more job"]),
        (1, 9, "job", ["a", "… and 8 more jobs"]),
    ],
)
def test_what_has_no_room_is_counted(most: int, total: int | None, noun: str, expected: list[str]) -> None:
    """Also what only the number is known of."""
    assert shortened(["a", "b", "c"], most, total, noun) == expected
