"""Rules, route and receivers, from the configuration and its rule files."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

from sidecar.core.policy.labels import OWN_LABELS
from sidecar.core.policy.policy import LASTING, PLANNABLE, Rule, Severity, Template, Trigger
from sidecar.core.policy.routing import with_feeds
from sidecar.settings.alerting.receivers import NAME, NAME_IS, receiver, without_endpoint
from sidecar.settings.alerting.routes import Names, inhibit_rules, root_route
from sidecar.settings.alerting.time_intervals import time_intervals
from sidecar.settings.file import schema
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.section import Section, read_file, unique_sections
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.model import Alerting


class ShippedRules(StrEnum):
    """The shipped rules that apply beside those of a configuration."""

    KEEP = "keep"
    """The default rules, except those that have the name of an own rule."""
    REPLACE = "replace"
    """No shipped rules, if the configuration has rules of its own."""
    QUIET = "quiet"
    """The rules that page nobody for a failover that heals, except those that have the name of an own rule."""


def read_alerting(documents: Sequence[Section], labels: Mapping[str, str], *, secrets: bool = True) -> Alerting:
    """The alerting settings of all documents together; without any rules, the shipped ones. `labels`: the external labels.

    Without `secrets`, each receiver that has an endpoint has one unused URL, and no secret is read. Raises SettingsError.
    """
    own = tuple(_rule(section) for section in unique_sections(documents, "rules", schema.RULE, "alert"))
    shipped = [*map(shipped_rules, _shipped(documents))]
    own_names = {rule.alert for rule in own}
    defaults = (_rule(section) for section in unique_sections(shipped, "rules", schema.RULE, "alert"))
    sections = [*unique_sections(documents, "receivers", schema.RECEIVER)]
    receivers = tuple(receiver(section, secrets=secrets) for section in sections)
    if receivers and not any(target.endpoints for target in receivers):
        raise without_endpoint(sections[0])  # nobody would ever be notified
    notified = (section.get("name") for section in sections if "heartbeat" not in section)
    names = Names({name.written: name.text for name in notified}, {*OWN_LABELS, *labels}, time_intervals(documents))
    return Alerting(
        rules=(*(rule for rule in defaults if rule.alert not in own_names), *own),
        route=with_feeds(root_route(documents, names), {target.name for target in receivers if target.feed}),
        inhibit_rules=inhibit_rules([*documents, *shipped], names.labels),
        receivers=receivers,
        external_labels=dict(labels),
    )


def _shipped(documents: Sequence[Section]) -> list[str]:
    """The names of the files with the shipped rules that apply."""
    wanted = [document.get("shipped_rules") for document in documents if "shipped_rules" in document]
    choices = {setting.choice(ShippedRules) for setting in wanted}
    if len(choices) > 1:
        raise wanted[-1].error(f"another file says otherwise ({wanted[0].location}): keep one")
    if choices == {ShippedRules.QUIET}:
        return ["quiet.yaml"]
    applies = choices == {ShippedRules.KEEP} or not any("rules" in document for document in documents)
    return ["default.yaml"] if applies else []


def shipped_rules(name: str) -> Section:
    """The rules of a file in `rules/`: from the installed package, or from the repository of an editable installation."""
    package = Path(str(files("sidecar")))
    installed = package / "default_rules" / name
    source = installed if installed.is_file() else package.parent / "rules" / name
    if not source.is_file():
        raise SettingsError(f"the shipped rules are missing from this installation ({source}): install it again")
    return read_file(source, schema.RULE_FILE)


def _rule(section: Section) -> Rule:
    alert = section.get("alert").matching(NAME, NAME_IS)
    trigger = section.get("on").choice(Trigger)
    if trigger not in LASTING and "for" in section:
        conditions = ", ".join(sorted(LASTING))
        raise section.error("for", f"is for conditions only ({conditions}): remove it")
    counted = trigger is Trigger.EPISODES
    for key in ("count", "within"):
        if counted and key not in section:
            raise section.missing(key)
        if not counted and key in section:
            raise section.error(key, f"is for on: {Trigger.EPISODES} only: remove it")
    if trigger not in PLANNABLE and "planned_budget" in section:
        failovers = ", ".join(sorted(PLANNABLE))
        raise section.error("planned_budget", f"is for alerts of failovers only ({failovers}): remove it")
    if trigger is not Trigger.DRILL_OVERDUE and "age" in section:
        raise section.error("age", "is for on: drill_overdue only: remove it")
    return Rule(
        alert,
        trigger,
        section.get("severity").choice(Severity),
        section.get("for").duration(),
        section.get("count").integer(1, 1000) if counted else 1,
        section.get("within").duration(at_least=SECOND) if counted else 0,
        section.get("planned_budget").duration(),
        section.read("summary", _template, None),
        section.get("age").duration(at_least=SECOND),
    )


def _template(setting: Setting) -> Template:
    from sidecar.settings.alerting.templates import template  # noqa: PLC0415  imports jinja2

    return template(setting)
