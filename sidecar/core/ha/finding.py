"""The finding of a check: a verdict, the facts it rests on, and the remedy."""

from enum import StrEnum
from typing import Final

from msgspec import Struct


class CheckVerdict(StrEnum):
    """UNKNOWN: the facts could not be read, or do not decide. It is never PASS."""

    PASS = "PASS"  # noqa: S105  not a password
    RISK = "RISK"
    UNKNOWN = "UNKNOWN"


WORST_FIRST: Final = (CheckVerdict.RISK, CheckVerdict.UNKNOWN, CheckVerdict.PASS)
"""The order in which they are shown."""


class UnknownFact(Struct, frozen=True):
    """A fact that could not be read."""

    reason: str
    """One line: the missing fact, and what would make it known."""


class Finding(Struct, frozen=True):
    """The result of one check."""

    verdict: CheckVerdict
    text: str
    """The facts, in one line. UNKNOWN: what is missing."""
    advice: str = ""
    """The remedy for a RISK."""


def passes(text: str) -> Finding:
    return Finding(CheckVerdict.PASS, text)


def risk(text: str, advice: str) -> Finding:
    return Finding(CheckVerdict.RISK, text, advice)


def unknown(text: str) -> Finding:
    return Finding(CheckVerdict.UNKNOWN, text)
