"""The route tree and the inhibition rules of a configuration."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sidecar.core.policy.labels import Matcher
from sidecar.core.policy.policy import NO_RECEIVER
from sidecar.core.policy.routing import BY_ALL, InhibitRule, Route, TimeInterval
from sidecar.settings.alerting.matchers import label, matchers
from sidecar.settings.file import schema
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting


class Names(NamedTuple):
    """The names that routes may use."""

    receivers: Mapping[str, str]
    """The names of receivers that get alerts, by the names as written."""
    labels: Collection[str]
    intervals: Mapping[str, TimeInterval]


def root_route(documents: Sequence[Section], names: Names) -> Route:
    """The route of the one document that has one. Without any, the only receiver gets all alerts. Raises SettingsError."""
    routes = [document for document in documents if "route" in document]
    if len(routes) > 1:
        raise routes[1].error("route", f"there is a route already, in {routes[0].location}: keep one")
    section = (routes or documents)[0].section("route", schema.ROUTE)
    for key in ("matchers", "continue", "mute_time_intervals", "active_time_intervals"):
        if key in section:
            raise section.error(key, "the first route takes every alert, always: put this into one of its routes")
    receivers = list(names.receivers.values())
    if "receiver" not in section and len(receivers) > 1:
        raise section.mistake(
            f"several receivers ({', '.join(names.receivers)}): name the one that gets the alerts in route.receiver"
        )
    root = Route(receivers[0]) if len(receivers) == 1 else NO_RECEIVER
    return _route(section, root, "", names)


def inhibit_rules(documents: Sequence[Section], labels: Collection[str]) -> tuple[InhibitRule, ...]:
    """The inhibition rules of all documents."""
    return tuple(
        InhibitRule(
            _matchers(section, "source_matchers", labels, required=True),
            _matchers(section, "target_matchers", labels, required=True),
            tuple(label(setting, labels) for setting in section.texts("equal")),
        )
        for document in documents
        for section in document.sections("inhibit_rules", schema.INHIBIT_RULE)
    )


def _route(section: Section, parent: Route, above: str, names: Names) -> Route:
    """A route with its children. Unset values come from `parent`."""
    own = _matchers(section, "matchers", names.labels)
    receivers = names.receivers.values()
    key = f"{above}{{{','.join(map(str, own))}}}"
    route = Route(
        receiver=section.read(
            "receiver", lambda setting: setting.one_of(receivers, "receivers", names.receivers), parent.receiver
        ),
        key=key,
        matchers=own,
        group_by=_group_by(section, names.labels) if "group_by" in section else parent.group_by,
        group_wait=section.read("group_wait", Setting.duration, parent.group_wait),
        group_interval=section.read("group_interval", _read_interval, parent.group_interval),
        repeat_interval=section.read("repeat_interval", _read_interval, parent.repeat_interval),
        continues=section.get("continue").flag(),
        mute=_intervals(section, "mute_time_intervals", names.intervals),
        active=_intervals(section, "active_time_intervals", names.intervals),
    )
    below: list[Route] = []
    for place, child in enumerate(section.sections("routes", schema.ROUTE)):
        branch = _route(child, route, f"{key}/", names)
        if any(branch.key == sibling.key for sibling in below):  # groups are keyed by their route's key
            branch = _route(child, route, f"{key}/{place}", names)
        below.append(branch)
    return replace(route, routes=tuple(below))


def _read_interval(setting: Setting) -> int:
    return setting.duration(at_least=SECOND)


def _group_by(section: Section, labels: Collection[str]) -> tuple[str, ...]:
    settings = section.texts("group_by")
    if [setting.text for setting in settings] == [BY_ALL]:
        return (BY_ALL,)
    names = [label(setting, labels) for setting in settings]
    if len({*names}) < len(names):
        raise section.error("group_by", "names a label twice")
    return tuple(names)


def _matchers(section: Section, key: str, labels: Collection[str], *, required: bool = False) -> tuple[Matcher, ...]:
    result = tuple(matcher for setting in section.texts(key) for matcher in matchers(setting, labels))
    if required and not result:
        raise section.missing(key)
    return result


def _intervals(section: Section, key: str, intervals: Mapping[str, TimeInterval]) -> tuple[TimeInterval, ...]:
    return tuple(intervals[setting.one_of(intervals, "time_intervals")] for setting in section.texts(key))
