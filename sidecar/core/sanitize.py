"""Text from elsewhere, made fit to be shown. Short-lived processes use it too: it imports next to nothing.

Unprintable are control characters, which command a terminal, and those that only a layout sees: they turn the direction of what follows, or
hide in a name.
"""

from typing import Final

MOST_CHARACTERS: Final = 200
"""Of one untrusted value."""
_SHORT_ESCAPES: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def clean(text: object, at_most: int = MOST_CHARACTERS) -> str:
    """Untrusted text as one printable, bounded line."""
    shown = printable(str(text)[: at_most + 1])
    return shown if len(shown) <= at_most else shown[:at_most] + "…"


def printable(text: str) -> str:
    """A text of any length as one printable line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def escaped(text: str, keep: str = "") -> str:
    """A text with its unprintable characters, but for those to `keep`, written as JSON escapes them: one line, in which nothing is hidden
    or acts on a terminal. JSON stays the same JSON.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else _escape(char) for char in text)


def _escape(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
