"""Reads routes and inhibitions, and the matchers of both and of silences."""

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.policy.policy import NO_RECEIVER, Rule
from sidecar.core.policy.routing import BY_ALL, InhibitRule, Matcher, Operator, Route, TimeInterval
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.key import Duration, Key
from sidecar.settings.file.section import Section
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import did_you_mean

_MATCHER: Final = re.compile(
    r'\s*(?P<label>[A-Za-z_][A-Za-z0-9_]*)\s*(?P<operator>=~|!~|!=|=)\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",\s{}]*))\s*(?P<end>,|$)'
)
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


def matchers(setting: Setting, labels: Collection[str] | None) -> list[Matcher]:
    """The matchers in a value. `labels`: the labels that alerts have; None: any label is accepted.

    Raises SettingsError: not a matcher, an invalid pattern, or an unknown label.
    """
    text = setting.text.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    result: list[Matcher] = []
    place = 0
    while place < len(text.rstrip()) or not result:
        match = _MATCHER.match(text, place)
        if match is None:
            hint = 'is not a matcher: write it like severity="critical", with one of = != =~ !~'
            raise setting.invalid(f"{hint}{_reason(text[place:])}")
        result.append(_matcher(setting, match, labels))
        place = match.end()
    return result


def no_rule_has(matcher: Matcher, by_label: Mapping[str, Collection[str]]) -> str | None:
    """The message that no rule has what the matcher asks for, with the nearest. None: a rule has it, or its label is not in `by_label`, the
    values."""
    values = by_label.get(matcher.label)
    positive = matcher.operator in {Operator.EQUAL, Operator.MATCHES}
    if values is None or not positive or any(matcher.matches({matcher.label: value}) for value in values):
        return None
    return f"no rule has {matcher}: {did_you_mean(values, matcher.value) if values else 'there are no rules'}"


def label_values(rules: Collection[Rule]) -> dict[str, set[str]]:
    """The values that the alerts of these rules have, by label."""
    return {"alert": {rule.alert for rule in rules}, "severity": {rule.severity.value for rule in rules}}


def _reason(rest: str) -> str:
    """The mistake at the beginning of `rest`, where it is known."""
    if re.match(r'\s*"[^"]*"\s*[=!]', rest):
        return "; the name of a label is written without quotes"
    if re.match(r'\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*[^",{}]*\s[^",{}]*(?:,|$)', rest):
        return "; a value with a blank needs quotes around it"
    return ""


def label(setting: Setting, labels: Collection[str]) -> str:
    """The name of a label that alerts have. Raises SettingsError."""
    if setting.text not in labels:
        raise setting.invalid(f"is a label that no alert has: {did_you_mean(labels, setting.text)}")
    return setting.text


def _matcher(setting: Setting, match: re.Match[str], labels: Collection[str] | None) -> Matcher:
    name, operator = match["label"], Operator(match["operator"])
    if labels is not None and name not in labels:
        raise setting.error(f'no alert has a label "{name}": {did_you_mean(labels, name)}')
    text = match["plain"] if match["quoted"] is None else match["quoted"]
    value = _ESCAPED.sub(lambda escaped: _ESCAPES.get(escaped[1], escaped[0]), text)
    if operator in {Operator.MATCHES, Operator.MATCHES_NOT}:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # `[[:alpha:]]` is not a character class in Python
                re.compile(value)
        except (re.error, Warning) as error:
            raise setting.error(f'the pattern of "{name}" is not a regular expression: {error}') from error
    return Matcher(name, operator, value)


class RouteKeys(Struct, frozen=True):
    """The keys of a route."""

    receiver: Annotated[str, Key()]
    """required in the first route if there are several"""
    matchers: Annotated[tuple[Matcher, ...], Key()]
    """not in the first route: `[severity="critical", 'cluster_id=~"orders-.*"']`, with `=`, `!=`, `=~`, `!~`. A pattern is Python's and
    matches the whole value"""
    group_by: Annotated[tuple[str, ...], Key(default="[cluster_id]")]
    """labels: alerts with equal values share a message and an [incident](rules.md#grouping). `[...]`: each alert by itself; `[]`: all
    together"""
    group_wait: Annotated[int, Key(Duration(), "5s")]
    """how long a new group waits for more alerts"""
    group_interval: Annotated[int, Key(Duration(SECOND), "1m")]
    """how long a notified group waits to notify of a change, unless it [gets worse](rules.md#grouping)"""
    repeat_interval: Annotated[int, Key(Duration(SECOND), "4h")]
    """when a firing group is notified again"""
    continues: Annotated[bool, Key(Setting.flag, "false", "continue")]
    """try the following routes too"""
    routes: "Annotated[tuple[Route, ...], Key(inside=(RouteKeys,))]"
    """routes below this one"""
    mute_time_intervals: Annotated[tuple[TimeInterval, ...], Key()]
    """`time_intervals` in which this route does not notify"""
    active_time_intervals: Annotated[tuple[TimeInterval, ...], Key()]
    """the only ones in which it does"""


class InhibitRuleKeys(Struct, frozen=True):
    """The keys of an inhibition rule."""

    source_matchers: Annotated[tuple[Matcher, ...], Key()]
    """required"""
    target_matchers: Annotated[tuple[Matcher, ...], Key()]
    """required"""
    equal: Annotated[tuple[str, ...], Key()]
    """labels that both must have, with the same value. Unlike in Alertmanager, a label that both lack is not equal"""


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
    section = (routes or documents)[0].section("route")
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
        for section in document.sections("inhibit_rules")
    )


def _route(section: Section, parent: Route, above: str, names: Names) -> Route:
    """A route with its children. Unset values come from `parent`."""
    own = _matchers(section, "matchers", names.labels)
    receivers = names.receivers.values()
    key = f"{above}{{{','.join(map(str, own))}}}"
    route = replace(
        parent,
        receiver=section.read(
            "receiver", lambda setting: setting.one_of(receivers, "receivers", names.receivers), parent.receiver
        ),
        key=key,
        matchers=own,
        group_by=_group_by(section, names.labels) if "group_by" in section else parent.group_by,
        routes=(),
        **{"continues": False, **section.values(RouteKeys, defaults=False)},
        mute=_intervals(section, "mute_time_intervals", names.intervals),
        active=_intervals(section, "active_time_intervals", names.intervals),
    )
    below: list[Route] = []
    for place, child in enumerate(section.sections("routes")):
        branch = _route(child, route, f"{key}/", names)
        if any(branch.key == sibling.key for sibling in below):  # groups are keyed by their route's key
            branch = _route(child, route, f"{key}/{place}", names)
        below.append(branch)
    return replace(route, routes=tuple(below))


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
