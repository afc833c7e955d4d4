"""Printing of texts from stores, records and files. Others write those, so control characters are escaped."""

from typing import Any

from msgspec import json

from sidecar.cli.options import Output
from sidecar.core.sanitize import escaped, printable


def print_line(text: str) -> None:
    """Print one line of text, flushed."""
    print(printable(text), flush=True)


def print_value(value: Any, text: str, output: Output) -> None:
    """Print one line, flushed: `value` as JSON, or `text`."""
    print(escaped(json.encode(value).decode()) if output == "json" else printable(text), flush=True)
