"""Rules, route and receivers, from the configuration and its rule files."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from sidecar.core.policy.policy import DRILL_AGE, PLANNED_BUDGET, Rule, Severity, Template
from sidecar.core.policy.routing import OWN_LABELS, InhibitRule, Route, TimeInterval, with_feeds
from sidecar.core.policy.triggers import LASTING, PLANNABLE, Trigger
from sidecar.settings.alerting.receivers import NAME, ReceiverKeys, no_endpoint_error, receiver
from sidecar.settings.alerting.routes import InhibitRuleKeys, Names, RouteKeys, inhibit_rules, root_route
from sidecar.settings.alerting.time_intervals import TimeIntervalKeys, time_intervals
from sidecar.settings.file.durations import SECOND
from sidecar.settings.file.key import Choice, Duration, Integer, Key, Keys, keys_of
from sidecar.settings.file.section import Section, read_file, unique_sections
from sidecar.settings.file.setting import Setting
from sidecar.settings.file.settings_error import SettingsError
from sidecar.settings.model import Alerting, Receiver


class ShippedRules(StrEnum):
    """The shipped rules that apply beside those of a configuration."""

    KEEP = "keep"
    """The default rules, except those that have the name of an own rule."""
    REPLACE = "replace"
    """No shipped rules, if the configuration has rules of its own."""
    QUIET = "quiet"
    """The rules that page nobody for a failover that heals, except those that have the name of an own rule."""


def _template(setting: Setting) -> Template:
    from sidecar.settings.alerting.templates import template  # noqa: PLC0415  imports jinja2

    return template(setting)


class RuleKeys(Struct, frozen=True):
    """The keys of a rule."""

    alert: Annotated[str, Key(NAME)]
    """the name: letters, digits, `_`, `-`, `.`"""
    on: Annotated[Trigger, Key(Choice(Trigger))]
    """a [trigger](rules.md#triggers): `leader_changed`, `vacant`, `episodes`, …"""
    hold_for: Annotated[int, Key(Duration(), "0", "for")]
    """`vacant`, `blind`, `no_standby`, `not_recovered` and `leader_silent` only: how long the condition must hold"""
    severity: Annotated[Severity, Key(Choice(Severity), "warning")]
    count: Annotated[int, Key(Integer(1, 1000))] = 1
    """`episodes` only, and required there: the number of failovers"""
    within: Annotated[int, Key(Duration(SECOND))] = 0
    """`episodes` only, and required there: the time for these"""
    planned_budget: Annotated[int, Key(Duration(), "5m")] = PLANNED_BUDGET
    """`leader_changed` and `vacant` only: how long a [planned failover](rules.md#planned-failovers) may take until it fires the rule too;
    `0`: it always does"""
    age: Annotated[int, Key(Duration(SECOND), "90d")] = DRILL_AGE
    """`drill_overdue` only: how old the last passed [drill](../how-to/drills.md) may be"""
    summary: Annotated[Template | None, Key(_template)] = None
    """a [template](rules.md#templates) of the title; else our own"""


class RuleFile(Struct, frozen=True):
    """The keys of a rule file, which a configuration may have too."""

    rules: Annotated[tuple[Rule, ...], Key(inside=(RuleKeys,), many=tuple)]
    """in no file: the shipped rules (`rules/default.yaml`). `[]`: none"""
    shipped_rules: Annotated[ShippedRules, Key()]
    """`quiet`: those of `rules/quiet.yaml`. Beside `rules`: `replace` (the default) or [`keep`](#rules)"""
    route: Annotated[Route, Key(inside=(RouteKeys,))]
    """in one file only"""
    inhibit_rules: Annotated[tuple[InhibitRule, ...], Key(inside=(InhibitRuleKeys,), many=tuple)]
    time_intervals: Annotated[tuple[TimeInterval, ...], Key(inside=(TimeIntervalKeys,), many=tuple)]
    receivers: Annotated[tuple[Receiver, ...], Key(inside=(ReceiverKeys,), many=tuple)]
    """without any, no messages"""


RULE_FILE: Final[Keys] = keys_of(RuleFile)


def read_alerting(documents: Sequence[Section], labels: Mapping[str, str], *, secrets: bool = True) -> Alerting:
    """The alerting settings of all documents together; without any rules, the shipped ones. `labels`: the external labels.

    Without `secrets`, each receiver that has an endpoint has one unused URL, and no secret is read. Raises SettingsError.
    """
    own = tuple(_rule(section) for section in unique_sections(documents, "rules", "alert"))
    shipped = [*map(shipped_rules, _shipped(documents))]
    own_names = {rule.alert for rule in own}
    defaults = (_rule(section) for section in unique_sections(shipped, "rules", "alert"))
    sections = [*unique_sections(documents, "receivers")]
    receivers = tuple(receiver(section, secrets=secrets) for section in sections)
    if receivers and not any(target.endpoints for target in receivers):
        raise no_endpoint_error(sections[0])  # nobody would ever be notified
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
    return read_file(source, RULE_FILE)


def _rule(section: Section) -> Rule:
    section.value("alert")  # a mistake in it is the first, as the name is used elsewhere
    trigger = section.value("on")
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
    return Rule(**section.values(RuleKeys))
