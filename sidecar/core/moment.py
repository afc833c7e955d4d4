"""Time as an argument of the core: moments, durations, and their forms in records and for people."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil, floor
from typing import Annotated, Final, NewType

from msgspec import Meta, Struct

SECOND = 1_000_000
"""Microseconds in a second: every duration in the core is an int of microseconds."""

Timestamp = NewType("Timestamp", str)
"""RFC 3339, UTC, always six digits of a second: `2026-11-20T08:12:04.882702Z`. Sorts as text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MILLIS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""
LATEST: Final = _LATEST_MILLIS * 1000

# Microseconds that are read from a file or a document are within the bounds of a calendar.
Steady = Annotated[int, Meta(ge=-LATEST, le=LATEST)]
"""A time on the steady clock. `rebase` moves all fields of this type."""
Wall = Annotated[int, Meta(ge=0, le=LATEST)]
"""A time since the epoch."""
Duration = Annotated[int, Meta(ge=0, le=LATEST)]


class Moment(Struct, frozen=True, order=True):
    """One instant on two clocks, in microseconds since the epoch.

    `steady` never jumps: every duration and deadline uses it, and after a restart it continues. `wall` is for people and records.
    """

    steady: Steady
    wall: Wall


def moment_of(wall: int | None, now: Moment) -> Moment:
    """The moment of a time by another clock; not later than `now`. None: now."""
    return now if wall is None or wall >= now.wall else Moment(now.steady - (now.wall - wall), max(wall, 0))


@lru_cache(maxsize=16)  # all records of one step have the same times
def timestamp(wall: int) -> Timestamp:
    """`wall` microseconds since the epoch as text; before 1970 or after 9999 the nearest time of these."""
    since = timedelta(microseconds=min(max(wall, 0), LATEST))
    return Timestamp((_EPOCH + since).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


def spoken(wall: int) -> str:
    """`wall` microseconds since the epoch for people: `2026-11-20 08:12:04 UTC`."""
    return (_EPOCH + timedelta(microseconds=wall)).strftime("%Y-%m-%d %H:%M:%S UTC")


def parsed(text: str) -> int:
    """The microseconds of a `timestamp`. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without its distance from UTC")
    return round(moment.timestamp() * SECOND)


def stored_at(millis: int) -> Timestamp | None:
    """The store's own time of a write, in milliseconds since the epoch, as text; None if it is before 1970 or after 9999."""
    return timestamp(millis * 1000) if 0 <= millis <= _LATEST_MILLIS else None


def in_seconds(duration: int) -> float:
    """A duration in seconds, as in records."""
    return round(duration / SECOND, 6)


def micros(recorded: float) -> int:
    """A recorded duration in microseconds."""
    return round(recorded * SECOND)


def seconds(micros: int) -> str:
    """A duration for people: one digit below ten seconds, none above."""
    value = micros / SECOND
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def lag(micros: int) -> str:
    """How long after the loss of a leader something was observed; negative: before."""
    return f"{abs(micros) / SECOND:.1f} s {'after' if micros > 0 else 'before'} the leader was lost"


def age(micros: int) -> str:
    """A duration for people in its two largest units: `43 s`, `5 min 12 s`, `2 h 5 min`, `3 d 4 h`. A negative one is `0 s`."""
    value = max(0, micros) // SECOND
    for unit, size, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if value >= size:
            rest = value % size // part
            return f"{value // size} {unit}{f' {rest} {smaller}' if rest else ''}"
    return f"{value} s"


def bounds(at_least: int, at_most: int | None) -> str:
    """The bounds of a duration for people, rounded outwards: `8.8 to 16 s`; `at least 2.0 s` without an upper bound."""
    if at_least == at_most:
        return seconds(at_least)
    low = floor(at_least / SECOND * 10) / 10 if at_least < 10 * SECOND else floor(at_least / SECOND)
    if at_most is None:
        return f"at least {seconds(round(low * SECOND))}"
    high = ceil(at_most / SECOND * 10) / 10 if at_most < 10 * SECOND else ceil(at_most / SECOND)
    return f"{seconds(round(low * SECOND)).removesuffix(' s')} to {seconds(round(high * SECOND))}"
