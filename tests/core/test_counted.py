"""Numbers of things, as people write them."""

import pytest

from sidecar.core.counted import counted


@pytest.mark.parametrize(
    ("number", "thousands", "expected"),
    [(0, False, "0 jobs"), (1, True, "1 job"), (2000, False, "2000 jobs"), (2000, True, "2,000 jobs")],
)
def test_one_is_not_many(number: int, thousands: bool, expected: str) -> None:
    """None is many, too."""
    assert counted(number, "job", thousands=thousands) == expected
