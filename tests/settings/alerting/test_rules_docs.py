"""docs/reference/rules.md says what the code does."""

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from sidecar.core.alerting.compose import EXAMPLE
from sidecar.core.alerting.conditions import ZXID_HEADROOM
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import Started, Ticked
from sidecar.core.policy.policy import Source, Store
from sidecar.core.policy.routing import OWN_LABELS
from sidecar.core.policy.triggers import Trigger
from sidecar.settings import rule_tests
from sidecar.settings.alerting import templates
from sidecar.settings.file.key import Keys, keys_of
from sidecar.settings.loader import read_rules
from sidecar.settings.rule_tests import read_tests
from sidecar.simulation.fake_flink import SimulatedFlink
from sidecar.simulation.rule_test import Difference, Simulator, compare, play
from tests import ROOT

TEXT = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
SECTIONS: Mapping[str, Keys] = {
    "A test": keys_of(rule_tests.RuleTest),
    "What happens": keys_of(rule_tests.ScenarioEvent),
    "What is expected": keys_of(rule_tests.NotificationInTest),
}
COMMON = {"alert", "severity", "cluster_id", "store"}
FAILOVER = "- {at: 1m, gone: [all]}\n- {at: 2m, leader: {all: jm-b}}"
RUNNING = "- {at: 50s, jobs: {orders: running}}\n"


def recovery(act: str) -> str:
    """A failover, and what Flink's REST server says of the job afterwards."""
    return f"- {{at: 1m, gone: [all]}}\n- {{at: 2m, leader: {{all: jm-b}}, jobs: {{orders: {act}}}}}"


FIRING: Mapping[Trigger, str] = {
    Trigger.LEADER_CHANGED: FAILOVER,
    Trigger.VACANT: "- {at: 1m, gone: [orders]}",
    Trigger.EPISODES: FAILOVER,
    Trigger.BLIND: "- {at: 1m, blind: true}",
    Trigger.UNOBSERVED: "- {at: 1m, unobserved: 1, leader: {orders: jm-b}}",
    Trigger.SPLIT: "\n".join(
        f"- {{at: {60 + n}s, {how}: {{orders: {who}}}}}"
        for n, (how, who) in enumerate(
            (("leader", "jm-b"), ("returns", "jm-a"), ("returns", "jm-b"), ("returns", "jm-a"))
        )
    ),
    Trigger.NO_STANDBY: "- {at: 2m, contenders: 1}",
    Trigger.JOB_LEADER_CHANGED: "- {at: 1m, leader: {orders: jm-b}}",
    Trigger.SAME_PROCESS_REELECTION: "- {at: 1m, gone: [all]}\n- {at: 2m, leader: {all: jm-a}}",
    Trigger.PLANNED_FAILOVER: "- {at: 1m, operator: upgrading, gone: [all]}\n- {at: 2m, leader: {all: jm-b}}",
    Trigger.STOPPED: "- {at: 1m, operator: suspended, gone: [all]}",
    Trigger.JOBS_WAIT: "- {at: 1m, operator: deleted, gone: [all]}",
    Trigger.JOB_MISSING: "- {at: 1m, gone: [all]}\n- {at: 2m, ended: [orders]}",
    Trigger.JOB_RESURRECTED: "- {at: 50s, jobs: {orders: failed}}\n" + recovery("running"),
    Trigger.RESTORED_FROM_NOTHING: RUNNING + recovery("from_nothing"),
    Trigger.RESTORED_FROM_OLDER: RUNNING + recovery("from_older"),
    Trigger.NOT_RECOVERED: RUNNING + recovery("restarting"),
    Trigger.RECOVERED: RUNNING + recovery("running"),
    Trigger.LEADER_SILENT: "- {at: 50s, rest: answers}\n- {at: 1m, rest: silent}",
    Trigger.HA_RISK: "- {at: 1m, checks: {standby: risk}}",
    Trigger.DRILL_OVERDUE: "- {at: 2m, contenders: 1}",
    Trigger.ZXID_HEADROOM: "- {at: 1m, zxid_headroom: 100}",
}
"""What makes each trigger fire, of a job where it can be."""


def section(title: str) -> str:
    headings = [*re.finditer(r"^#+ (.*)$", TEXT, re.MULTILINE)]
    spans = {here[1]: TEXT[here.end() : after.start()] for here, after in pairwise(headings)}
    return spans[title]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def test_every_trigger_is_documented() -> None:
    """In the order of the code."""
    assert [words(row[0]) for row in rows("Triggers")] == [[trigger.value] for trigger in Trigger]
    assert f"{ZXID_HEADROOM:,}" in section("Triggers")


@pytest.mark.parametrize("trigger", Trigger)
def test_the_labels_of_each_trigger_are_documented(trigger: Trigger, tmp_path: Path) -> None:
    """Those that its alerts really have, beside those that all have."""
    counted = {Trigger.EPISODES: ", count: 1, within: 1h", Trigger.DRILL_OVERDUE: ", age: 1m"}.get(trigger, "")
    events = FIRING[trigger].replace("\n", "\n      ")
    (tmp_path / "test.yaml").write_text(
        f"""
rules: [{{alert: It, on: {trigger.value}{counted}}}]
tests:
  - name: it
    when:
      - {{at: 0s, submitted: [orders], contenders: 2, leader: {{all: jm-a}}}}
      {events}
    expect: []
"""
    )
    suite = read_tests(tmp_path / "test.yaml")
    evidence = frozenset({Source.FLINK_REST}) if any(event.is_of_rest for event in suite.tests[0].when) else frozenset()
    simulator, cluster, events_left = (
        Simulator(replace(suite.rules.policy_for("me", {"default": Store.ZOOKEEPER}), evidence=evidence)),
        SimulatedFlink("default"),
        [*suite.tests[0].when],
    )
    labels: set[str] = set()
    start = Moment(SECOND, SECOND)
    [*simulator.observe([Started(start), *cluster.connect(start)])]
    for second in range(1, 150):
        at = Moment(second * SECOND, second * SECOND)
        while events_left and events_left[0].at <= at.steady - SECOND:
            [*simulator.observe(cluster.apply(events_left.pop(0), at))]
        [*simulator.observe([*cluster.pictured(at), Ticked(at)])]
        # White box: labels are nowhere else to be seen as they are.
        for group in simulator._state.alerts.groups.values():
            labels |= {label for member in group.members.values() for label in member.alert.labels}
    [documented] = [words(row[2]) for row in rows("Triggers") if words(row[0]) == [trigger.value]]
    assert labels == COMMON | {*documented}


def test_every_label_is_documented() -> None:
    """None that an alert may have is left out."""
    assert {*re.findall(r"`([a-z_]+)`", section("Triggers"))} >= {*OWN_LABELS}


def test_every_field_of_a_template_is_documented_with_its_example() -> None:
    """The table is the example that templates are tried with."""
    documented = {words(row[0])[0]: json.decode(words(row[1])[0].encode()) for row in rows("Templates")}
    assert list(documented.items()) == list(EXAMPLE.items())
    filters = section("Templates").partition("The filters are")[2].partition("A template is")[0]
    # White box: what is documented is what is let through.
    assert {*words(filters)} == templates._FILTERS


@pytest.mark.parametrize("title", SECTIONS)
def test_every_word_of_a_test_is_documented_with_its_default(title: str) -> None:
    """The tables have the keys of the code, in its order."""
    documented = {words(row[0])[0]: next(iter(words(row[1])), None) for row in rows(title)}
    assert list(documented.items()) == [(name, declared.key.default) for name, declared in SECTIONS[title].items()]


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    """As it stands there, beside the shipped rules."""
    (tmp_path / "default.yaml").write_text((ROOT / "rules" / "default.yaml").read_text())
    file = tmp_path / "example.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", section("rules test"), re.DOTALL)[0])
    suite = read_tests(file)
    assert [compare(scene, play(scene, suite.rules)) for scene in suite.tests] == [Difference((), ())]


def test_every_shipped_rule_is_documented() -> None:
    """With its trigger and severity, in its order."""
    documented = [(words(row[0])[0], words(row[1])[0], row[2]) for row in rows("The shipped rules")]
    shipped = read_rules(None)
    assert documented == [(rule.alert, rule.on.value, rule.severity.value) for rule in shipped.rules]
    said = section("The shipped rules").rpartition("|")[2]
    assert shipped.inhibit_rules
    for inhibition in shipped.inhibit_rules:
        assert {*inhibition.target_matchers[0].value.split("|"), inhibition.source_matchers[0].value} <= {*words(said)}
