"""One mapping of a file, read key by key. Its errors have file, line and key.

The key decides what a text means (a number, a flag, a duration), never YAML: `no` and `12:30` stay texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from sidecar.settings.file.key import Declared, Keys, keys_of
from sidecar.settings.file.setting import Setting, file_setting
from sidecar.settings.file.settings_error import NO_VALUE, SettingPlace, SettingsError, did_you_mean, quoted


class ScalarNode(Struct, frozen=True):
    """A text. `plain`: written without quotes, so that `~` and nothing at all mean "no value"."""

    text: str
    line: int
    plain: bool

    @property
    def empty(self) -> bool:
        """True if YAML reads null."""
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


T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S", bound=Struct)

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Section:
    """The values under `path` in the file `name`, whose relative paths begin at `folder`."""

    def __init__(
        self,
        node: MappingNode,
        keys: Keys,
        name: str,
        folder: Path | None = None,
        path: str = "",
        steps: tuple[str | int, ...] = (),
    ) -> None:
        """`steps`: `path` as keys and indexes."""
        self._steps = steps
        self._node = node
        self._keys = keys
        self._name = name
        self._folder = folder
        self._path = path
        for key, line in node.lines.items():
            if key not in keys:
                hint = did_you_mean(keys, key)
                raise SettingsError(f"{name}:{line}: unknown key {quoted(key)}: {hint}", self._place(key))

    @property
    def location(self) -> str:
        """File, line and path of the section itself, for errors."""
        return f"{self._name}:{self._node.line}: {self._path.removesuffix('.')}".removesuffix(": ")

    @property
    def place(self) -> SettingPlace:
        return self._place()

    def __contains__(self, key: str) -> bool:
        return key in self._node.entries

    def is_list(self, key: str) -> bool:
        return isinstance(self._node.entries.get(key), ListNode)

    def is_word(self, key: str) -> bool:
        """True if it is a single value, where a mapping may stand, too."""
        return isinstance(self._node.entries.get(key), ScalarNode)

    def error(self, key: str, message: str) -> SettingsError:
        line = self._node.lines.get(key)
        file = f"{self._name}:{line}" if line else self._name
        return SettingsError(f"{file}: {self._path}{key}: {message}", self._place(key))

    def mistake(self, message: str) -> SettingsError:
        """An error of the section as a whole."""
        return SettingsError(f"{self.location}: {message}", self.place)

    def missing(self, key: str) -> SettingsError:
        return self.mistake(f"{key} is missing")

    def find(self, key: str) -> Setting | None:
        """The value in the file; None if the key is absent."""
        return self._setting(key, self._node.entries[key], self._node.lines[key], key) if key in self else None

    def read(self, key: str, parse: Callable[[Setting], T], default: D) -> T | D:
        """The value in the file, as `parse` returns it; `default` if the key is absent."""
        setting = self.find(key)
        return default if setting is None else parse(setting)

    def get(self, key: str) -> Setting:
        """The value in the file, else the default of the key. Raises SettingsError if there is neither."""
        if (setting := self.find(key)) is not None:
            return setting
        default = self._keys[key].key.default
        if default is None:
            raise self.missing(key)
        return Setting(default, f"the default of {self._path}{key}")

    def make(self, struct: type[S], **given: object) -> S:
        """`struct` with the values of the keys that it declares; `given`: fields that are not read. Raises SettingsError."""
        return struct(**self.values(struct, *given), **given)

    def values(self, struct: type[Struct], *without: str, defaults: bool = True) -> dict[str, Any]:
        """The values of the keys that `struct` declares, by field; `without`: fields that are not read. Without `defaults`: of the keys
        that are in the file. Raises SettingsError.
        """
        return {
            declared.field.name: value
            for name, declared in keys_of(struct).items()
            if declared.field.name not in without and (defaults or name in self)
            for value in self._values(name, declared)
        }

    def value(self, key: str) -> Any:
        """The value of the key, as it declares; None: it has none. Raises SettingsError."""
        return next(self._values(key, self._keys[key]), None)

    def _values(self, name: str, declared: Declared) -> Iterator[object]:
        read, inside, many = declared.key.read, declared.key.inside, declared.key.many
        if not inside and not many:
            yield from declared.value(name, self.find, self.missing, self._path)
        elif read and (name in self or not declared.may_be_absent):
            if many:
                yield many(map(read, self.sections(name) if inside else self.texts(name)))
            else:
                yield read(self.section(name))

    def section(self, key: str) -> Section:
        """The mapping under `key`; an empty one if the key is absent."""
        node = self._node.entries.get(key, MappingNode(line=self._node.line))
        if not isinstance(node, MappingNode):
            raise self.error(key, "must be a mapping of keys to values")
        return self._inner_section(key, node, f"{self._path}{key}.", key)

    def sections(self, key: str) -> list[Section]:
        """The mappings listed under `key`."""
        listed = []
        for place, node in self._present(key):
            if not isinstance(node, MappingNode):
                raise self.error(key, f"must be a list of mappings, but entry {place + 1} is not a mapping")
            listed.append(self._inner_section(key, node, f"{self._path}{key}[{place}].", key, place))
        return listed

    def _inner_section(self, key: str, node: MappingNode, path: str, *steps: str | int) -> Section:
        keys = keys_of(*self._keys[key].key.inside)
        return Section(node, keys, self._name, self._folder, path, (*self._steps, *steps))

    def texts(self, key: str) -> list[Setting]:
        return [self._setting(f"{key}[{n}]", node, node.line, key, n) for n, node in self._present(key)]

    def labels(self, key: str) -> dict[str, Setting]:
        """A mapping whose keys the user chooses."""
        node = self._node.entries.get(key, MappingNode())
        if not isinstance(node, MappingNode):
            raise self.error(key, "must be a mapping of names to values")
        if not all(_LABEL.fullmatch(name) for name in node.entries):
            raise self.error(key, "a label name has letters, digits and _, and does not begin with a digit")
        return {
            name: self._setting(f"{key}.{name}", value, node.lines[name], key, name)
            for name, value in node.entries.items()
        }

    def items(self, key: str) -> tuple[Node, ...]:
        node = self._node.entries.get(key, ListNode((), 0))
        if not isinstance(node, ListNode):
            raise self.error(key, "must be a list")
        return node.items

    def _present(self, key: str) -> Iterator[tuple[int, Node]]:
        return ((place, node) for place, node in enumerate(self.items(key)) if node is not GONE)

    def _place(self, *steps: str | int) -> SettingPlace:
        return SettingPlace(self._name, (*self._steps, *steps))

    def _setting(self, key: str, node: Node, line: int, *steps: str | int) -> Setting:
        location, place = f"{self._name}:{line}: {self._path}{key}", self._place(*steps)
        if not isinstance(node, ScalarNode):
            raise SettingsError(f"{location}: must be a single value", place)
        if node.empty:
            raise SettingsError(f"{location}: {NO_VALUE}", place)
        return file_setting(node.text, location, self._folder, place)


ReadFile = Callable[[Path | None, Keys], Section]
"""The type of `read_file`."""


def read_file(path: Path | None, keys: Keys) -> Section:
    """The mapping in the file at `path`; None: an empty configuration. Raises SettingsError."""
    return file_section(path, read_nodes(path), keys)


def read_nodes(path: Path | None) -> MappingNode:
    """The content of the file at `path`. Raises SettingsError."""
    if path is None:
        return MappingNode()
    from sidecar.settings.file.yaml_document import parse, read_text  # noqa: PLC0415  imports ruamel.yaml

    return parse(read_text(path), str(path))


def file_section(path: Path | None, node: MappingNode, keys: Keys) -> Section:
    """The mapping that was read from the file at `path`. Raises SettingsError."""
    if path is None:
        return Section(node, keys, "the configuration")
    return Section(node, keys, str(path), path.absolute().parent)


def unique_sections(documents: Iterable[Section], key: str, name: str = "name") -> Iterator[Section]:
    """The mappings listed under `key` in all documents. Raises SettingsError if two have the same `name`."""
    names: set[str] = set()
    for section in (section for document in documents for section in document.sections(key)):
        setting = section.get(name)
        if setting.text in names:
            kind = key.removesuffix("s").replace("_", " ")
            raise setting.error(f"there is a {kind} {quoted(setting.written)} already: rename one")
        names.add(setting.text)
        yield section
