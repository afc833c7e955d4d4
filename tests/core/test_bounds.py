"""The page shows the table of bounds."""

from tests.kit.bounds import PAGE, written


def test_the_page_shows_the_table_as_it_is() -> None:
    """docs/how-to/security.md: `python -m tests.kit.bounds` writes it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page)
