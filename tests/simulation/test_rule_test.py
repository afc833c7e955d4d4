"""What the shipped rules do, by their own test file; and that such a test can fail."""

from pathlib import Path

import pytest

from sidecar.core.flink.leadership import encode_connection_info
from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import Rule
from sidecar.settings.rule_tests import NotificationInTest, RuleTest, Suite, read_tests
from sidecar.simulation.rule_test import Difference, compare, play
from tests import ROOT
from tests.kit.cluster import DISPATCHER, A
from tests.kit.java_serialization import connection_info

RULES = ROOT / "rules"
SHIPPED = read_tests(RULES / "default.test.yaml")
QUIET = read_tests(RULES / "quiet.test.yaml")


@pytest.mark.parametrize("scene", SHIPPED.tests, ids=[scene.name for scene in SHIPPED.tests])
def test_the_shipped_rules_do_what_their_tests_say(scene: RuleTest) -> None:
    """These messages at these times, and no others."""
    assert compare(scene, play(scene, SHIPPED.rules)) == Difference((), ())


@pytest.mark.parametrize("scene", QUIET.tests, ids=[scene.name for scene in QUIET.tests])
def test_the_quiet_rules_do_what_their_tests_say(scene: RuleTest) -> None:
    """What heals pages nobody, and what does not pages."""
    assert compare(scene, play(scene, QUIET.rules)) == Difference((), ())


def test_the_quiet_rules_are_default_ones_that_wait_longer() -> None:
    """The names that runbooks have, and the same triggers; none is more severe, or earlier."""
    shipped = {rule.alert: rule for rule in SHIPPED.rules.rules}
    for rule in QUIET.rules.rules:
        default = shipped[rule.alert]
        assert (rule.on, rule.severity, rule.hold_for >= default.hold_for) == (default.on, default.severity, True)
    assert {"FlinkLeaderChanged", "FlinkJobLeaderChanged", "FlinkPlannedFailover"}.isdisjoint(
        rule.alert for rule in QUIET.rules.rules
    )


@pytest.mark.parametrize("rule", SHIPPED.rules.rules, ids=[rule.alert for rule in SHIPPED.rules.rules])
def test_each_shipped_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(rule: Rule) -> None:
    """A rule without a test is a rule that nobody has tried."""
    fires = {any(rule.alert in each.alerts for each in scene.expect) for scene in SHIPPED.tests}
    assert fires == {True, False}


def notifications(text: str, folder: Path, rules: str = "rule_files: [default.yaml]") -> list[NotificationInTest]:
    """What is notified in the course of a test whose events are `text`."""
    (folder / "default.yaml").write_text((RULES / "default.yaml").read_text())
    file = folder / "test.yaml"
    file.write_text(f"{rules}\ntests:\n  - name: it\n    until: 30m\n    when:\n{text}\n    expect: []\n")
    suite: Suite = read_tests(file)
    return [*play(suite.tests[0], suite.rules)]


def test_whatever_is_not_as_expected_is_said(tmp_path: Path) -> None:
    """Too late, to somebody else, for another reason, of other alerts, in other words: missing, and notified instead."""
    happened = notifications("      - {at: 0s, leader: {all: jm-a}}\n      - {at: 1m, leader: {all: jm-b}}", tmp_path)
    [only] = happened
    assert (only.at, only.receiver, only.reason, only.alerts) == (65 * SECOND, "ops", "FIRST", ("FlinkLeaderChanged",))
    right = NotificationInTest(65 * SECOND, ("FlinkLeaderChanged",))
    scene = RuleTest("it", "here", 0, 600 * SECOND, (), (right,))
    assert not compare(scene, happened)
    for wrong in (
        NotificationInTest(66 * SECOND, right.alerts),
        NotificationInTest(64 * SECOND, right.alerts),
        NotificationInTest(65 * SECOND, ("FlinkNoLeader",)),
        NotificationInTest(65 * SECOND, (*right.alerts, "FlinkNoLeader")),
        NotificationInTest(65 * SECOND, right.alerts, receiver="oncall"),
        NotificationInTest(65 * SECOND, right.alerts, title="nobody leads"),
    ):
        failing = RuleTest("it", "here", 0, 600 * SECOND, (), (wrong,))
        assert compare(failing, happened) == Difference((wrong,), (only,))
    twice = RuleTest("it", "here", 0, 600 * SECOND, (), (right, right))
    assert compare(twice, happened) == Difference((right,), ())
    assert compare(RuleTest("it", "here", 0, 0, (), ()), happened) == Difference((), (only,))


def test_writes_that_nobody_saw(tmp_path: Path) -> None:
    """`unobserved` says how many came before."""
    rules = "rules: [{alert: Missed, on: unobserved}]"
    happened = notifications(
        "      - {at: 0s, leader: {all: jm-a}}\n      - {at: 1m, unobserved: 2, leader: {dispatcher: jm-b}}",
        tmp_path,
        rules,
    )
    assert [(each.alerts, each.title) for each in happened] == [
        (("Missed",), "[WARNING] default: at least 2 unobserved changes of dispatcher")
    ]


def test_the_same_process_and_another_one_on_its_host(tmp_path: Path) -> None:
    """`jm-a` elected again is the same process; `jm-a#2` is another one there."""
    rules = "rules: [{alert: Again, on: same_process_reelection}]"
    text = "      - {at: 0s, leader: {all: jm-a}}\n      - {at: 1m, leader: {all: HOW}}"
    assert [notice.alerts for notice in notifications(text.replace("HOW", "jm-a"), tmp_path, rules)] == [("Again",)]
    assert notifications(text.replace("HOW", '"jm-a#2"'), tmp_path, rules) == []


def test_clusters_are_distinguished(tmp_path: Path) -> None:
    """What happens to one, and is notified to its receiver, is nothing to the other."""
    rules = """
receivers: [{name: a, urls: [json://a]}, {name: b, urls: [json://b]}]
route: {receiver: a, routes: [{receiver: b, matchers: [cluster_id=~"billing.*"]}]}
"""
    text = """
      - {at: 0s, cluster: orders, leader: {all: jm-a}}
      - {at: 0s, cluster: billing-eu, leader: {all: jm-a}}
      - {at: 1m, cluster: billing-eu, leader: {all: jm-b}}
      - {at: 2m, cluster: orders, blind: true}"""
    assert [(notification.receiver, notification.alerts) for notification in notifications(text, tmp_path, rules)] == [
        ("b", ("FlinkLeaderChanged",)),
        ("a", ("FlinkLeadersOutOfSight",)),
    ]


def test_a_quiet_hour_begins_with_the_test(tmp_path: Path) -> None:
    """Tests begin at noon, on a Monday, in UTC, unless they say when: time intervals can be tried."""
    rules = """
receivers: [{name: a, urls: [json://a]}, {name: quiet, urls: [json://b]}]
route: {receiver: a, routes: [{receiver: quiet, matchers: [severity="warning"], mute_time_intervals: [noon]}]}
time_intervals: [{name: noon, time_intervals: [{times: [{start_time: "12:00", end_time: "12:10"}], weekdays: [monday]}]}]
"""
    text = "      - {at: 0s, leader: {all: jm-a}}\n      - {at: AT, blind: true}"
    assert [notice.at // SECOND for notice in notifications(text.replace("AT", "1m"), tmp_path, rules)] == [605]
    assert [notice.at // SECOND for notice in notifications(text.replace("AT", "11m"), tmp_path, rules)] == [785]


def test_a_pretended_leader_is_written_as_java_writes_it() -> None:
    """Byte by byte: what a test says goes through the same reading as what Flink says."""
    leader = A.leads(DISPATCHER)
    assert encode_connection_info(leader) == connection_info(leader.address, leader.session_id)
