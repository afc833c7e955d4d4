"""SettingsError, and the two phrases that its messages share."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from sidecar.core.errors import OperatorError

_HARMLESS = re.compile(r"[\w ${}.,:;/+*-]{0,60}")
_SECRETIVE = ("://", "//", "@")


class Place(NamedTuple):
    """Where a value is: the name of a file, and the keys and indexes that lead to it."""

    file: str
    path: tuple[str | int, ...]


class SettingsError(OperatorError):
    """The settings cannot be used. The line has the location, the problem and the remedy, and never a secret."""

    exit_status = 2

    def __init__(self, message: str, place: Place | None = None) -> None:
        """`place`: of the mistake; None: it is not in a configuration or rule file."""
        self.place = place
        super().__init__("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in message))


def quoted(text: str) -> str:
    """`text` in quotes, unless it might be a misplaced notification URL, which holds secrets."""
    harmless = _HARMLESS.fullmatch(text) and not any(mark in text for mark in _SECRETIVE)
    return f'"{text}"' if harmless else "<not shown>"


def did_you_mean(known: Iterable[str], text: str) -> str:
    """The known word nearest to `text`, else all known words."""
    words = sorted(known)
    near = get_close_matches(text, words, n=1)
    return f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(words)}"
