"""Printing of texts, values, tables and colours. Texts come from stores, records and files; others write those, so control characters are
escaped or replaced.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

import click
from msgspec import Struct, json, to_builtins

from sidecar.cli.options import Output
from sidecar.core.sanitize import clean, escaped, printable

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z_]*")
"""The strings that need no quotes in YAML, except those in `_RESERVED`."""
_RESERVED: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def print_line(text: str) -> None:
    """Print one line of text, flushed."""
    print(printable(text), flush=True)


def print_mistake(text: str) -> None:
    """Print one line on stderr, as errors are."""
    print("flink-ha-sidecar:", printable(" ".join(text.split())), file=sys.stderr)


def print_value(value: Any, text: str, output: Output) -> None:
    """Print one line, flushed: `value` as JSON, or `text`."""
    print(_json(value) if output == "json" else printable(text), flush=True)


def print_document(value: Any, output: str) -> None:
    """Print a value as one JSON document in one line, or as one YAML document; flushed."""
    if output == "json":
        print(_json(value), flush=True)
        return
    for line in _yaml(to_builtins(value)):
        print(line)
    sys.stdout.flush()


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """A value of maps, lists and scalars as block YAML. Every scalar is one of JSON, which YAML reads alike."""
    if not isinstance(value, dict | list) or not value:
        yield indent + _scalar(value)
    elif isinstance(value, list):
        for item in value:
            first, *others = _yaml(item, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from others
    else:
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                yield f"{indent}{_scalar(key)}:"
                yield from _yaml(item, f"{indent}  ")
            else:
                yield f"{indent}{_scalar(key)}: {_scalar(item)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return _json(value)


def _json(value: Any) -> str:
    """The value as JSON: ASCII only where the output cannot encode other characters, because a replaced character changes the value."""
    text = escaped(json.encode(value).decode())
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return escaped(text, ascii_only=True)
    return text


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
    """True if colours are printed: on a terminal, unless NO_COLOR is set (https://no-color.org) or the terminal is dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str, colour: str | None = None, *, width: int | None = None, indent: str = "") -> None:
    """Print a text, in lines of at most `width` columns (None: in one line), all but the first one indented."""
    printed = printable(text)
    lines = wrap(printed, max(width, NARROW), subsequent_indent=indent, break_on_hyphens=False) if width else [printed]
    for line in lines:
        print(_styled(line, colour), flush=True)


def print_table(
    rows: Sequence[Sequence[str | Cell]], *, width: int | None = None, flexible: Sequence[int] = (), indent: str = ""
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
