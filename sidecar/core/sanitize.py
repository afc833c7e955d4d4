"""Untrusted text, made safe to show. Short-lived processes use it too: it imports next to nothing.

Unprintable are control characters, which act on a terminal, and invisible ones, which change the direction of text or hide in a name.
"""

from collections.abc import Mapping
from typing import Final

MOST_CHARACTERS: Final = 200
"""Shown of one untrusted value."""
_SHORT_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def clean(text: object, at_most: int = MOST_CHARACTERS) -> str:
    """Untrusted text as one printable, bounded line."""
    line = str(text)
    if len(line) <= at_most and line.isprintable():
        return line
    line = printable(line[: at_most + 1])
    return line if len(line) <= at_most else line[:at_most] + "…"


def clean_values(texts: Mapping[str, str], at_most: int = MOST_CHARACTERS) -> dict[str, str]:
    """Untrusted values by trusted names, each as `clean` makes it."""
    everything = "".join(texts.values())
    if len(everything) <= at_most and everything.isprintable():
        return dict(texts)
    return {name: clean(text, at_most) for name, text in texts.items()}


def printable(text: str) -> str:
    """A text of any length as one printable line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def escaped(text: str, keep: str = "", *, ascii_only: bool = False) -> str:
    """A text whose unprintable characters, except those to `keep`, are escaped as in JSON. A JSON text keeps its meaning.

    `ascii_only`: all others that are not ASCII, too.
    """
    if text.isprintable() and (text.isascii() or not ascii_only):
        return text
    odd = {char for char in {*text} if not (char in keep or _is_plain(char, ascii_only))}
    return text.translate({ord(char): _escape(char) for char in odd})


def _is_plain(char: str, ascii_only: bool) -> bool:
    return char.isprintable() and (char.isascii() or not ascii_only)


def _escape(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
