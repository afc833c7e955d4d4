"""Regular expressions from documents that others can write. RE2 matches them: it never backtracks, so that none stalls the owner's thread.

The syntax and its meaning are those of Alertmanager, whose engine is RE2's. A pattern must match the whole text.
"""

from functools import lru_cache
from typing import Any, Final

from sidecar.core.sanitize import clean

LONGEST_PATTERN: Final = 200
LONGEST_TEXT: Final = 300
"""A longer text matches no pattern. A cluster id has at most 253 characters."""
LARGEST: Final = 400
"""The largest compiled pattern (instructions): the time of a match grows with it. A literal has about one for each character."""
_MEMORY: Final = 32 << 10
"""Bytes of a compiled pattern, and of what it remembers of earlier matches."""
_COMPILED: Final = 1024
"""Patterns that are kept compiled."""


class PatternError(ValueError):
    """The pattern is not understood. The text says why."""


def full_match(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole `text`. Raises PatternError."""
    compiled = _compiled(pattern)
    try:
        return len(text) <= LONGEST_TEXT and compiled.fullmatch(text) is not None
    except UnicodeEncodeError:  # lone surrogates
        return False


def size(pattern: str) -> int:
    """The size of the compiled pattern, up to LARGEST. Raises PatternError if the pattern is not understood."""
    return int(_compiled(pattern).programsize)


@lru_cache(_COMPILED)
def _compiled(pattern: str) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"is longer than {LONGEST_PATTERN} characters")
    import re2  # noqa: PLC0415  saves 2.5 MiB where no silence has a pattern

    options = re2.Options()
    options.max_mem, options.never_capture, options.log_errors = _MEMORY, True, False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise PatternError("is not text") from error
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise PatternError(f"is not understood: {clean(text)}") from error
    if compiled.programsize > LARGEST:
        raise PatternError("is too large: use fewer repetitions, or two patterns")
    return compiled
