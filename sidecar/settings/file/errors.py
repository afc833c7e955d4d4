"""The one exception of the settings, and how it speaks."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from sidecar.core.errors import OperatorError

_HARMLESS = re.compile(r"[\w ${}.,:;/+*-]{0,60}")
_SECRETIVE = ("://", "//", "@")


class SettingsError(OperatorError):
    """The settings cannot be used. The line says where, what is wrong, what to do. It never holds a secret."""

    exit_status = 2

    def __init__(self, message: str) -> None:
        super().__init__("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in message))


def shown(text: str) -> str:
    """`text` in quotes, unless it might be a notification URL that stands in a wrong place: those hold secrets."""
    harmless = _HARMLESS.fullmatch(text) and not any(mark in text for mark in _SECRETIVE)
    return f'"{text}"' if harmless else "<not shown>"


def expected(known: Iterable[str], given: str) -> str:
    """What somebody who wrote `given` should have written: the nearest known word, or all of them."""
    words = sorted(known)
    near = get_close_matches(given, words, n=1)
    return f'did you mean "{near[0]}"?' if near else f"known are {', '.join(words)}"
