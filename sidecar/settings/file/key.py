"""A setting is declared once: a field of a Struct, annotated with its `Key`. The docstring below it is its sentence in
docs/reference/configuration.md. `Section.make` reads it."""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from sidecar.settings.file.durations import DAY, LONGEST, format_duration
from sidecar.settings.file.setting import Setting

Find = Callable[[str], Setting | None]
S = TypeVar("S", bound=Struct)


class Key(Struct, frozen=True):
    """A key of a section. A key without a default may be absent if its field has one. A reader is not named as its field: in the body of a
    class the name is the field's default by then."""

    read: Callable[[Any], object] | None = None
    """Reads the `Setting`, or the `Section` if `inside` is given. None: the key is read by hand."""
    default: str | None = None
    """As an operator would write it."""
    name: str = ""
    """The key in the file; empty: the name of the field."""
    many: "type[tuple[object, ...] | frozenset[object]] | None" = None
    """The collection of such values, which are a list in the file. None: there is only one value."""
    inside: tuple[type[Struct], ...] = ()
    """Have the keys of the section there."""


def section_of(struct: type[Struct], only: str = "", default: str | None = None) -> Key:
    """The key of a section that is read as `struct`; `only`: as its one field."""

    def read(section: Any) -> object:
        made = section.make(struct)
        return getattr(made, only) if only else made

    return Key(read, default, inside=(struct,))


class Declared(NamedTuple):
    """A key, and the field that declares it."""

    key: Key
    field: FieldInfo
    struct: type[Struct]

    @property
    def may_be_absent(self) -> bool:
        return self.field.default is not NODEFAULT or self.field.default_factory is not NODEFAULT

    def value(self, name: str, find: Find, missing: Callable[[str], Exception], path: str = "") -> Iterator[object]:
        """The value that is read of the key; nothing if it may be absent, and is. Raises SettingsError."""
        if self.key.read is None:
            return
        setting = find(name)
        if setting is None and self.key.default is not None:
            setting = Setting(self.key.default, f"the default of {path}{name}")
        if setting is None and not self.may_be_absent:
            raise missing(name)
        if setting is not None:
            yield self.key.read(setting)


Keys = Mapping[str, Declared]


@cache
def keys_of(*structs: type[Struct]) -> Keys:
    """The keys that the fields of these Structs declare, in their order."""
    keys: dict[str, Declared] = {}
    for struct in structs:
        hints = get_type_hints(struct, include_extras=True)
        for field in fields(struct):
            for key in getattr(hints[field.name], "__metadata__", ()):
                keys[key.name or field.name] = Declared(key, field, struct)
    return keys


def default_of(struct: type[Struct], key: str) -> Setting:
    return Setting(keys_of(struct)[key].key.default or "", f"the default of {key}")


def read_settings(struct: type[S], settings: Mapping[str, Setting], **given: object) -> S:
    """`struct` with its values in `settings`, else their defaults; `given`: fields that are not read. Raises SettingsError."""
    read = {
        declared.field.name: value
        for name, declared in keys_of(struct).items()
        if declared.field.name not in given
        for value in declared.value(name, settings.get, KeyError)
    }
    return struct(**read, **given)


class Duration(Struct, frozen=True):
    """Reads a duration as microseconds, or as a number of `unit`."""

    at_least: int = 0
    at_most: int = LONGEST
    unit: int = 0

    def __call__(self, setting: Setting) -> float:
        micros = setting.duration(self.at_least, self.at_most)
        return micros / self.unit if self.unit else micros

    def __str__(self) -> str:
        least, most = (
            f"{micros // DAY}d" if micros >= DAY else format_duration(micros)
            for micros in (self.at_least, self.at_most)
        )
        if self.at_most < LONGEST:
            return f"duration, `{least}` to `{most}`"
        return f"duration, at least `{least}`" if self.at_least else "duration"


class Integer(Struct, frozen=True):
    """Reads a whole number, and multiplies it by `unit`."""

    lowest: int
    highest: int
    unit: int = 1

    def __call__(self, setting: Setting) -> int:
        return setting.integer(self.lowest, self.highest) * self.unit

    def __str__(self) -> str:
        return f"{self.lowest} to {self.highest}"


class Matching(Struct, frozen=True):
    """Reads a text that has a form."""

    pattern: re.Pattern[str]
    form: str

    def __call__(self, setting: Setting) -> str:
        return setting.matching(self.pattern, self.form)

    def __str__(self) -> str:
        return "text"


class Choice(Struct, frozen=True):
    """Reads one of the words of an enumeration."""

    choices: type[Enum]

    def __call__(self, setting: Setting) -> Enum:
        return setting.choice(self.choices)

    def __str__(self) -> str:
        return ", ".join(f"`{member.value}`" for member in self.choices) if len(self.choices) < 5 else "word"
