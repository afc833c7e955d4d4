"""The hint of an error about a word that is none of the known ones."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(words: Iterable[str], text: str) -> str:
    """The one of `words` that is nearest to `text`, else all of them."""
    words = sorted(words)
    near = get_close_matches(text, words, n=1)
    return f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(words)}"
