"""What the commands print of stores, records and files, which hold what others wrote there: it never commands a terminal."""

from typing import Any

from msgspec import json

from sidecar.cli.options import Output
from sidecar.core.sanitize import escaped, printable


def print_line(text: str) -> None:
    """One line for people, flushed at once."""
    print(printable(text), flush=True)


def print_value(value: Any, text: str, output: Output) -> None:
    """A value as JSON on one line, or as `text` on one. Flushed at once: whoever reads it acts on it."""
    print(escaped(json.encode(value).decode()) if output == "json" else printable(text), flush=True)
