"""The table of bounds is whole, and the page shows it."""

from sidecar.core import bounds
from tests.kit.bounds import PAGE, written


def test_every_bound_is_a_row_of_the_table() -> None:
    """A border that the table forgets would not be on the page."""
    declared = [value for value in vars(bounds).values() if isinstance(value, bounds.Bound)]
    assert sorted(declared, key=lambda bound: bound.border) == sorted(bounds.BOUNDS, key=lambda bound: bound.border)


def test_the_page_shows_the_table_as_it_is() -> None:
    """docs/how-to/security.md: `python -m tests.kit.bounds` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page)
