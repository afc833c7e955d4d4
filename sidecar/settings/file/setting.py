"""One configured value with its location. The caller reads it as what its key means; each error names the location."""

import os
import re
from collections.abc import Collection, Mapping
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from sidecar.settings.file.durations import LONGEST, format_duration, parse_duration
from sidecar.settings.file.settings_error import SettingPlace, SettingsError, did_you_mean, quoted

_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_secret_variables: Final[set[str]] = set()
"""The names of all variables with secrets: one set for the process, like the environment."""


def filled(text: str, location: str, place: SettingPlace | None) -> str:
    """`text` with the content of each variable; `$${` is a plain `${`.

    A variable from a Secret that was made with `echo` ends with a line break: it is left out.
    Raises SettingsError with the name of a variable that is not set, or has more than one line, and never with a content.
    """

    def content(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match[1]
        if not match[2] or not _VARIABLE_NAME.fullmatch(name):
            problem = "only ${NAME} is understood after a dollar sign; write $${ for a plain ${"
            raise SettingsError(f"{location}: {problem}", place)
        if name not in os.environ:
            raise SettingsError(f"{location}: the environment variable {name} is not set", place)
        value = os.environ[name].rstrip("\r\n")
        if not value.isprintable():
            problem = f"the environment variable {name} must hold one line of printable text"
            raise SettingsError(f"{location}: {problem}", place)
        return value

    return _VARIABLE.sub(content, text)


def remember_secrets(text: str) -> None:
    """The variables in `text` hold secrets."""
    _secret_variables.update(match[1] for match in _VARIABLE.finditer(text) if not match[0].startswith("$$"))


def secret_variables() -> frozenset[str]:
    """The environment variables from which this process read secrets (`${NAME}` in a URL or password). Child programs must not get them."""
    return frozenset(_secret_variables)


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
    place: SettingPlace | None = None
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


def file_setting(text: str, location: str, folder: Path | None = None, place: SettingPlace | None = None) -> Setting:
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


_OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\*")


def is_host(text: str) -> bool:
    """True if `text` can be a host: what ends in a number is an IP address, or a mistake (RFC 1123), like 300.1.1.1."""
    bare = text.removeprefix("[").removesuffix("]")
    if not bare.rpartition(".")[2].isdigit() and ":" not in bare:
        return bool(bare)
    try:
        ip_address(bare)
    except ValueError:
        return False
    return True


def spool_place(url: Setting) -> Path | str:
    """The folder that a path or a `file://` URL names, or the URL of a place in an object store."""
    if "://" not in url.text:
        return url.path()
    parts = url.url()
    if parts.scheme in _OBJECT_STORES:
        return _object_url(url, parts)
    if parts.scheme != "file":
        raise url.error(
            f"must be a folder on this machine, file:///…, or begin with one of {', '.join(_OBJECT_STORES)} and ://"
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise url.error("must be like file:///var/spool/flink-ha-sidecar, with three slashes")
    return Path(unquote(parts.path))


def _object_url(url: Setting, parts: SplitResult) -> str:
    """The URL, which holds no secret. In Azure's `abfss://container@account…` the part before the host is not a user."""
    if "@" in parts.netloc and (":" in parts.netloc or not parts.scheme.startswith("abfs")):
        raise url.error("must hold no user and no password: credentials come from the environment")
    if "?" in url.text or "#" in url.text:
        raise url.error("must end with its path, without ? and #: credentials and options come from the environment")
    if not parts.netloc:
        raise url.error(f"names no bucket: give one like {parts.scheme}://bucket/prefix")
    return url.text


def listening_host(setting: Setting) -> str:
    if not is_host(setting.not_empty()):
        raise setting.invalid("is no IP address, and no host name")
    return setting.text.removeprefix("[").removesuffix("]")


def public_url(setting: Setting) -> str:
    parts = setting.url()
    extra = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in {"http", "https"} or not is_host(parts.hostname or "") or extra:
        raise setting.error("must be like https://host/path, without a user, ? and #: messages show it")
    return setting.text.rstrip("/")


def host_name(setting: Setting) -> str:
    """The name of a host in lower case, or `*`."""
    return setting.matching(_HOST_NAME, "a host name without a port, or *").lower().removesuffix(".")
