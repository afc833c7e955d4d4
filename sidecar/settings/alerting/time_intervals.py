"""Time intervals: Alertmanager's `time_intervals`, as they stand in a configuration."""

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from sidecar.core.policy.routing import Span, TimeInterval, TimeRange
from sidecar.settings.file import schema
from sidecar.settings.file.errors import expected
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given

_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)


def time_intervals(documents: Sequence[Section]) -> dict[str, TimeInterval]:
    """The intervals of all documents, by name."""
    found: dict[str, TimeInterval] = {}
    for section in (
        each for document in documents for each in document.sections("time_intervals", schema.TIME_INTERVAL)
    ):
        given = section.get("name")
        if given.text in found:
            raise given.wrong("is there already: rename one")
        ranges = tuple(_range(each) for each in section.sections("time_intervals", schema.TIME_RANGE))
        if not ranges:
            raise section.error("time_intervals", "lists no times: give at least one")
        found[given.text] = TimeInterval(given.text, ranges)
    return found


def _range(section: Section) -> TimeRange:
    weekdays = {name: number for number, name in enumerate(_WEEKDAYS)}
    months = {name: number for number, name in enumerate(_MONTHS, 1)} | {str(number): number for number in range(1, 13)}
    return TimeRange(
        times=tuple(_times(each) for each in section.sections("times", schema.TIMES)),
        weekdays=tuple(_named(each, weekdays) for each in section.texts("weekdays")),
        days_of_month=tuple(_days(each) for each in section.texts("days_of_month")),
        months=tuple(_named(each, months) for each in section.texts("months")),
        years=tuple(_years(each) for each in section.texts("years")),
        zone=_zone(section.find("location")),
    )


def _times(section: Section) -> Span:
    start, end = (_minute(section.get(key)) for key in ("start_time", "end_time"))
    if start >= end:
        raise section.get("end_time").wrong("is not after start_time: an interval over midnight is two of them")
    return start, end


def _minute(given: Given) -> int:
    given.matching(_TIME, 'a time like "09:30"')
    hours, minutes = given.text.split(":")
    return int(hours) * 60 + int(minutes)


def _named(given: Given, names: dict[str, int]) -> Span:
    """`monday`, `monday:friday`."""
    first, _, last = given.text.lower().partition(":")
    for name in (first, last or first):
        if name not in names:
            raise given.wrong(f"is unknown: {expected(names, name)}")
    return _in_order(given, names[first], names[last or first])


def _days(given: Given) -> Span:
    """`1`, `1:5`, `-3:-1`."""
    first, last = _numbers(given, r"-?[0-9]{1,2}")
    for day in (first, last):
        if not 1 <= abs(day) <= 31:
            raise given.wrong("is no day of a month: give 1 to 31, or -31 to -1 from its end")
    return (first, last) if first * last < 0 else _in_order(given, first, last)


def _years(given: Given) -> Span:
    return _in_order(given, *_numbers(given, r"[0-9]{4}"))


def _numbers(given: Given, number: str) -> tuple[int, int]:
    match = re.fullmatch(rf"({number})(?::({number}))?", given.text)
    if match is None:
        raise given.wrong("must be a number, or two with a colon between them")
    return int(match[1]), int(match[2] or match[1])


def _in_order(given: Given, first: int, last: int) -> Span:
    if first > last:
        raise given.wrong("ends before it begins")
    return first, last


def _zone(given: Given | None) -> tzinfo:
    if given is None or given.text == "UTC":
        return UTC
    try:
        return ZoneInfo(given.text)
    except (KeyError, ValueError, OSError) as error:
        raise given.wrong(
            'is no time zone that is known here: give one like "Europe/Berlin", or install tzdata'
        ) from error
