"""Regular expressions from documents that others can write: matched without backtracking, so that none can stall the owner's thread.

The syntax is what Python's `re` and RE2 have in common: literals, `.`, classes, groups, `|`, `* + ? {2,5}`, `\\d \\w \\s` of ASCII.
A pattern must match the whole text.
"""

import string
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

LONGEST_PATTERN: Final = 200
LONGEST_TEXT: Final = 300
"""A longer text matches no pattern. A cluster id has at most 253 characters."""
MOST_REPEATS: Final = 100
"""In `{2,5}`, which has no repetition inside and is inside of none."""
DEEPEST: Final = 2
"""Repetitions by `*`, `+` and `?` inside each other."""

_Ends = Callable[[str, AbstractSet[int]], AbstractSet[int]]
"""Where in a text an expression may end, if it may begin at these places."""
_Accepts = Callable[[str], bool]

_DIGIT: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_BLANK: Final = frozenset(" \t\n\r\f\v")
_SETS: Final = {"d": _DIGIT, "w": _WORD, "s": _BLANK}
_CONTROLS: Final = {"n": "\n", "t": "\t"}
_SPECIAL: Final = frozenset("*+?{}()|[]^$")


class PatternError(ValueError):
    """Not a pattern that is understood: what is wrong with it."""


def full_match(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole `text`. Raises PatternError."""
    return len(text) <= LONGEST_TEXT and _matches(pattern, text)


def check(pattern: str) -> None:
    """Raises PatternError if `pattern` is not understood."""
    _compiled(pattern)


@lru_cache(maxsize=8192)
def _matches(pattern: str, text: str) -> bool:
    return len(text) in _compiled(pattern)(text, {0})


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Ends:
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"is longer than {LONGEST_PATTERN} characters")
    reader = _Reader(pattern)
    ends, _ = reader.alternatives()
    if reader.rest:
        raise PatternError('has a ")" without "("')
    return ends


class _Reader:
    """Reads a pattern from left to right. Each method returns an expression, and how deep its repetitions are inside each other."""

    def __init__(self, pattern: str) -> None:
        self.rest = pattern

    def alternatives(self) -> tuple[_Ends, int]:
        found = [self._sequence()]
        while self._skip("|"):
            found.append(self._sequence())
        options = [ends for ends, _ in found]
        return (_any_of(options) if len(options) > 1 else options[0]), max(depth for _, depth in found)

    def _sequence(self) -> tuple[_Ends, int]:
        found, deepest = list[_Ends](), 0
        while self.rest and self.rest[0] not in "|)":
            ends, depth = self._repeated()
            found.append(ends)
            deepest = max(deepest, depth)
        return _each_of(found), deepest

    def _repeated(self) -> tuple[_Ends, int]:
        ends, depth = self._atom()
        times = self._times()
        if times is None:
            return ends, depth
        self._skip("?")  # lazy: the whole text is matched either way
        if self.rest[:1] and self.rest[0] in "*+?{":
            raise PatternError("repeats a repetition: put it into a group")
        is_counted = max(times[0], times[1] or 0) > 1
        if depth == DEEPEST or (depth and is_counted):
            raise PatternError(
                f"has more than {DEEPEST} repetitions inside each other, or one inside of a number like {{2,5}}"
            )
        return _repeat(ends, *times), DEEPEST if is_counted else depth + 1

    def _times(self) -> tuple[int, int | None] | None:
        """How often the last expression may occur; None: once."""
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(sign):
                return times
        if not self._skip("{"):
            return None
        inner, closed, self.rest = self.rest.partition("}")
        low, comma, high = inner.partition(",")
        if not closed or not low.isdecimal() or not (high.isdecimal() or not high) or len(inner) > 9:
            raise PatternError('has a "{" that is not a number of repetitions, like {2} or {2,5}')
        least, most = int(low), int(high) if high else (None if comma else int(low))
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise PatternError(
                f"repeats something more than {MOST_REPEATS} times, or at most fewer times than at least"
            )
        return least, most

    def _atom(self) -> tuple[_Ends, int]:
        char = self._next()
        match char:
            case "(":
                if self.rest.startswith("?") and not self._skip("?:"):
                    raise PatternError('has a group with "(?": only (?:…) is understood')
                ends, depth = self.alternatives()
                if not self._skip(")"):
                    raise PatternError('has a "(" without ")"')
                return ends, depth
            case "[":
                return _one(self._class()), 0
            case ".":
                return _one(lambda each: each != "\n"), 0
            case "\\":
                return _one(self._escape()), 0
            case "^" | "$":
                raise PatternError("has ^ or $: the whole value is matched anyway, leave them out")
        if char in _SPECIAL:
            raise PatternError(f'has a "{char}" out of place: write \\{char} for the character')
        return _one(lambda each: each == char), 0

    def _class(self) -> _Accepts:
        negated = self._skip("^")
        single, parts = set[str](), list[_Accepts]()
        while not self._skip("]"):
            low = self._next()
            if low == "[":
                raise PatternError('has a "[" in a class: write \\[ for the character')
            if low == "\\":
                parts.append(self._escape())
            elif self.rest.startswith("-") and self.rest[1:2] not in {"]", ""}:
                self._next()
                parts.append(_between(low, self._next()))
            else:
                single.add(low)
        if not single and not parts:
            raise PatternError("has an empty class")
        return lambda char: (char in single or any(part(char) for part in parts)) != negated

    def _escape(self) -> _Accepts:
        char = self._next()
        if char.lower() in _SETS:
            known, inside = _SETS[char.lower()], char.islower()
            return lambda each: (each in known) == inside
        if char in _CONTROLS or not (char.isalnum() or char == "_"):
            literal = _CONTROLS.get(char, char)
            return lambda each: each == literal
        raise PatternError(f"has \\{char}, which is not understood")

    def _next(self) -> str:
        if not self.rest:
            raise PatternError("ends too soon")
        char, self.rest = self.rest[0], self.rest[1:]
        return char

    def _skip(self, text: str) -> bool:
        if not self.rest.startswith(text):
            return False
        self.rest = self.rest[len(text) :]
        return True


def _between(low: str, high: str) -> _Accepts:
    if high in "\\[" or low > high or not (low.isalnum() and high.isalnum()):
        raise PatternError(f'has a range "{low}-{high}" in a class that is not from one letter or digit to a later one')
    return lambda char: low <= char <= high


def _one(accepts: _Accepts) -> _Ends:
    return lambda text, starts: {at + 1 for at in starts if at < len(text) and accepts(text[at])}


def _each_of(parts: list[_Ends]) -> _Ends:
    def ends(text: str, starts: AbstractSet[int]) -> AbstractSet[int]:
        for part in parts:
            if not starts:
                break
            starts = part(text, starts)
        return starts

    return ends


def _any_of(options: list[_Ends]) -> _Ends:
    return lambda text, starts: set[int]().union(*(option(text, starts) for option in options))


def _repeat(item: _Ends, least: int, most: int | None) -> _Ends:
    def ends(text: str, starts: AbstractSet[int]) -> AbstractSet[int]:
        here, times = starts, 0
        while here and times < least:
            there, times = item(text, here), times + 1
            if there == here:  # more repetitions of what may be empty change nothing
                break
            here = there
        reached, times = set(here), least
        while here and (most is None or times < most):
            here, times = item(text, here) - reached, times + 1
            reached |= here
        return reached

    return ends
