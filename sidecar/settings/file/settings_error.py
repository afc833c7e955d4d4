"""SettingsError, how it quotes a value, and its hint about a word that is none of the known ones."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

from sidecar.core.errors import OperatorError

NO_VALUE: Final = "has no value: give it one, or remove it"
_LONGEST: Final = 200
"""Characters of a value that an error quotes."""
_SEARCHED: Final = 1000
"""Characters of a value in which a secret is looked for: more than are quoted, so that none is cut in two."""
_SECRETIVE = re.compile(
    r"://|^([A-Za-z][\w+.-]*)?//|:[^:]*@|/\S*[?&][^=]+="  # of a URL: its scheme, user and password, query
    r"|\b(?=\w*[A-Z])(?=\w*[a-z])(?=\w*[0-9])[\w-]{65,}"  # a token
)
_ADDRESS = re.compile(r"(?:https?|tcp|zk|zookeeper)://[\w.:\[\]-]+(?:,[\w.:\[\]-]+)*/?", re.ASCII)
"""A URL of servers, without anything that could be a secret."""


class SettingPlace(NamedTuple):
    """The place of a value: the name of a file, and the keys and indexes that lead to it."""

    file: str
    path: tuple[str | int, ...]


class SettingsError(OperatorError):
    """The settings cannot be used. The line has the location, the problem and the remedy, and never a secret."""

    exit_status = 2

    def __init__(self, message: str, place: SettingPlace | None = None) -> None:
        """`place`: of the mistake; None: it is not in a configuration or rule file."""
        self.place = place
        super().__init__("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in message))


def quoted(text: str) -> str:
    """`text` in quotes, shortened, unless it might be a misplaced notification URL or token."""
    if _SECRETIVE.search(text[:_SEARCHED]) and not _ADDRESS.fullmatch(text):
        return "<not shown: it may be a secret>"
    excerpt = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"'{excerpt}'" if '"' in excerpt and "'" not in excerpt else f'"{excerpt}"'


def did_you_mean(words: Iterable[str], text: str) -> str:
    """The one of `words` that is nearest to `text`, else all of them."""
    words = sorted(words)
    near = get_close_matches(text, words, n=1)
    return f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(words)}"
