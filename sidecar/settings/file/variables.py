"""`${NAME}` in a value of a file: an environment variable in its place."""

import os
import re
from typing import Final

from sidecar.settings.file.settings_error import Place, SettingsError

_VARIABLE = re.compile(r"\$?\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_secret_variables: Final[set[str]] = set()
"""The names of all variables with secrets: one set for the process, like the environment."""


def filled(text: str, location: str, place: Place | None) -> str:
    """`text` with the content of each variable; `$${` is a plain `${`.

    A variable from a Secret that was made with `echo` ends with a line break: it is left out.
    Raises SettingsError with the name of a variable that is not set, or has more than one line, and never with a content.
    """

    def content(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match[1]
        if not match[2] or not _NAME.fullmatch(name):
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
