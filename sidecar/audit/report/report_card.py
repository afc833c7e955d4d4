"""What each picture of the report consists of."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup
from msgspec import Struct

TABLE_ROWS: Final = 20
"""The maximum number of rows of a table that does not belong to the bars of a chart."""
MEANT: Final = (("planned", "planned"), ("not planned", "unplanned"), ("not known", "unknown"))
"""Whether failovers were planned: words, and CSS class."""


class ReportTable(Struct, frozen=True):
    """A table of texts. The first cell of a row is its heading."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Card(Struct, frozen=True):
    """A picture with its numbers."""

    title: str
    text: str
    picture: Markup | None = None
    """None: there is nothing to draw."""
    key: Sequence[tuple[str, Markup]] = ()
    tables: Sequence[ReportTable] = ()
    width: str = ""
    """`wide` or `double`."""
