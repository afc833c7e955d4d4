"""YAML files, read within bounds.

The only importer of ruamel.yaml. Other modules import this one only when they read a file, so that `who --zookeeper` starts faster.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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

from sidecar.settings.file.nodes import ListNode, MappingNode, Node, ScalarNode
from sidecar.settings.file.settings_error import SettingsError, quoted

MAX_BYTES: Final = 256 << 10
MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 32

_QUOTED = re.compile(r"'([^']*)'")


def read_text(path: Path, at_most: int = MAX_BYTES, *, keep_mark: bool = False) -> str:
    """The content of a configuration file, without a byte order mark unless `keep_mark`.

    Raises SettingsError: unreadable, larger than `at_most` bytes, not UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(at_most + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > at_most:
        raise SettingsError(f"{path}: is larger than {at_most >> 10} KiB and cannot be a configuration file")
    try:
        return content.decode("utf-8" if keep_mark else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: is not UTF-8 text: save the file as UTF-8") from error


def parse(text: str, name: str) -> MappingNode:
    """The mapping in `text`; an empty text is an empty mapping. `name`: the name of the file in errors.

    Raises SettingsError with the line: not YAML, a key twice, not exactly one mapping, too large.
    """
    root: Node | None = None
    try:
        events = iter(YAML(typ="safe", pure=True).parse(text))
        for event in events:
            if isinstance(event, DocumentStartEvent) and root is not None:
                raise SettingsError(f"{name}:{_line(event)}: a second document begins here: keep one")
            if isinstance(event, NodeEvent):
                root = _Composer(events, name).node(event, 1)
    except MarkedYAMLError as error:
        # `from None` here and below: ruamel's message quotes the file, which may hold secrets.
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark else name
        raise SettingsError(
            f"{place}: is not valid YAML: {_without_content(error.problem or 'unknown reason')}"
        ) from None
    except (YAMLError, ValueError, OverflowError):
        raise SettingsError(f"{name}: is not valid YAML: it has characters that YAML does not allow") from None
    if isinstance(root, MappingNode):
        return root
    if root is None or (isinstance(root, ScalarNode) and root.empty):
        return MappingNode()
    raise SettingsError(f"{name}:{root.line}: must be a mapping of keys to values")


class _Composer:
    """Builds nodes from YAML events. Only a scalar may have aliases, so that no document expands."""

    def __init__(self, events: Iterator[Event], name: str) -> None:
        self._events = events
        self._name = name
        self._count = 0
        self._anchors: dict[str, ScalarNode] = {}

    def node(self, event: Event, depth: int) -> Node:
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            raise self._error(
                event, f"is too large for a configuration (at most {MAX_NODES} values, {MAX_DEPTH} levels)"
            )
        if (tag := getattr(event, "tag", None)) and not tag.startswith("tag:yaml.org,2002:"):
            raise self._error(event, "YAML tags are not supported: remove it")
        match event:
            case ScalarEvent():
                scalar = ScalarNode(event.value, _line(event), plain=not event.style)
                if event.anchor:
                    self._anchors[event.anchor] = scalar
                return scalar
            case AliasEvent() if event.anchor in self._anchors:
                return self._anchors[event.anchor]
            case AliasEvent():
                raise self._error(event, "YAML aliases are supported for single values only: write the value out")
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


def _without_content(problem: str) -> str:
    """ruamel's message without its quotes from the file; single characters and token names stay."""
    return _QUOTED.sub(lambda quoted: quoted[0] if len(quoted[1]) < 2 or quoted[1][0] == "<" else "…", problem)
