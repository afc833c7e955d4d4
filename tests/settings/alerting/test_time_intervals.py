"""Time intervals against an independent oracle: a calendar that is walked day by day."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from sidecar.core.moment import SECOND
from sidecar.settings import SettingsError
from sidecar.settings.alerting.alerting import RULE_FILE
from sidecar.settings.alerting.time_intervals import time_intervals
from sidecar.settings.file.section import Section
from sidecar.settings.file.yaml_document import parse

WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia")


def written(value: Any) -> str:
    """As it stands in a file."""
    return repr(value).replace("'", '"')


def random_range(random: Random) -> dict[str, Any]:
    """Some of the conditions that there are."""
    chosen: dict[str, Any] = {}
    if random.random() < 0.5:
        start = random.randrange(0, 1430)
        end = random.randrange(start + 1, 1441)
        chosen["times"] = [
            {"start_time": f"{start // 60:02}:{start % 60:02}", "end_time": f"{end // 60:02}:{end % 60:02}"}
        ]
    if random.random() < 0.5:
        first = random.randrange(7)
        last = random.randrange(first, 7)
        chosen["weekdays"] = [f"{WEEKDAYS[first]}:{WEEKDAYS[last]}", random.choice(WEEKDAYS)]
    if random.random() < 0.4:
        first = random.randint(1, 31)
        chosen["days_of_month"] = [
            random.choice((f"{first}:{random.randint(first, 31)}", f"-{first}:-1", f"{first}:-1", f"-{first}"))
        ]
    if random.random() < 0.4:
        first = random.randrange(12)
        chosen["months"] = [f"{MONTHS[first]}:{MONTHS[random.randrange(first, 12)]}", str(random.randint(1, 12))]
    if random.random() < 0.2:
        chosen["years"] = ["2026:2027"]
    chosen["location"] = random.choice(ZONES)
    return chosen


def is_in(chosen: dict[str, Any], at: datetime) -> bool:
    """What the words of the configuration say of an instant: by the names and days of a calendar, without arithmetic on spans."""
    local = at.astimezone(ZoneInfo(chosen["location"]))
    clock = local.strftime("%H:%M")
    if "times" in chosen and not any(each["start_time"] <= clock < each["end_time"] for each in chosen["times"]):
        return False
    if "weekdays" in chosen:
        names = {WEEKDAYS[day] for each in chosen["weekdays"] for day in _named(each, WEEKDAYS)}
        if local.strftime("%A").lower() not in names:
            return False
    if "days_of_month" in chosen and local.day not in _days(chosen["days_of_month"], local):
        return False
    if "months" in chosen:
        numbers = {
            month + 1
            for each in chosen["months"]
            for month in ([int(each) - 1] if each.isdigit() else _named(each, MONTHS))
        }
        if local.month not in numbers:
            return False
    return "years" not in chosen or 2026 <= local.year <= 2027


def _named(words: str, names: tuple[str, ...]) -> range:
    first, _, last = words.partition(":")
    return range(names.index(first), names.index(last or first) + 1)


def _days(spans: list[str], local: datetime) -> set[int]:
    """The days of that month which the spans name: all days are listed, and cut out of the list as Python counts from its end."""
    first = local.replace(day=1)
    month = [day for number in range(31) if (day := (first + timedelta(days=number))).month == local.month]
    days: set[int] = set()
    for span in spans:
        begin, _, end = span.partition(":")
        edges = [int(begin), int(end or begin)]
        low, high = (edge if edge > 0 else len(month) + edge + 1 for edge in edges)
        days |= {day.day for day in month if low <= day.day <= high}
    return days


@pytest.mark.parametrize("seed", range(40))
def test_an_interval_holds_what_its_words_say(seed: int) -> None:
    """Random conditions in several time zones, at random instants and at the edges of days: as the oracle has it."""
    random = Random(seed)
    chosen = random_range(random)
    text = f"time_intervals: [{{name: it, time_intervals: [{written(chosen)}]}}]"
    interval = time_intervals([Section(parse(text, "it"), RULE_FILE, "it", None)])["it"]
    began = datetime(2025, 12, 1, tzinfo=UTC)
    instants = [began + timedelta(seconds=random.randrange(3 * 365 * 86_400)) for _ in range(300)]
    instants += [
        (at.replace(hour=0, minute=0, second=0) - timedelta(seconds=random.randint(0, 1))) for at in instants[:100]
    ]
    for at in instants:
        assert interval.contains(int(at.timestamp()) * SECOND) == is_in(chosen, at), (chosen, at)


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        ("days_of_month: ['-3:2']", "has an end counted from the beginning of the month, and a start from its end"),
        ("days_of_month: ['-15:5']", "has an end counted from the beginning of the month"),
        ("days_of_month: ['28:-20']", "ends before it begins in every month: day -20 is at most the 12th"),
        ("days_of_month: ['10:-25']", "ends before it begins in every month"),
        ("days_of_month: ['5:1']", "ends before it begins"),
        ("days_of_month: ['-1:-5']", "ends before it begins"),
        ("days_of_month: ['0']", "is not a day of a month"),
        ("days_of_month: ['1:50']", "is not a day of a month"),
        ("days_of_month: ['30:31'], months: [february]", "none of the months has such a day"),
        ("days_of_month: ['31'], months: ['4', june]", "none of the months has such a day"),
        ("weekdays: ['saturday:sunday']", "ends before it begins"),
        ("months: ['december:january']", "ends before it begins"),
        ("years: ['2022:2020']", "ends before it begins"),
        ("times: [{start_time: '22:00', end_time: '06:00'}]", "is not after start_time"),
        ("times: [{start_time: '09:00', end_time: '09:00'}]", "is not after start_time"),
        ("times: [{start_time: '24:00', end_time: '24:00'}]", "is not after start_time"),
    ],
)
def test_what_never_is_a_time_is_a_mistake(conditions: str, problem: str) -> None:
    """A route that is active only then would never notify."""
    text = f"time_intervals: [{{name: it, time_intervals: [{{{conditions}}}]}}]"
    with pytest.raises(SettingsError, match=problem) as caught:
        time_intervals([Section(parse(text, "it"), RULE_FILE, "it", None)])
    assert str(caught.value).startswith("it:1: time_intervals[0].time_intervals[0].")


@pytest.mark.parametrize(
    "conditions",
    [
        "days_of_month: ['28:-1', '31:-1', '12:-20', '-31:-1']",
        "days_of_month: ['29'], months: [february]",
        "days_of_month: ['31'], months: ['4', july]",
        "days_of_month: ['-31'], months: [january]",
        "times: [{start_time: '00:00', end_time: '24:00'}]",
        "years: ['2020']",
    ],
)
def test_what_is_a_time_now_and_then_is_none(conditions: str) -> None:
    """Also if only in long months, or leap years, or long ago."""
    text = f"time_intervals: [{{name: it, time_intervals: [{{{conditions}}}]}}]"
    assert [*time_intervals([Section(parse(text, "it"), RULE_FILE, "it", None)])] == ["it"]
