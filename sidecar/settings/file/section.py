"""One mapping of a file, read key by key; its errors name file, line and key."""

import re
from pathlib import Path

from sidecar.settings.file.errors import SettingsError, expected, shown
from sidecar.settings.file.nodes import Items, Node, Scalar, Table
from sidecar.settings.file.schema import Keys
from sidecar.settings.file.value import Given, in_file

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Section:
    """The values under `path` in the file called `name`, whose relative paths begin at `folder`."""

    def __init__(self, table: Table, keys: Keys, name: str, folder: Path | None, path: str = "") -> None:
        self._table = table
        self._keys = keys
        self._name = name
        self._folder = folder
        self._path = path
        for key in table.entries:
            if key not in keys.defaults:
                raise SettingsError(f"{self._place(key)}unknown key {shown(key)}: {expected(keys.defaults, key)}")

    @property
    def where(self) -> str:
        """The place of the section itself."""
        return f"{self._name}:{self._table.line}: {self._path.removesuffix('.')}".removesuffix(": ")

    def __contains__(self, key: str) -> bool:
        return key in self._table.entries

    def error(self, key: str, message: str) -> SettingsError:
        return SettingsError(f"{self._place(key)}{self._path}{key}: {message}")

    def missing(self, key: str) -> SettingsError:
        return SettingsError(f"{self.where}: {key} is missing")

    def find(self, key: str) -> Given | None:
        """What the file says."""
        return self._given(key, self._table.entries[key], self._table.lines[key]) if key in self else None

    def get(self, key: str) -> Given:
        """What the file says, else the default. Raises SettingsError where there is neither."""
        if (found := self.find(key)) is not None:
            return found
        default = self._keys.defaults[key]
        if default is None:
            raise self.missing(key)
        return Given(default, default, f"the default of {self._path}{key}")

    def section(self, key: str, keys: Keys) -> "Section":
        """The mapping under `key`, or an empty one."""
        node = self._table.entries.get(key, Table({}, {}, self._table.line))
        if not isinstance(node, Table):
            raise self.error(key, "must be a mapping of keys to values")
        return Section(node, keys, self._name, self._folder, f"{self._path}{key}.")

    def sections(self, key: str, keys: Keys) -> "list[Section]":
        """The mappings listed under `key`."""
        listed = []
        for place, node in enumerate(self._items(key)):
            if not isinstance(node, Table):
                raise self.error(key, f"must be a list of mappings, but number {place + 1} is none")
            listed.append(Section(node, keys, self._name, self._folder, f"{self._path}{key}[{place}]."))
        return listed

    def texts(self, key: str) -> list[Given]:
        """The values listed under `key`."""
        return [self._given(f"{key}[{place}]", node, node.line) for place, node in enumerate(self._items(key))]

    def labels(self, key: str) -> dict[str, Given]:
        """A mapping whose keys are the user's own names."""
        node = self._table.entries.get(key, Table({}, {}, 0))
        if not isinstance(node, Table):
            raise self.error(key, "must be a mapping of names to values")
        if not all(_LABEL.fullmatch(name) for name in node.entries):
            raise self.error(
                key, "the name of a label consists of letters, digits and _, and begins with none of the digits"
            )
        return {name: self._given(f"{key}.{name}", value, node.lines[name]) for name, value in node.entries.items()}

    def _items(self, key: str) -> tuple[Node, ...]:
        node = self._table.entries.get(key, Items((), 0))
        if not isinstance(node, Items):
            raise self.error(key, "must be a list")
        return node.items

    def _given(self, key: str, node: Node, line: int) -> Given:
        where = f"{self._name}:{line}: {self._path}{key}"
        if not isinstance(node, Scalar):
            raise SettingsError(f"{where}: must be a single value")
        if node.empty:
            raise SettingsError(f"{where}: has no value: give it one, or remove it")
        return in_file(node.text, where, self._folder)

    def _place(self, key: str) -> str:
        line = self._table.lines.get(key)
        return f"{self._name}:{line}: " if line else f"{self._name}: "
