"""Tables and colours for people. Cells come from stores, records and files, so control characters are replaced."""

import os
import shutil
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import Final

import click
from msgspec import Struct

from sidecar.core.sanitize import clean, printable

NARROW: Final = 80
"""Columns where there is no terminal."""
_SHORTEST: Final = 8
"""Characters that a shortened cell keeps."""
_GAP: Final = "  "


class Cell(Struct, frozen=True):
    """A text, and its colour on a terminal, as click names it."""

    text: str
    colour: str | None = None


def columns() -> int:
    """The width to print to: that of the terminal, else NARROW."""
    return shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else NARROW


def is_coloured() -> bool:
    """Whether to print colours: on a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str, colour: str | None = None, *, width: int | None = None, indent: str = "") -> None:
    """Print a text, in lines of at most `width` columns (None: in one line), all but the first one indented."""
    printed = printable(text)
    lines = wrap(printed, max(width, NARROW), subsequent_indent=indent, break_on_hyphens=False) if width else [printed]
    for line in lines:
        print(_styled(line, colour), flush=True)


def print_table(
    rows: Sequence[Sequence[str | Cell]],
    *,
    width: int | None = None,
    flexible: Sequence[int] = (),
    indent: str = "",
) -> None:
    """Print a table, the first row of which is its header. If it is wider than `width`, cells of the columns `flexible` are shortened in
    their middle, the widest column first.
    """
    table = [[_cleaned(cell) for cell in row] for row in rows]
    widths = [max(len(row[column].text) for row in table) for column in range(len(table[0]))]
    around = len(indent) + len(_GAP) * (len(widths) - 1)
    while width and around + sum(widths) > width and (wide := [n for n in flexible if widths[n] > _SHORTEST]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    for row in table:
        cells = zip(row, widths, strict=True)
        texts = [_styled(_shortened(cell.text, size).ljust(size), cell.colour) for cell, size in cells]
        print((indent + _GAP.join(texts)).rstrip(), flush=True)


def _cleaned(cell: str | Cell) -> Cell:
    return Cell(clean(cell.text), cell.colour) if isinstance(cell, Cell) else Cell(clean(cell))


def _shortened(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    half = (size - 1) // 2
    return f"{text[:half]}…{text[len(text) - (size - 1 - half) :]}"


def _styled(text: str, colour: str | None) -> str:
    return click.style(text, fg=colour) if colour and is_coloured() else text
