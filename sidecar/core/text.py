"""Text from elsewhere, made fit to be shown. Short-lived processes use it too: it imports next to nothing."""

from typing import Final

MOST_CHARACTERS: Final = 200
"""Of one untrusted value."""


def clean(text: object, at_most: int = MOST_CHARACTERS) -> str:
    """Untrusted text as one printable, bounded line."""
    cut = str(text)[: at_most + 1]
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)
    return shown if len(shown) <= at_most else shown[:at_most] + "…"
