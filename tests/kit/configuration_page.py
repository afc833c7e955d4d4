"""The tables of docs/reference/configuration.md, made from the declarations of the settings.

`python -m tests.kit.configuration_page` writes them; a test holds them to the code. The text between them is written by hand.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Final, get_args, get_origin

from sidecar.audit.views.catalog import struct_comments
from sidecar.net.endpoints import Secret
from sidecar.settings.file.key import Declared, Keys, keys_of
from sidecar.settings.loader import CONFIG
from tests import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "configuration.md"
_HEADINGS: Final = {"": "Top level", "time_intervals.time_intervals": "Times"}
"""Of sections whose heading is not their path."""
_TYPES: Final = {
    bool: "`true` or `false`",
    Path: "path",
    Secret: "secret",
    tuple: "list",
    frozenset: "list",
    dict: "labels",
}
_TABLE: Final = re.compile(r"(?<=\n)\| key \|.*\n(?:\|.*\n)+")


def sections(keys: Keys = CONFIG, path: str = "") -> Iterator[tuple[str, Keys]]:
    """The heading and the keys of every section of a configuration."""
    yield _HEADINGS.get(path, f"`{path}`"), keys
    for name, declared in keys.items():
        if declared.key.inside and name != "routes":
            yield from sections(keys_of(*declared.key.inside), f"{path}.{name}".removeprefix("."))


def page(text: str) -> str:
    """`text` with the tables as the code has them, below the headings that it has."""
    tables = {heading: table(keys) for heading, keys in sections()}
    parts = re.split(r"^(#+ .*)$", text, flags=re.MULTILINE)
    for place in range(1, len(parts), 2):
        made = tables.get(parts[place].lstrip("# "))
        if made is not None:
            parts[place + 1] = _TABLE.sub(lambda _, made=made: made, parts[place + 1], count=1)
    return "".join(parts)


def table(keys: Keys) -> str:
    """A row for each key."""
    rows = (
        f"| `{name}` | {_type(declared)} | {f'`{default}`' if (default := declared.key.default) else ''} | {_sentence(declared)} |\n"
        for name, declared in keys.items()
    )
    return (
        "".join(["| key | type | default | |\n|---|---|---|---|\n", *rows])
        .replace("|  |", "| |")
        .replace("|  |", "| |")
    )


def _type(declared: Declared) -> str:
    key, annotated = declared.key, get_args(declared.field.type)[0]
    if key.inside:
        return "list" if key.many else "section"
    if "__str__" in type(key.read).__dict__:
        return f"list of {key.read}" if key.many else str(key.read)
    types = [kind for kind in (get_args(annotated) or [annotated]) if kind is not NoneType]
    origin = get_origin(annotated)
    return _TYPES.get(origin if origin in _TYPES else types[0], "text")


def _sentence(declared: Declared) -> str:
    sentence = struct_comments(declared.struct).columns.get(declared.field.name, "")
    is_required = (
        declared.key.read and not declared.key.inside and declared.key.default is None and not declared.may_be_absent
    )
    return f"{sentence}. Required".removeprefix(". ") if is_required else sentence


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
