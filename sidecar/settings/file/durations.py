"""Durations as text, in Prometheus' grammar and in Flink's. Both are read as microseconds."""

import re
from typing import Final

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000 * MILLISECOND
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

LONGEST: Final = 366 * DAY
"""The upper bound of every setting: a longer duration has the wrong unit."""

_UNITS: Final = {"w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE, "s": SECOND, "ms": MILLISECOND}
_PARTS = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,18}}){unit})?" for unit in _UNITS))

_FLINK_LABELS: Final = {
    DAY: "d day days",
    HOUR: "h hour hours",
    MINUTE: "min m minute minutes",
    SECOND: "s sec secs second seconds",
    MILLISECOND: "ms milli millis millisecond milliseconds",
    MICROSECOND: "µs micro micros microsecond microseconds",
}
_FLINK_UNITS: Final = {label: unit for unit, labels in _FLINK_LABELS.items() for label in labels.split()}
_FLINK_NANOSECONDS: Final = frozenset({"ns", "nano", "nanos", "nanosecond", "nanoseconds"})
_FLINK = re.compile(r"([0-9]{1,19})\s*([^\W\d]*)")
_ISO = re.compile(
    r"\+?P(?:(?P<d>[0-9]{1,9})D)?(?:T(?=[0-9])(?:(?P<h>[0-9]{1,9})H)?(?:(?P<m>[0-9]{1,9})M)?"
    r"(?:(?P<s>[0-9]{1,9})(?:\.(?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_duration(text: str) -> int:
    """`1h30m`, `10s`, `250ms`, `0`: units w, d, h, m, s, ms, largest first, each at most once.

    Raises ValueError for anything else and for more than LONGEST.
    """
    if text == "0":
        return 0
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        raise ValueError('is not a duration: write it like "10s", "1h30m" or "250ms"')
    return _bounded(sum(int(parts[unit]) * size for unit, size in _UNITS.items() if parts[unit]))


def format_duration(micros: int) -> str:
    """The text that `parse_duration` reads as `micros`, rounded down to whole milliseconds."""
    rest, parts = micros, []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def parse_flink_duration(text: str) -> int:
    """Mirrors Flink's `TimeUtils.parseDuration`: `60000` (milliseconds), `60 s`, `1 min`, `PT1M` (Flink 2.x only), …

    Fractions of a microsecond are dropped. Raises ValueError for what Flink does not read and for more than LONGEST.
    """
    text = text.strip()
    if match := _FLINK.fullmatch(text):
        number, label = int(match[1]), match[2].lower()
        if label in _FLINK_NANOSECONDS:
            return _bounded(number // 1000)
        if not label or label in _FLINK_UNITS:
            return _bounded(number * _FLINK_UNITS.get(label, MILLISECOND))
    elif (iso := _ISO.fullmatch(text)) and any(iso.groups()):
        days, hours, minutes, seconds = (int(iso[unit] or 0) for unit in "dhms")
        fraction = int((iso["fraction"] or "").ljust(6, "0")[:6])
        return _bounded(days * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND + fraction)
    raise ValueError('is not a Flink duration: Flink reads "60 s", "1 min" or "60000" (milliseconds)')


def _bounded(micros: int) -> int:
    if micros > LONGEST:
        raise ValueError(f"is longer than {LONGEST // DAY} days")
    return micros
