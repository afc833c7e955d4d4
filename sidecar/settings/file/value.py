"""A value somebody gave, with the place it was given at; it is read as what its key means, and every error names the place."""

import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from sidecar.settings.file.durations import LONGEST, format_duration, parse_duration
from sidecar.settings.file.errors import SettingsError, expected, shown
from sidecar.settings.file.schema import ENVIRONMENT_PREFIX, OVERRIDES

E = TypeVar("E", bound=Enum)

_FLAGS: Final = {"true": True, "false": False}
_MAX_SECRET: Final = 16 << 10
_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_secret_variables: Final[set[str]] = set()
"""Of the whole process, as the environment is."""


def secret_variables() -> frozenset[str]:
    """The environment variables from which this process has read secrets (`${NAME}` in a URL or password): no other program needs them."""
    return frozenset(_secret_variables)


class Given(Struct, frozen=True):
    """`text` with its variables filled in; `written` without, as errors may show it. `where` is what an error begins with."""

    text: str
    written: str
    where: str
    folder: Path | None = None
    """What a relative path is relative to: the folder of its file, else the working directory."""

    def error(self, message: str) -> SettingsError:
        return SettingsError(f"{self.where}: {message}")

    def wrong(self, message: str) -> SettingsError:
        """An error that shows the value."""
        return self.error(f"{shown(self.written)} {message}")

    def read(self, parse: Callable[[str], int]) -> int:
        """What `parse` makes of it; its ValueError is the error's text."""
        try:
            return parse(self.text)
        except ValueError as error:
            raise self.wrong(str(error)) from error

    def duration(self, at_least: int = 0, at_most: int = LONGEST) -> int:
        """Microseconds."""
        micros = self.read(parse_duration)
        if micros < at_least:
            raise self.wrong(f"is too short: give at least {format_duration(at_least)}")
        if micros > at_most:
            raise self.wrong(f"is too long: give at most {format_duration(at_most)}")
        return micros

    def integer(self, lowest: int, highest: int) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", self.text) or not lowest <= int(self.text) <= highest:
            raise self.wrong(f"is no whole number from {lowest} to {highest}")
        return int(self.text)

    def flag(self) -> bool:
        if self.text not in _FLAGS:
            raise self.wrong("must be true or false")
        return _FLAGS[self.text]

    def choice(self, choices: type[E]) -> E:
        known = {str(member.value): member for member in choices}
        if self.text not in known:
            raise self.wrong(f"is unknown: {expected(known, self.text)}")
        return known[self.text]

    def matching(self, pattern: re.Pattern[str], what: str) -> str:
        if not pattern.fullmatch(self.text):
            raise self.wrong(f"must be {what}")
        return self.text

    def secret(self, what: str) -> "Given":
        """Itself, or with the content of the file that `file:PATH` names. Errors say where it stands, never what it is."""
        text = self.text.strip()
        found = _VARIABLE.finditer(self.written)
        _secret_variables.update(match[1] for match in found if not match[0].startswith("$$"))
        if text.startswith("file:"):
            path = (self.folder or Path.cwd()) / text.removeprefix("file:")
            try:
                with path.open("rb") as file:
                    text = file.read(_MAX_SECRET).decode().strip()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise self.wrong(f"cannot be read: {reason}") from error
            if not text or not text.isprintable():
                raise self.wrong(f"must hold one {what}, in one line")
        return Given(text, self.written, self.where, self.folder)

    def path(self) -> Path:
        if not self.text:
            raise self.error("is empty: give a path")
        return (self.folder or Path.cwd()) / self.text


def in_file(text: str, where: str, folder: Path | None = None) -> Given:
    """A value of a file: `${NAME}` stands for the environment variable of that name, `$${` for a plain `${`.

    Raises SettingsError: a variable that is not set (named, never with a content), a text of more than one line.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match[1]
        if not match[2] or not _NAME.fullmatch(name):
            raise SettingsError(
                f"{where}: only ${{NAME}} is understood after a dollar sign; write $${{ for a plain ${{"
            )
        if name not in os.environ:
            raise SettingsError(f"{where}: the environment variable {name} is not set")
        return os.environ[name]

    return _printable(Given(_VARIABLE.sub(fill, text), text, where, folder))


def overrides_of(overrides: Mapping[str, object]) -> tuple[dict[str, Given], dict[str, Given]]:
    """What the command line gave (None: nothing), and what the environment did (empty: nothing), by the names in OVERRIDES."""
    if unknown := overrides.keys() - set(OVERRIDES):
        raise TypeError(f"no such settings: {', '.join(sorted(unknown))}")
    line = {
        name: _printable(Given(text, text, f"--{name.replace('_', '-')}"))
        for name, value in overrides.items()
        if value is not None
        for text in ["true" if value is True else str(value)]
    }
    variables = {name: ENVIRONMENT_PREFIX + name.upper() for name in OVERRIDES}
    environment = {
        name: _printable(Given(os.environ[variable], os.environ[variable], variable))
        for name, variable in variables.items()
        if os.environ.get(variable)
    }
    return line, environment


def _printable(value: Given) -> Given:
    if not value.text.isprintable():
        raise value.error("must be one line of printable text")
    return value
