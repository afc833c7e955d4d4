"""Labels and matchers, route tree, inhibition and time intervals, with Alertmanager's meaning.

Stricter in one point: an absent or empty label never counts as equal for an inhibition, so that unrelated alerts do not inhibit each other.
"""

import re
from calendar import monthrange
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.moment import SECOND

Labels = Mapping[str, str]

PLANNED = "planned"
CHECK = "check"
OWN_LABELS = ("alert", CHECK, "cluster_id", "component", "job_id", "observer", PLANNED, "severity", "store")
"""Labels of alerts besides the external labels. Not every alert has all of them: see docs/reference/rules.md."""


class Operator(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    MATCHES = "=~"
    MATCHES_NOT = "!~"


class Matcher(Struct, frozen=True):
    """A condition on one label. An absent label counts as empty; a regular expression must match the whole value."""

    label: str
    operator: Operator
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.label, "")
        match self.operator:
            case Operator.EQUAL:
                return value == self.value
            case Operator.NOT_EQUAL:
                return value != self.value
            case Operator.MATCHES:
                return _compiled(self.value).fullmatch(value) is not None
            case Operator.MATCHES_NOT:
                return _compiled(self.value).fullmatch(value) is None


def match_all(matchers: Iterable[Matcher], labels: Labels) -> bool:
    """Whether each of `matchers` is true of `labels`; no matcher is true of everything."""
    return all(matcher.matches(labels) for matcher in matchers)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


BY_ALL: Final = "..."
"""The value in `group_by` that stands for all labels, so that each alert has a group of its own."""


FEED_INTERVAL: Final = 5 * SECOND
"""The `group_interval` of routes to feeds."""
_NEVER: Final = 100 * 365 * 24 * 3600 * SECOND


class Route(Struct, frozen=True):
    """A node of the route tree, with the values inherited from its parent. Durations are microseconds."""

    receiver: str
    key: str = "{}"
    """The identity of the route: the matchers from the root to it. A reload that does not change the route keeps it."""
    matchers: tuple[Matcher, ...] = ()
    group_by: tuple[str, ...] = ("cluster_id",)
    group_wait: int = 5 * SECOND
    group_interval: int = 60 * SECOND
    repeat_interval: int = 4 * 3600 * SECOND
    continues: bool = False
    """Alertmanager's `continue`: later siblings are matched as well."""
    routes: "tuple[Route, ...]" = ()
    mute: "tuple[TimeInterval, ...]" = ()
    active: "tuple[TimeInterval, ...]" = ()

    def group_labels(self, labels: Labels) -> Labels:
        """The labels that an alert shares with its group."""
        if BY_ALL in self.group_by:
            return labels
        return {name: labels[name] for name in self.group_by if name in labels}

    def is_muted(self, wall: int) -> bool:
        """Whether notifications are muted at `wall` (microseconds since the epoch)."""
        return self.muted_by(wall) is not None

    def muted_by(self, wall: int) -> str | None:
        """Why notifications are muted at `wall` (microseconds since the epoch): by which time intervals. None: they are not."""
        if muting := [interval.name for interval in self.mute if interval.contains(wall)]:
            return f"in {', '.join(muting)}"
        if self.active and not any(interval.contains(wall) for interval in self.active):
            return f"outside of {', '.join(interval.name for interval in self.active)}"
        return None


def matching(route: Route, labels: Labels) -> list[Route]:
    """The routes of an alert with these labels: those below `route`, else `route` itself. Empty if `route` does not match."""
    if not match_all(route.matchers, labels):
        return []
    routes: list[Route] = []
    for child in route.routes:
        below = matching(child, labels)
        routes += below
        if below and not child.continues:
            break
    return routes or [route]


def every(route: Route) -> Iterator[Route]:
    """`route` and all below it."""
    yield route
    for child in route.routes:
        yield from every(child)


def with_feeds(route: Route, feeds: Collection[str]) -> Route:
    """The tree in which the routes to these receivers notify of changes soon and repeat nothing: feeds get all that fires once a minute."""
    below = tuple(with_feeds(child, feeds) for child in route.routes)
    if route.receiver not in feeds:
        return replace(route, routes=below)
    return replace(route, routes=below, group_interval=FEED_INTERVAL, repeat_interval=_NEVER)


class InhibitRule(Struct, frozen=True):
    """An alert that matches `source_matchers` inhibits those that match `target_matchers`, if all labels of `equal` are equal."""

    source_matchers: tuple[Matcher, ...]
    target_matchers: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()

    def inhibits(self, source: Labels, target: Labels) -> bool:
        """Whether an alert with labels `source` inhibits one with labels `target`. Two alerts that match both sides do not."""
        if not match_all(self.source_matchers, source) or not match_all(self.target_matchers, target):
            return False
        if match_all(self.target_matchers, source) and match_all(self.source_matchers, target):
            return False
        return all(source.get(name) and source[name] == target.get(name) for name in self.equal)


def inhibitor(rules: Iterable[InhibitRule], labels: Labels, firing: Iterable[Labels]) -> Labels | None:
    """The first of the `firing` alerts that inhibits one with these labels."""
    targeted = [rule for rule in rules if match_all(rule.target_matchers, labels)]
    if not targeted:
        return None
    return next((source for source in firing if any(rule.inhibits(source, labels) for rule in targeted)), None)


Span = tuple[int, int]
"""The first and the last value, both included."""


class TimeRange(Struct, frozen=True):
    """The times at which all of its conditions are true; an empty condition is always true."""

    times: tuple[Span, ...] = ()
    """Minutes of the day, the second one excluded."""
    weekdays: tuple[Span, ...] = ()
    """Sunday is 0."""
    days_of_month: tuple[Span, ...] = ()
    """Negative days count from the end: -1 is the last day."""
    months: tuple[Span, ...] = ()
    years: tuple[Span, ...] = ()
    zone: tzinfo = UTC

    def contains(self, wall: int) -> bool:
        """Whether `wall` (microseconds since the epoch) is in the range."""
        at = datetime.fromtimestamp(wall // SECOND, self.zone)
        minute, last = at.hour * 60 + at.minute, monthrange(at.year, at.month)[1]
        days = [tuple(day if day > 0 else last + 1 + day for day in span) for span in self.days_of_month]
        return (
            (not self.times or any(start <= minute < end for start, end in self.times))
            and _is_in(self.weekdays, at.isoweekday() % 7)
            and (not days or any(first <= at.day <= until for first, until in days))
            and _is_in(self.months, at.month)
            and _is_in(self.years, at.year)
        )


class TimeInterval(Struct, frozen=True):
    """A named union of time ranges."""

    name: str
    ranges: tuple[TimeRange, ...]

    def contains(self, wall: int) -> bool:
        return any(time_range.contains(wall) for time_range in self.ranges)


def _is_in(spans: tuple[Span, ...], value: int) -> bool:
    return not spans or any(first <= value <= last for first, last in spans)
