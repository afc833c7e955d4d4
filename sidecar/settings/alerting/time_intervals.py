"""Alertmanager's `time_intervals`."""

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from sidecar.core.policy.routing import Span, TimeInterval, TimeRange
from sidecar.settings.file.key import Key
from sidecar.settings.file.section import Section, unique_sections
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import did_you_mean

_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_LONGEST_MONTH: Final = 31
_FEBRUARY: Final = 2
_WEEKDAYS: Final = dict(
    zip(("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"), range(7), strict=True)
)
_MONTH_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTHS: Final = {key: number for number, name in enumerate(_MONTH_NAMES, 1) for key in (name, str(number))}


def _minute(setting: Setting) -> int:
    setting.matching(_TIME, 'a time like "09:30"')
    hours, minutes = setting.text.split(":")
    return int(hours) * 60 + int(minutes)


def _names(setting: Setting, names: dict[str, int]) -> Span:
    """`monday`, `monday:friday`."""
    first, _, last = setting.text.lower().partition(":")
    for name in (first, last or first):
        if name not in names:
            raise setting.invalid(f"is unknown: {did_you_mean(names, name)}")
    return _ordered_span(setting, names[first], names[last or first])


def _days(setting: Setting) -> Span:
    """`1`, `1:5`, `-3:-1`."""
    first, last = _numbers(setting, r"-?[0-9]{1,2}")
    for day in (first, last):
        if not 1 <= abs(day) <= 31:
            raise setting.invalid("is not a day of a month: give 1 to 31, or -31 to -1 from its end")
    if first < 0 < last:
        raise setting.invalid(
            "has an end counted from the beginning of the month, and a start from its end: give two ranges"
        )
    if last < 0 < first and first > _LONGEST_MONTH + 1 + last:
        raise setting.invalid(
            f"ends before it begins in every month: day {last} is at most the {_LONGEST_MONTH + 1 + last}th"
        )
    return (first, last) if first * last < 0 else _ordered_span(setting, first, last)


def _years(setting: Setting) -> Span:
    return _ordered_span(setting, *_numbers(setting, r"[0-9]{4}"))


def _numbers(setting: Setting, number: str) -> tuple[int, int]:
    match = re.fullmatch(rf"({number})(?::({number}))?", setting.text)
    if match is None:
        raise setting.invalid("must be a number, or two with a colon between them")
    return int(match[1]), int(match[2] or match[1])


def _ordered_span(setting: Setting, first: int, last: int) -> Span:
    if first > last:
        raise setting.invalid("ends before it begins: give two ranges")
    return first, last


def _zone(setting: Setting) -> tzinfo:
    if setting.text == "UTC":
        return UTC
    try:
        return ZoneInfo(setting.text)
    except (KeyError, ValueError, OSError) as error:
        raise setting.invalid('is not a known time zone: give one like "Europe/Berlin", or install tzdata') from error


class TimesKeys(Struct, frozen=True):
    """The keys of `times`."""

    start_time: Annotated[int, Key(_minute)]
    end_time: Annotated[int, Key(_minute)]


def _times(section: Section) -> Span:
    start, end = section.values(TimesKeys).values()
    if start >= end:
        raise section.get("end_time").invalid("is not after start_time: split an interval over midnight in two")
    return start, end


class TimeRangeKeys(Struct, frozen=True):
    """The keys of a range of times."""

    times: Annotated[tuple[Span, ...], Key(_times, inside=(TimesKeys,), many=tuple)] = ()
    """a list of `{start_time: "09:00", end_time: "17:00"}`, without the end. Over midnight: two"""
    weekdays: Annotated[tuple[Span, ...], Key(lambda setting: _names(setting, _WEEKDAYS), many=tuple)] = ()
    """`[monday:friday, sunday]`"""
    days_of_month: Annotated[tuple[Span, ...], Key(_days, many=tuple)] = ()
    """`["1:5", "-3:-1", "25:-1"]`; negative ones count from the end. A range that is in no month is an error"""
    months: Annotated[tuple[Span, ...], Key(lambda setting: _names(setting, _MONTHS), many=tuple)] = ()
    """`["january:march", "12"]`"""
    years: Annotated[tuple[Span, ...], Key(_years, many=tuple)] = ()
    """`["2026:2028"]`"""
    zone: Annotated[tzinfo, Key(_zone, name="location")] = UTC
    """a time zone like `Europe/Berlin`; else UTC"""


class TimeIntervalKeys(Struct, frozen=True):
    """The keys of a time interval."""

    name: Annotated[str, Key()]
    """used in routes. Required"""
    time_intervals: Annotated[tuple[TimeRange, ...], Key(inside=(TimeRangeKeys,), many=tuple)]
    """a list of [times](#times): any of them. Required"""


def time_intervals(documents: Sequence[Section]) -> dict[str, TimeInterval]:
    intervals: dict[str, TimeInterval] = {}
    for section in unique_sections(documents, "time_intervals"):
        name = section.get("name").text
        ranges = tuple(map(_range, section.sections("time_intervals")))
        if not ranges:
            raise section.error("time_intervals", "lists no times: give at least one")
        intervals[name] = TimeInterval(name, ranges)
    return intervals


def _range(section: Section) -> TimeRange:
    time_range = TimeRange(**section.values(TimeRangeKeys))
    if not any(_has_day(time_range, month, length) for month in range(1, 13) for length in _lengths(month)):
        raise section.error("days_of_month", "none of the months has such a day, so that this is no time at all")
    return time_range


def _lengths(month: int) -> tuple[int, ...]:
    """The numbers of days that the month may have."""
    return (28, 29) if month == _FEBRUARY else (monthrange(2001, month)[1],)


def _has_day(time_range: TimeRange, month: int, length: int) -> bool:
    """True if a month of `length` days has a day in the range."""
    spans = [[day if day > 0 else length + 1 + day for day in span] for span in time_range.days_of_month]
    in_month = not time_range.months or any(first <= month <= last for first, last in time_range.months)
    return in_month and (not spans or any(max(first, 1) <= min(last, length) for first, last in spans))
