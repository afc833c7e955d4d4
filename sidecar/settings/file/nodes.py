"""A parsed document: scalars, lists and mappings, with their line numbers.

The key decides what a text means (a number, a flag, a duration), never YAML: `no` and `12:30` stay texts.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class ScalarNode(Struct, frozen=True):
    """A text. `plain`: written without quotes, so that `~` and nothing at all mean "no value"."""

    text: str
    line: int
    plain: bool

    @property
    def empty(self) -> bool:
        """Whether YAML reads null."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}


class ListNode(Struct, frozen=True):
    """A list."""

    items: tuple[Node, ...]
    line: int


class MappingNode(Struct, frozen=True):
    """A mapping. `lines`: the line of each key."""

    entries: dict[str, Node] = {}
    lines: dict[str, int] = {}
    line: int = 1


Node = ScalarNode | ListNode | MappingNode


def text_of(node: Node | None) -> str:
    """The text of a scalar; empty: it is none, or null."""
    return node.text if isinstance(node, ScalarNode) and not node.empty else ""


GONE: Final = ScalarNode("", 0, plain=True)
"""Stands for an entry of a list that was removed, so that the others keep their numbers."""
