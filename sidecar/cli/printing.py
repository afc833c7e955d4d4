"""Printing of texts from stores, records and files. Others write those, so control characters are escaped."""

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from msgspec import json, to_builtins

from sidecar.cli.options import Output
from sidecar.core.sanitize import escaped, printable

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
