"""Rules, route and receivers: from the configuration and its rule files, or the shipped rules."""

import re
from collections.abc import Collection, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.policy.labels import OWN_LABELS
from sidecar.core.policy.policy import LASTING, Rule, Severity, Template, Trigger
from sidecar.core.policy.routing import InhibitRule, Route
from sidecar.settings.alerting.routes import Known, inhibit_rules, root_route
from sidecar.settings.alerting.time_intervals import time_intervals
from sidecar.settings.file import schema
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.errors import SettingsError
from sidecar.settings.file.section import Section
from sidecar.settings.file.value import Given
from sidecar.settings.model import Receiver, Secret

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NAME_IS: Final = "1 to 64 letters, digits, _, - or ."


class Alerting(NamedTuple):
    """Who is told what, and when."""

    rules: tuple[Rule, ...]
    route: Route
    inhibit_rules: tuple[InhibitRule, ...]
    receivers: tuple[Receiver, ...]


def read_alerting(documents: Sequence[Section], external_labels: Collection[str]) -> Alerting:
    """What all documents say together: all adds up but the route, which stands in one of them. No rules: the shipped ones."""
    if not any("rules" in document for document in documents):
        documents = [*documents, shipped_rules()]
    labels = {*OWN_LABELS, *external_labels}
    receivers = _receivers(documents)
    told = {written: receiver.name for written, receiver in receivers.items() if receiver.heartbeat is None}
    known = Known(told, labels, time_intervals(documents))
    return Alerting(
        _rules(documents), root_route(documents, known), inhibit_rules(documents, labels), tuple(receivers.values())
    )


def shipped_rules() -> Section:
    """The rules of `rules/default.yaml`: in the installed package, or in the repository where it is installed editable."""
    from sidecar.settings.file.document import parse  # noqa: PLC0415  imports ruamel.yaml

    package = Path(str(files("sidecar")))
    installed = package / "default_rules" / "default.yaml"
    source = installed if installed.is_file() else package.parent / "rules" / "default.yaml"
    try:
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"the shipped rules are missing from this installation ({source}): install it again"
        ) from error
    return Section(parse(text, "the shipped rules"), schema.RULE_FILE, "the shipped rules", None)


def _rules(documents: Sequence[Section]) -> tuple[Rule, ...]:
    rules: dict[str, Rule] = {}
    for section in (section for document in documents for section in document.sections("rules", schema.RULE)):
        rule = _rule(section)
        if rule.alert in rules:
            raise section.get("alert").error(f'there is a rule "{section.get("alert").written}" already: rename one')
        rules[rule.alert] = rule
    return tuple(rules.values())


def _rule(section: Section) -> Rule:
    alert = section.get("alert").matching(_NAME, _NAME_IS)
    trigger = section.get("on").choice(Trigger)
    if trigger not in LASTING and "for" in section:
        words = ", ".join(sorted(LASTING))
        raise section.error("for", f"belongs to what lasts ({words}): remove it")
    counted = trigger is Trigger.EPISODES
    for key in ("count", "within"):
        if counted and key not in section:
            raise section.missing(key)
        if not counted and key in section:
            raise section.error(key, "belongs to on: episodes: remove it")
    return Rule(
        alert,
        trigger,
        section.get("severity").choice(Severity),
        section.get("for").duration(),
        section.get("count").integer(1, 1000) if counted else 1,
        section.get("within").duration(at_least=SECOND) if counted else 0,
        _summary(section.find("summary")),
    )


def _summary(given: Given | None) -> Template | None:
    if given is None:
        return None
    from sidecar.settings.alerting.templates import template  # noqa: PLC0415  imports jinja2

    return template(given)


def _receivers(documents: Sequence[Section]) -> dict[str, Receiver]:
    """By their names as they are written, which is how errors show them."""
    receivers: dict[str, Receiver] = {}
    for section in (section for document in documents for section in document.sections("receivers", schema.RECEIVER)):
        given = section.get("name")
        name = given.matching(_NAME, _NAME_IS)
        if name in {receiver.name for receiver in receivers.values()}:
            raise given.error(f'there is a receiver "{given.written}" already: rename one')
        urls = tuple(_url(url) for url in section.texts("urls"))
        if not urls:
            raise SettingsError(f"{section.where}: the receiver has no urls: give it at least one")
        heartbeat = section.find("heartbeat")
        interval = heartbeat.duration(at_least=10 * SECOND) if heartbeat else None
        receivers[given.written] = Receiver(name, urls, section.get("send_resolved").flag(), interval)
    return receivers


def _url(url: Given) -> Secret:
    text = url.secret("URL").text
    if not text:
        raise url.error("is empty: give an Apprise URL")
    return Secret(text)
