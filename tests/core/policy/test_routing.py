"""Who is notified: routes, inhibition and times, each against a plain oracle."""

import calendar
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.routing import (
    InhibitRule,
    Labels,
    Matcher,
    Operator,
    Route,
    TimeInterval,
    TimeRange,
    every,
    inhibitor,
    match_all,
    matching,
)
from tests.kit.groups import examples

NAMES = ("alert", "component", "env")
VALUES = ("", "a", "b", "ab")
labels = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES))
matchers = st.builds(
    Matcher, st.sampled_from(NAMES), st.sampled_from(Operator), st.sampled_from(["", "a", "b", "a|b", "a.*", ".+"])
)


def equal(label: str, value: str) -> Matcher:
    return Matcher(label, Operator.EQUAL, value)


# -- matchers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matcher", "matched"),
    [
        (Matcher("alert", Operator.EQUAL, "ab"), ("ab",)),
        (Matcher("alert", Operator.NOT_EQUAL, "ab"), (None, "", "a", "b")),
        (Matcher("alert", Operator.MATCHES, "a"), ("a",)),
        (Matcher("alert", Operator.MATCHES, "a|b"), ("a", "b")),
        (Matcher("alert", Operator.MATCHES, "a?"), (None, "", "a")),
        (Matcher("alert", Operator.MATCHES_NOT, "a.*"), (None, "", "b")),
        (Matcher("alert", Operator.MATCHES_NOT, ".+"), (None, "")),
        (Matcher("alert", Operator.EQUAL, ""), (None, "")),
        (Matcher("alert", Operator.NOT_EQUAL, ""), ("a", "b", "ab")),
    ],
    ids=str,
)
def test_a_matcher_compares_all_of_a_value_and_an_absent_label_is_an_empty_one(
    matcher: Matcher, matched: tuple[str | None, ...]
) -> None:
    """Each operator, over every value and none."""
    matching_values = {value for value in (None, *VALUES) if matcher.matches({} if value is None else {"alert": value})}
    assert matching_values == {*matched}


# -- routes ------------------------------------------------------------------------------------------------------------


def routes(depth: int) -> st.SearchStrategy[Route]:
    return st.builds(
        Route,
        st.sampled_from(["ops", "oncall", "team"]),
        matchers=st.lists(matchers, max_size=2).map(tuple),
        continues=st.booleans(),
        routes=st.lists(routes(depth - 1), max_size=3).map(tuple) if depth else st.just(()),
    )


def keyed(route: Route, key: str = "{}") -> Route:
    """With a key of its own for each route, as settings give."""
    return replace(route, key=key, routes=tuple(keyed(child, f"{key}/{i}") for i, child in enumerate(route.routes)))


def taken(route: Route, alert_labels: Labels) -> list[str]:
    """The oracle, by Alertmanager's words: the deepest routes that match; behind one that matched, only after `continue`."""
    if not all(matcher.matches(alert_labels) for matcher in route.matchers):
        return []
    keys = []
    is_open = True
    for child in route.routes:
        if is_open and (below := taken(child, alert_labels)):
            keys.extend(below)
            is_open = child.continues
    return keys or [route.key]


@settings(max_examples=examples(300))
@given(routes(3), labels)
def test_an_alert_takes_the_deepest_routes_that_match(tree: Route, alert_labels: Labels) -> None:
    """Any tree, any labels: the oracle's routes, in its order, none twice; and the first route takes whatever no other takes."""
    root = keyed(replace(tree, matchers=()))
    keys = [route.key for route in matching(root, alert_labels)]
    assert keys == taken(root, alert_labels)
    assert len({*keys}) == len(keys) > 0
    assert {*keys} <= {route.key for route in every(root)}


def test_the_first_sibling_wins_unless_it_continues() -> None:
    """And a route that matches nothing below itself takes the alert."""
    first, second = Route("oncall", "1", (equal("alert", "a"),)), Route("team", "2", (equal("alert", "a"),))
    root = Route("ops", routes=(first, second))
    assert matching(root, {"alert": "a"}) == [first]
    assert matching(root, {"alert": "b"}) == [root]
    going_on = replace(first, continues=True)
    assert matching(replace(root, routes=(going_on, second)), {"alert": "a"}) == [going_on, second]
    other = replace(second, matchers=(equal("alert", "b"),))
    assert matching(replace(root, routes=(going_on, other)), {"alert": "a"}) == [going_on]


def test_a_group_shares_the_labels_it_is_grouped_by() -> None:
    """Those that the alert has; `...`: all; none: one group for all."""
    alert_labels = {"alert": "a", "env": "prod"}
    assert Route("ops", group_by=("env", "component")).group_labels(alert_labels) == {"env": "prod"}
    assert Route("ops", group_by=("...",)).group_labels(alert_labels) == alert_labels
    assert Route("ops", group_by=()).group_labels(alert_labels) == {}


# -- inhibition --------------------------------------------------------------------------------------------------------

inhibitions = st.builds(
    InhibitRule,
    st.lists(matchers, min_size=1, max_size=2).map(tuple),
    st.lists(matchers, min_size=1, max_size=2).map(tuple),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
)


@settings(max_examples=examples(300))
@given(inhibitions, labels, st.lists(labels, max_size=4))
def test_who_is_both_source_and_target_never_silences_its_like(
    rule: InhibitRule, target: Labels, firing: list[Labels]
) -> None:
    """Against the words: some source matches, has all of `equal` as the target has them, and is not both where the target is both."""
    expected = False
    for source in firing:
        is_source, is_target = match_all(rule.source_matchers, source), match_all(rule.target_matchers, target)
        both = match_all(rule.target_matchers, source) and match_all(rule.source_matchers, target)
        shared = all(source.get(name, "") == target.get(name, "") != "" for name in rule.equal)
        expected = expected or (is_source and is_target and shared and not both)
    assert (inhibitor([rule], target, firing) is not None) == expected
    assert not rule.inhibits(target, target)


@pytest.mark.parametrize(
    ("source", "target", "inhibited"),
    [
        ({"env": "prod"}, {"env": "prod"}, True),
        ({"env": "prod"}, {"env": "test"}, False),
        ({}, {}, False),
        ({"env": ""}, {"env": ""}, False),
        ({"env": "prod"}, {}, False),
        ({}, {"env": "prod"}, False),
        ({"env": ""}, {}, False),
    ],
)
def test_what_is_absent_or_empty_is_not_equal(source: Labels, target: Labels, inhibited: bool) -> None:
    """Two alerts that have nothing in common never inhibit each other."""
    rule = InhibitRule((equal("alert", "a"),), (equal("alert", "b"),), ("env",))
    assert rule.inhibits({"alert": "a", **source}, {"alert": "b", **target}) == inhibited


def test_several_rules_inhibit_apart_from_each_other() -> None:
    """One of them is enough, and only what fires counts."""
    first = InhibitRule((equal("alert", "a"),), (equal("alert", "b"),))
    second = InhibitRule((equal("alert", "b"),), (equal("alert", "c"),))
    assert inhibitor([first, second], {"alert": "c"}, [{"alert": "b"}])
    assert not inhibitor([first, second], {"alert": "c"}, [{"alert": "a"}])
    assert not inhibitor([first, second], {"alert": "b"}, [])


# -- times -------------------------------------------------------------------------------------------------------------


def spans(first: int, last: int) -> st.SearchStrategy[tuple[tuple[int, int], ...]]:
    span = st.tuples(st.integers(first, last), st.integers(first, last)).map(lambda s: (min(s), max(s)))
    return st.lists(span, max_size=2).map(tuple)


days = spans(1, 31) | spans(-31, -1) | st.tuples(st.tuples(st.integers(1, 31), st.integers(-31, -1)))
zones = st.sampled_from(
    [UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Pacific/Apia")]
)
ranges = st.builds(
    TimeRange,
    times=spans(0, 1440).map(lambda pairs: tuple(pair for pair in pairs if pair[0] < pair[1])),
    weekdays=spans(0, 6),
    days_of_month=days,
    months=spans(1, 12),
    years=spans(2023, 2030),
    zone=zones,
)
instants = st.datetimes(datetime(2023, 1, 1), datetime(2029, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001  the zone is given apart
turns = st.sampled_from(  # leap days, ends of months and years, and the hours in which clocks change
    [
        datetime(2024, 2, 29, tzinfo=UTC),
        datetime(2025, 2, 28, 23, 59, 59, tzinfo=UTC),
        datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        datetime(2026, 4, 30, 18, 15, tzinfo=UTC),
    ]
)


def micros(at: datetime) -> int:
    return int(at.replace(microsecond=0).timestamp()) * SECOND + at.microsecond


def is_in(wanted: TimeRange, at: datetime) -> bool:
    """The oracle: lists what a range allows on that day, instead of comparing."""
    here = at.replace(microsecond=0).astimezone(wanted.zone)
    month = list(range(1, calendar.monthrange(here.year, here.month)[1] + 1))
    allowed = set[int]()
    for first, last in wanted.days_of_month:
        # A negative day counts from the end: of a month that is too short for it, from before the first day.
        begin = first if first > 0 else len(month) + first + 1
        end = last if last > 0 else len(month) + last + 1
        allowed |= {day for day in month if day in range(begin, end + 1)}
    minute = here.hour * 60 + here.minute
    name = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")[here.weekday()]
    sunday_first = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
    conditions = [
        not wanted.times or any(minute in range(*span) for span in wanted.times),
        not wanted.weekdays or any(name in sunday_first[a : b + 1] for a, b in wanted.weekdays),
        not wanted.days_of_month or here.day in allowed,
        not wanted.months or any(here.month in range(a, b + 1) for a, b in wanted.months),
        not wanted.years or any(here.year in range(a, b + 1) for a, b in wanted.years),
    ]
    return all(conditions)


@settings(max_examples=examples(1000))
@given(ranges, instants | turns)
def test_a_time_range_is_all_of_its_conditions_in_its_zone(wanted: TimeRange, at: datetime) -> None:
    """Any range, any instant: as the oracle says."""
    assert wanted.contains(micros(at)) == is_in(wanted, at)


@pytest.mark.parametrize(
    ("days_of_month", "inside", "outside"),
    [
        (
            (-1, -1),
            ["2024-02-29", "2025-02-28", "2026-04-30", "2026-12-31"],
            ["2024-02-28", "2025-02-27", "2026-04-29"],
        ),
        ((-3, -1), ["2024-02-27", "2025-02-26"], ["2024-02-26", "2025-02-25"]),
        ((31, 31), ["2026-01-31"], ["2026-02-28", "2026-04-30"]),
        ((29, 31), ["2024-02-29"], ["2025-02-28"]),
        ((-31, -30), ["2026-01-01", "2026-01-02", "2026-04-01"], ["2026-01-03", "2026-04-02", "2025-02-01"]),
        ((1, -1), ["2025-02-01", "2025-02-28", "2026-01-31"], []),
        ((15, -15), ["2026-01-15", "2026-01-17"], ["2026-01-18", "2025-02-15"]),
    ],
)
def test_days_are_counted_from_either_end_of_the_month(
    days_of_month: tuple[int, int], inside: list[str], outside: list[str]
) -> None:
    """Months of every length."""
    wanted = TimeRange(days_of_month=(days_of_month,))
    for day in (*inside, *outside):
        at = datetime.fromisoformat(day).replace(tzinfo=UTC, hour=12)
        assert wanted.contains(micros(at)) == (day in inside), day


def test_a_minute_belongs_to_the_interval_that_it_begins() -> None:
    """09:00 to 17:00 holds 09:00 and not 17:00; to 24:00 holds the last minute of the day."""
    office, evening = TimeRange(times=((540, 1020),)), TimeRange(times=((1020, 1440),))
    day = datetime(2026, 11, 20, tzinfo=UTC)
    for minute, expected in [(539, (False, False)), (540, (True, False)), (1020, (False, True)), (1439, (False, True))]:
        at = micros(day + timedelta(minutes=minute))
        assert (office.contains(at), evening.contains(at)) == expected


def test_a_day_is_that_of_the_zone() -> None:
    """Sunday evening in UTC is Monday in the east."""
    at = micros(datetime(2026, 11, 22, 22, tzinfo=UTC))
    assert TimeRange(weekdays=((0, 0),)).contains(at)
    assert TimeRange(weekdays=((1, 1),), zone=timezone(timedelta(hours=5))).contains(at)


def test_a_route_is_quiet_in_a_mute_interval_and_outside_of_its_active_ones() -> None:
    """Both may be given; a mute interval wins."""
    morning, afternoon = TimeRange(times=((0, 720),)), TimeRange(times=((720, 1440),))
    early = TimeInterval("early", (TimeRange(times=((0, 60),)), TimeRange(times=((120, 180),))))
    day = micros(datetime(2026, 11, 20, tzinfo=UTC))
    hours = range(24)

    def quiet(route: Route) -> list[int]:
        return [hour for hour in hours if route.is_muted(day + hour * 3600 * SECOND)]

    assert quiet(Route("ops")) == []
    assert quiet(Route("ops", mute=(early,))) == [0, 2]
    assert quiet(Route("ops", active=(TimeInterval("am", (morning,)),))) == [*range(12, 24)]
    assert quiet(Route("ops", active=(TimeInterval("am", (morning,)), TimeInterval("pm", (afternoon,))))) == []
    assert quiet(Route("ops", mute=(early,), active=(TimeInterval("am", (morning,)),))) == [0, 2, *range(12, 24)]
