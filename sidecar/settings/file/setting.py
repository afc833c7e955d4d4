"""One configured value with its location. The caller reads it as what its key means; each error names the location."""

import os
import re
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from sidecar.settings.file.did_you_mean import did_you_mean
from sidecar.settings.file.durations import LONGEST, format_duration, parse_duration
from sidecar.settings.file.settings_error import Place, SettingsError, quoted
from sidecar.settings.file.variables import filled, remember_secrets

E = TypeVar("E", bound=Enum)

CLUSTER_OVERRIDES: Final = (
    *("flink_conf", "zookeeper", "root", "cluster_id"),
    *("kubernetes", "namespace", "kubeconfig", "context"),
)
OVERRIDES: Final = (*CLUSTER_OVERRIDES, "observer", "state_dir", "spool")
"""The settings that the command line and the environment can set: `--flink-conf`, FLINK_HA_SIDECAR_FLINK_CONF, …"""
ENVIRONMENT_PREFIX: Final = "FLINK_HA_SIDECAR_"

_FLAGS: Final = {"true": True, "false": False}
_MAX_SECRET: Final = 16 << 10


class Setting(Struct, frozen=True):
    """A value with every `${NAME}` replaced."""

    text: str
    location: str
    source: str | None = None
    """The value as written in a file, before `${NAME}` is replaced; None: the same as `text`."""
    folder: Path | None = None
    """Relative paths begin here; None: in the working directory."""
    place: Place | None = None
    """None: it is not in a configuration or rule file."""

    @property
    def written(self) -> str:
        """The value as errors may show it."""
        return self.text if self.source is None else self.source

    def error(self, message: str) -> SettingsError:
        return SettingsError(f"{self.location}: {message}", self.place)

    def invalid(self, message: str) -> SettingsError:
        """An error that quotes the value."""
        return self.error(f"{quoted(self.written)} {message}")

    def duration(self, at_least: int = 0, at_most: int = LONGEST) -> int:
        """The duration in microseconds."""
        try:
            micros = parse_duration(self.text)
        except ValueError as error:
            raise self.invalid(str(error)) from error
        if micros < at_least:
            raise self.invalid(f"is too short: give at least {format_duration(at_least)}")
        if micros > at_most:
            raise self.invalid(f"is too long: give at most {format_duration(at_most)}")
        return micros

    def integer(self, lowest: int, highest: int) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", self.text) or not lowest <= int(self.text) <= highest:
            raise self.invalid(f"is not a whole number from {lowest} to {highest}")
        return int(self.text)

    def flag(self) -> bool:
        if self.text not in _FLAGS:
            raise self.invalid("must be true or false")
        return _FLAGS[self.text]

    def choice(self, choices: type[E]) -> E:
        members = {str(member.value): member for member in choices}
        if self.text not in members:
            raise self.invalid(f"is unknown: {did_you_mean(members, self.text)}")
        return members[self.text]

    def one_of(self, words: Collection[str], kind: str, shown: Collection[str] | None = None) -> str:
        """The text, which must be one of `words`. `shown`: the names that an error may show; None: `words`."""
        if self.text not in words:
            names = words if shown is None else shown
            hint = did_you_mean(names, self.text) if names else "there are none"
            raise self.invalid(f"is not one of the {kind}: {hint}")
        return self.text

    def url(self) -> SplitResult:
        try:
            return urlsplit(self.text)
        except ValueError:
            raise self.error("is not a URL") from None

    def matching(self, pattern: re.Pattern[str], form: str) -> str:
        if not pattern.fullmatch(self.text):
            raise self.invalid(f"must be {form}")
        return self.text

    def secret(self, kind: str) -> "Setting":
        """The setting, with the content of the file if the value is `file:PATH`. Errors name the location, never the secret."""
        text = self.text.strip()
        remember_secrets(self.written)
        if text.startswith("file:"):
            path = (self.folder or Path.cwd()) / text.removeprefix("file:")
            try:
                with path.open("rb") as file:
                    text = file.read(_MAX_SECRET).decode().strip()
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
                raise self.invalid(f"cannot be read: {reason}") from error
            if not text or not text.isprintable():
                raise self.invalid(f"must hold one {kind}, in one line")
        return Setting(text, self.location, self.written, self.folder, self.place)

    def not_empty(self) -> str:
        if not self.text:
            raise self.error("is empty: give a value, or remove it")
        return self.text

    def path(self) -> Path:
        if not self.text:
            raise self.error("is empty: give a path")
        return (self.folder or Path.cwd()) / self.text

    def readable(self) -> Path:
        """The path of a readable file. The error does not have the absolute path: the value may be a misplaced secret."""
        path = self.path()
        try:
            with path.open("rb"):
                return path
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a path"
            raise self.invalid(f"cannot be read: {reason}") from None


def in_file(text: str, location: str, folder: Path | None = None, place: Place | None = None) -> Setting:
    """A value of a file: `${NAME}` is replaced by that environment variable.

    Raises SettingsError: the variable is not set, or the text has more than one line.
    """
    return _printable(Setting(filled(text, location, place), location, text, folder, place))


def overrides_of(overrides: Mapping[str, object]) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """The settings of the command line (None: not given) and of the environment (empty: not given), by the names in OVERRIDES."""
    if unknown := overrides.keys() - set(OVERRIDES):
        raise TypeError(f"no such settings: {', '.join(sorted(unknown))}")
    line: dict[str, Setting] = {}
    environment: dict[str, Setting] = {}
    for name in OVERRIDES:
        value, variable = overrides.get(name), ENVIRONMENT_PREFIX + name.upper()
        if value is not None:
            text = "true" if value is True else str(value)
            line[name] = _printable(Setting(text, f"--{name.replace('_', '-')}"))
        if text := os.environ.get(variable, "").rstrip("\r\n"):
            environment[name] = _printable(Setting(text, variable))
    return line, environment


def _printable(setting: Setting) -> Setting:
    if not setting.text.isprintable():
        raise setting.error("must be one line of printable text")
    return setting
