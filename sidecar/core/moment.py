"""Time as the core is told it."""

from datetime import UTC, datetime, timedelta
from typing import NewType

from msgspec import Struct

SECOND = 1_000_000
"""Microseconds in a second: every duration in the core is an int of microseconds."""

Timestamp = NewType("Timestamp", str)
"""RFC 3339, UTC, always six digits of a second: `2026-11-20T08:12:04.882702Z`. Sorts as text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(Struct, frozen=True, order=True):
    """One instant on two clocks.

    `steady` never jumps and decides every duration and deadline; `wall` is what people and records are told. Both are microseconds since
    the epoch, and `steady` goes on where it was after a restart.
    """

    steady: int
    wall: int


def timestamp(wall: int) -> Timestamp:
    """`wall` microseconds since the epoch as text."""
    return Timestamp((_EPOCH + timedelta(microseconds=wall)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def seconds(micros: int) -> str:
    """A duration for people: one digit below ten seconds, none above."""
    value = micros / SECOND
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
