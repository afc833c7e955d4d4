"""Rules, route and receivers: from the configuration and its rule files, or the shipped rules."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.policy import Grouping, Rule, Severity, Trigger
from sidecar.settings import keys
from sidecar.settings.durations import SECOND
from sidecar.settings.errors import SettingsError, expected
from sidecar.settings.given import Given
from sidecar.settings.model import Receiver, Secret
from sidecar.settings.section import Section

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NAME_IS: Final = "1 to 64 letters, digits, _, - or ."


class Alerting(NamedTuple):
    """Who is told what, and when."""

    rules: tuple[Rule, ...]
    receivers: tuple[Receiver, ...]
    routed_to: str | None
    grouping: Grouping


def read_alerting(documents: Sequence[Section]) -> Alerting:
    """What all documents say together: rules and receivers add up, the route stands in one of them. No rules: the shipped ones."""
    rules = _rules(documents)
    receivers = _receivers(documents)
    routes = [document for document in documents if "route" in document]
    if len(routes) > 1:
        raise routes[1].error("route", f"there is a route already, in {routes[0].where}: keep one")
    route = (routes or documents)[0].section("route", keys.ROUTE)
    return Alerting(rules, tuple(receivers.values()), _routed_to(route, receivers), _grouping(route))


def shipped_rules() -> Section:
    """The rules of `rules/default.yaml`: in the installed package, or in the repository where it is installed editable."""
    from sidecar.settings.document import parse  # noqa: PLC0415  imports ruamel.yaml

    installed = files("sidecar") / "default_rules" / "default.yaml"
    source = installed if installed.is_file() else Path(__file__).parents[2] / "rules" / "default.yaml"
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"the shipped rules are missing from this installation ({source}): install it again"
        ) from error
    return Section(parse(text, "the shipped rules"), keys.RULE_FILE, "the shipped rules", None)


def _rules(documents: Sequence[Section]) -> tuple[Rule, ...]:
    sources = [document for document in documents if "rules" in document] or [shipped_rules()]
    rules: dict[str, Rule] = {}
    for section in (section for source in sources for section in source.sections("rules", keys.RULE)):
        rule = _rule(section)
        if rule.alert in rules:
            raise section.get("alert").error(f'there is a rule "{section.get("alert").written}" already: rename one')
        rules[rule.alert] = rule
    return tuple(rules.values())


def _rule(section: Section) -> Rule:
    alert = section.get("alert").matching(_NAME, _NAME_IS)
    on = section.get("on")
    if on.text in keys.TRIGGERS_NOT_YET:
        raise on.wrong("is not supported yet: remove the rule")
    trigger = on.choice(Trigger)
    if trigger is not Trigger.VACANT and "for" in section:
        raise section.error("for", "only a vacancy lasts: remove it, or write on: vacant")
    return Rule(alert, trigger, section.get("severity").choice(Severity), section.get("for").duration())


def _receivers(documents: Sequence[Section]) -> dict[str, Receiver]:
    """By their names as they are written, which is how errors show them."""
    receivers: dict[str, Receiver] = {}
    for section in (section for document in documents for section in document.sections("receivers", keys.RECEIVER)):
        given = section.get("name")
        name = given.matching(_NAME, _NAME_IS)
        if name in {receiver.name for receiver in receivers.values()}:
            raise given.error(f'there is a receiver "{given.written}" already: rename one')
        urls = tuple(_url(url) for url in section.texts("urls"))
        if not urls:
            raise SettingsError(f"{section.where}: the receiver has no urls: give it at least one")
        receivers[given.written] = Receiver(name, urls, section.get("send_resolved").flag())
    return receivers


def _url(url: Given) -> Secret:
    text = url.secret("URL").text
    if not text:
        raise url.error("is empty: give an Apprise URL")
    return Secret(text)


def _routed_to(route: Section, receivers: Mapping[str, Receiver]) -> str | None:
    names = [receiver.name for receiver in receivers.values()]
    chosen = route.find("receiver")
    if chosen is not None:
        if chosen.text not in names:
            raise chosen.wrong(
                f"is none of the receivers: {expected(receivers, chosen.text) if names else 'there are none'}"
            )
        return chosen.text
    if len(names) > 1:
        raise SettingsError(
            f"{route.where}: several receivers ({', '.join(receivers)}): say in route.receiver which one gets the alerts"
        )
    return names[0] if names else None


def _grouping(route: Section) -> Grouping:
    labels = route.texts("group_by")
    if "group_by" in route and [label.text for label in labels] != ["cluster_id"]:
        raise route.error("group_by", "other than [cluster_id] is not supported yet")
    return Grouping(
        wait=route.get("group_wait").duration(),
        interval=route.get("group_interval").duration(at_least=SECOND),
        repeat=route.get("repeat_interval").duration(at_least=SECOND),
    )
