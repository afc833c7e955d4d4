"""The route tree and the inhibition rules, as they stand in a configuration."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sidecar.core.policy.labels import Matcher
from sidecar.core.policy.policy import NO_RECEIVER
from sidecar.core.policy.routing import BY_ALL, InhibitRule, Route, TimeInterval
from sidecar.settings.alerting.matchers import label, matchers
from sidecar.settings.file import schema
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.errors import SettingsError, expected
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given


class Known(NamedTuple):
    """What routes may name."""

    receivers: Mapping[str, str]
    """By their names as they are written: who may be told."""
    labels: Collection[str]
    intervals: Mapping[str, TimeInterval]


def root_route(documents: Sequence[Section], known: Known) -> Route:
    """The route that stands in one of the documents; without any, the only receiver is told of everything."""
    routes = [document for document in documents if "route" in document]
    if len(routes) > 1:
        raise routes[1].error("route", f"there is a route already, in {routes[0].where}: keep one")
    section = (routes or documents)[0].section("route", schema.ROUTE)
    for key in ("matchers", "continue", "mute_time_intervals", "active_time_intervals"):
        if key in section:
            raise section.error(
                key, "the first route takes every alert, always: give it routes, and let one of them have this"
            )
    names = list(known.receivers.values())
    if "receiver" not in section and len(names) > 1:
        raise SettingsError(
            f"{section.where}: several receivers ({', '.join(known.receivers)}): say in route.receiver which one gets the alerts"
        )
    return _route(section, Route(names[0]) if len(names) == 1 else NO_RECEIVER, "", known)


def inhibit_rules(documents: Sequence[Section], labels: Collection[str]) -> tuple[InhibitRule, ...]:
    """The rules of all documents."""
    return tuple(
        InhibitRule(
            _matchers(section, "source_matchers", labels, required=True),
            _matchers(section, "target_matchers", labels, required=True),
            tuple(label(given, labels) for given in section.texts("equal")),
        )
        for document in documents
        for section in document.sections("inhibit_rules", schema.INHIBIT_RULE)
    )


def _route(section: Section, parent: Route, above: str, known: Known) -> Route:
    """A route with all that is below it. What it does not say, it has from its parent."""
    own = _matchers(section, "matchers", known.labels)
    key = f"{above}{{{','.join(map(str, own))}}}"
    receiver = section.find("receiver")
    wait, interval, repeat = (section.find(name) for name in ("group_wait", "group_interval", "repeat_interval"))
    route = Route(
        receiver=_receiver(receiver, known.receivers) if receiver else parent.receiver,
        key=key,
        matchers=own,
        group_by=_group_by(section, known.labels) if "group_by" in section else parent.group_by,
        group_wait=wait.duration() if wait else parent.group_wait,
        group_interval=interval.duration(at_least=SECOND) if interval else parent.group_interval,
        repeat_interval=repeat.duration(at_least=SECOND) if repeat else parent.repeat_interval,
        continues=section.get("continue").flag(),
        mute=_intervals(section, "mute_time_intervals", known.intervals),
        active=_intervals(section, "active_time_intervals", known.intervals),
    )
    below: list[Route] = []
    for place, child in enumerate(section.sections("routes", schema.ROUTE)):
        made = _route(child, route, f"{key}/", known)
        if any(made.key == other.key for other in below):  # told apart by their places: groups have their route's name
            made = _route(child, route, f"{key}/{place}", known)
        below.append(made)
    return replace(route, routes=tuple(below))


def _receiver(given: Given, receivers: Mapping[str, str]) -> str:
    if given.text not in receivers.values():
        names = expected(receivers, given.text) if receivers else "there are none"
        raise given.wrong(f"is none of the receivers: {names}")
    return given.text


def _group_by(section: Section, labels: Collection[str]) -> tuple[str, ...]:
    given = section.texts("group_by")
    if [each.text for each in given] == [BY_ALL]:
        return (BY_ALL,)
    names = [label(each, labels) for each in given]
    if len({*names}) < len(names):
        raise section.error("group_by", "names a label twice")
    return tuple(names)


def _matchers(section: Section, key: str, labels: Collection[str], *, required: bool = False) -> tuple[Matcher, ...]:
    found = tuple(matcher for given in section.texts(key) for matcher in matchers(given, labels))
    if required and not found:
        raise section.missing(key)
    return found


def _intervals(section: Section, key: str, known: Mapping[str, TimeInterval]) -> tuple[TimeInterval, ...]:
    found = []
    for given in section.texts(key):
        if given.text not in known:
            raise given.wrong(
                f"is none of the time_intervals: {expected(known, given.text) if known else 'there are none'}"
            )
        found.append(known[given.text])
    return tuple(found)
