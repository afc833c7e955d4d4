"""YAML files, read within bounds.

The only importer of ruamel.yaml. Other modules import this one only when they read a file, so that `who --zookeeper` starts faster.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from sidecar.core.bounds import CONFIGURATION, Bound
from sidecar.settings.file.section import ListNode, MappingNode, Node, ScalarNode
from sidecar.settings.file.settings_error import SettingsError, quoted

_QUOTED = re.compile(r"'([^']*)'")


def read_bytes(path: Path, bound: Bound = CONFIGURATION) -> bytes:
    """The content of a configuration file. Raises SettingsError: unreadable, or larger than the bound."""
    try:
        with path.open("rb") as file:
            content = file.read(bound.most_bytes + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > bound.most_bytes:
        raise SettingsError(f"{path}: is larger than {bound.most_bytes >> 10} KiB and cannot be a configuration file")
    return content


def decoded(content: bytes, path: Path) -> str:
    """The text of a configuration file, without a byte order mark. Raises SettingsError with the line: not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: is not UTF-8 text: save the file as UTF-8") from error


def read_text(path: Path, bound: Bound = CONFIGURATION) -> str:
    """`decoded` of `read_bytes`. Raises SettingsError."""
    return decoded(read_bytes(path, bound), path)


def parse(text: str, name: str, bound: Bound = CONFIGURATION, *, shared: bool = False) -> MappingNode:
    """The mapping in `text`; an empty text is an empty mapping. `name`: the name of the file in errors.

    What an alias stands for counts each time towards the bound, so that whoever walks the mapping does not walk more. `shared`: it
    counts once, and the caller bounds what it walks; a list that has itself in it ends there.
    Raises SettingsError with the line: not YAML, a key twice, not exactly one mapping, too large.
    """
    root: Node | None = None
    try:
        events = iter(YAML(typ="safe", pure=True).parse(text))
        for event in events:
            if isinstance(event, DocumentStartEvent) and root is not None:
                raise SettingsError(f"{name}:{_line(event)}: a second document begins here: keep one")
            if isinstance(event, NodeEvent):
                root = _Composer(events, name, bound, shared=shared).node(event, 1)
    except MarkedYAMLError as error:
        # `from None` here and below: ruamel's message quotes the file, which may hold secrets.
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise SettingsError(
            f"{place}: is not valid YAML: {_problem_alone(error.problem or 'unknown reason')}"
        ) from None
    except (YAMLError, ValueError, OverflowError):
        raise SettingsError(f"{name}: is not valid YAML: it has characters that YAML does not allow") from None
    if isinstance(root, MappingNode):
        return root
    if root is None or (isinstance(root, ScalarNode) and root.empty):
        return MappingNode()
    raise SettingsError(f"{name}:{root.line}: must be a mapping of keys to values")


class _Anchored(NamedTuple):
    node: Node
    size: int
    """The number of nodes in it. -1: it is still being built."""
    height: int
    """The number of levels in it."""


class _Composer:
    """Builds nodes from YAML events. An alias is the node that it names, not a copy."""

    def __init__(self, events: Iterator[Event], name: str, bound: Bound, *, shared: bool) -> None:
        self._events = events
        self._name = name
        self._bound = bound
        self._shared = shared
        self._count = 0
        self._deepest = 0
        self._anchors: dict[str, _Anchored] = {}

    def node(self, event: Event, depth: int) -> Node:
        self._enter(event, 1, depth)
        if isinstance(event, AliasEvent):
            return self._named(event, depth)
        if (tag := getattr(event, "tag", None)) and not tag.startswith("tag:yaml.org,2002:"):
            raise self._error(event, "YAML tags are not supported: remove it")
        if (anchor := getattr(event, "anchor", None)) is None:
            return self._new(event, depth)
        self._anchors[anchor] = _Anchored(ListNode((), _line(event)), -1, 0)
        count, deepest, self._deepest = self._count, self._deepest, depth
        node = self._new(event, depth)
        self._anchors[anchor] = _Anchored(node, self._count - count, self._deepest - depth)
        self._deepest = max(deepest, self._deepest)
        return node

    def _named(self, event: AliasEvent, depth: int) -> Node:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._error(event, "the YAML alias names no anchor before it: write the value out")
        if anchored.size < 0 and not self._shared:
            raise self._error(event, "the YAML alias is inside of what it stands for: write the value out")
        self._enter(event, 0 if self._shared else anchored.size, depth + anchored.height)
        return anchored.node

    def _enter(self, event: Event, size: int, depth: int) -> None:
        self._count += size
        self._deepest = max(self._deepest, depth)
        if self._count > self._bound.most_items or depth > self._bound.most_depth:
            most = f"at most {self._bound.most_items} values, {self._bound.most_depth} levels"
            raise self._error(event, f"is too large for a configuration ({most})")

    def _new(self, event: Event, depth: int) -> Node:
        match event:
            case ScalarEvent():
                return ScalarNode(event.value, _line(event), plain=not event.style and not event.tag)
            case SequenceStartEvent():
                items = []
                while not isinstance(inner := next(self._events), SequenceEndEvent):
                    items.append(self.node(inner, depth + 1))
                return ListNode(tuple(items), _line(event))
            case MappingStartEvent():
                return self._table(event, depth)
        raise self._error(event, "is not valid YAML")

    def _table(self, event: MappingStartEvent, depth: int) -> MappingNode:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(inner := next(self._events), MappingEndEvent):
            key = self.node(inner, depth + 1)
            if not isinstance(key, ScalarNode):
                raise self._error(inner, "a key must be a single word")
            if key.text in entries:
                first = lines[key.text]
                raise self._error(inner, f"the key {quoted(key.text)} is here twice (first in line {first}): keep one")
            entries[key.text] = self.node(next(self._events), depth + 1)
            lines[key.text] = key.line
        return MappingNode(entries, lines, _line(event))

    def _error(self, event: Event, message: str) -> SettingsError:
        return SettingsError(f"{self._name}:{_line(event)}: {message}")


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 1


def _problem_alone(problem: str) -> str:
    """ruamel's message without its quotes from the file; single characters and token names stay."""
    return _QUOTED.sub(lambda quoted: quoted[0] if len(quoted[1]) < 2 or quoted[1][0] == "<" else "…", problem)
