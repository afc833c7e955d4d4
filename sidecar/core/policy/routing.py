"""Who is notified of an alert, and when not: route tree, inhibition and time intervals, with Alertmanager's meaning.

In one thing stricter: a label that an inhibition wants equal and that is absent or empty is not equal, so that two alerts which have
nothing in common never inhibit each other.
"""

from calendar import monthrange
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final

from msgspec import Struct

from sidecar.core.moment import SECOND
from sidecar.core.policy.labels import Labels, Matcher, match_all

BY_ALL: Final = "..."
"""In `group_by`: every label, so that each alert is a group of its own."""


class Route(Struct, frozen=True):
    """A node of the route tree, complete: what a node does not say, it has from its parent. Durations are microseconds."""

    receiver: str
    key: str = "{}"
    """Its identity: the matchers from the root to it. The same after a reload that left it as it was."""
    matchers: tuple[Matcher, ...] = ()
    group_by: tuple[str, ...] = ("cluster_id",)
    group_wait: int = 5 * SECOND
    group_interval: int = 60 * SECOND
    repeat_interval: int = 4 * 3600 * SECOND
    continues: bool = False
    """Alertmanager's `continue`: siblings behind it are asked as well."""
    routes: "tuple[Route, ...]" = ()
    mute: "tuple[TimeInterval, ...]" = ()
    active: "tuple[TimeInterval, ...]" = ()

    def group_labels(self, labels: Labels) -> Labels:
        """The labels that an alert shares with its group."""
        if BY_ALL in self.group_by:
            return labels
        return {name: labels[name] for name in self.group_by if name in labels}

    def is_muted(self, wall: int) -> bool:
        """Whether notifications are muted at that time (microseconds since the epoch)."""
        muted = any(interval.contains(wall) for interval in self.mute)
        return muted or (bool(self.active) and not any(interval.contains(wall) for interval in self.active))


def matching(route: Route, labels: Labels) -> list[Route]:
    """The routes below `route`, or itself, that an alert with these labels takes. None where `route` does not match."""
    if not match_all(route.matchers, labels):
        return []
    taken: list[Route] = []
    for child in route.routes:
        found = matching(child, labels)
        taken += found
        if found and not child.continues:
            break
    return taken or [route]


def every(route: Route) -> Iterator[Route]:
    """`route` and all below it."""
    yield route
    for child in route.routes:
        yield from every(child)


class InhibitRule(Struct, frozen=True):
    """An alert that the source matchers match silences those that the target matchers match, where both have all of `equal` equal."""

    source_matchers: tuple[Matcher, ...]
    target_matchers: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()

    def inhibits(self, source: Labels, target: Labels) -> bool:
        """Whether an alert with the labels `source` silences one with the labels `target`. What is both never silences its like."""
        if not match_all(self.source_matchers, source) or not match_all(self.target_matchers, target):
            return False
        if match_all(self.target_matchers, source) and match_all(self.source_matchers, target):
            return False
        return all(source.get(name) and source[name] == target.get(name) for name in self.equal)


def is_inhibited(rules: Iterable[InhibitRule], labels: Labels, firing: Iterable[Labels]) -> bool:
    """Whether one of the alerts that are `firing` silences one with these labels."""
    targeted = [rule for rule in rules if match_all(rule.target_matchers, labels)]
    return bool(targeted) and any(rule.inhibits(source, labels) for source in firing for rule in targeted)


Span = tuple[int, int]
"""From and to, both included."""


class TimeRange(Struct, frozen=True):
    """Times at which all of its conditions are true; an empty one is true always."""

    times: tuple[Span, ...] = ()
    """Minutes of the day; here the second one is not included."""
    weekdays: tuple[Span, ...] = ()
    """Sunday is 0."""
    days_of_month: tuple[Span, ...] = ()
    """Negative ones are counted from the end: -1 is the last day."""
    months: tuple[Span, ...] = ()
    years: tuple[Span, ...] = ()
    zone: tzinfo = UTC

    def contains(self, wall: int) -> bool:
        """Whether `wall` (microseconds since the epoch) is in it."""
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
    """Times with a name: any of its ranges."""

    name: str
    ranges: tuple[TimeRange, ...]

    def contains(self, wall: int) -> bool:
        return any(each.contains(wall) for each in self.ranges)


def _is_in(spans: tuple[Span, ...], value: int) -> bool:
    return not spans or any(first <= value <= last for first, last in spans)
