"""A document as it was written: texts, lists and mappings, with their lines.

What a text means (a number, a flag, a duration) is decided by the key it stands under, never by YAML: `no` and `12:30` stay what they are.
"""

from __future__ import annotations

from msgspec import Struct


class Scalar(Struct, frozen=True):
    """A text. `plain` when it stands without quotes, so that `~` and nothing at all can mean "no value"."""

    text: str
    line: int
    plain: bool

    @property
    def empty(self) -> bool:
        """Whether YAML calls it null."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}


class Items(Struct, frozen=True):
    """A list."""

    items: tuple[Node, ...]
    line: int


class Table(Struct, frozen=True):
    """A mapping; `lines` are those of its keys."""

    entries: dict[str, Node]
    lines: dict[str, int]
    line: int


Node = Scalar | Items | Table
