"""Test files of rules: what they say, and how mistakes in them are reported."""

from pathlib import Path

import pytest

from sidecar.core.alerting.alerts import Reason
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS
from sidecar.core.moment import SECOND
from sidecar.settings import SettingsError
from sidecar.settings.file.setting import Setting
from sidecar.settings.loader import labels_in, read_rules
from sidecar.settings.rule_tests import NotificationInTest, ScenarioEvent, read_tests
from tests.settings.conftest import Write

WHOLE = """
external_labels: {env: prod}
receivers: [{name: ops, urls: ["${NOT_SET_ANYWHERE}", "file:no/such/file"]}, {name: oncall, urls: [json://x]}]
route: {receiver: ops, routes: [{receiver: oncall, matchers: [env="prod"]}]}
tests:
  - name: everything at once
    starts: "2026-03-01T01:00:00+01:00"
    until: 2h
    when:
      - {at: 1s, cluster: /payments, submitted: [orders], leader: {all: jm-a#2, orders: jm-b}, contenders: 2}
      - {at: 1m, cluster: payments, gone: [jobs, dispatcher], ended: [orders], blind: true, zxid_headroom: 7, unobserved: 2}
      - {at: 1m, cluster: payments, returns: {rest_server: jm-a}, running: false}
    expect:
      - {at: 1m, receiver: oncall, alerts: [FlinkNoLeader, FlinkNoLeader], reason: GREW, title: a part}
"""


def test_a_test_file_says_what_happens_and_what_is_expected(write: Write) -> None:
    """Each word means what docs/reference/rules.md says; nobody asks for the URLs of receivers."""
    suite = read_tests(write(WHOLE))
    (scene,) = suite.tests
    assert (scene.name, scene.starts, scene.until) == ("everything at once", 1_772_323_200 * SECOND, 7200 * SECOND)
    assert scene.when == (
        ScenarioEvent(
            SECOND,
            "payments",
            submitted=("orders",),
            leader={**dict.fromkeys(CLUSTER_COMPONENTS, "jm-a#2"), "orders": "jm-b"},
            contenders=2,
        ),
        ScenarioEvent(
            60 * SECOND,
            "payments",
            gone=("orders", CLUSTER_COMPONENTS[1]),
            ended=("orders",),
            blind=True,
            zxid_headroom=7,
            unobserved=2,
        ),
        ScenarioEvent(60 * SECOND, "payments", returns={CLUSTER_COMPONENTS[2]: "jm-a"}, running=False),
    )
    assert scene.expect == (NotificationInTest(60 * SECOND, ("FlinkNoLeader",), "oncall", Reason.GREW, "a part"),)
    assert suite.rules.external_labels == {"env": "prod"}


@pytest.mark.parametrize(
    ("wrong", "right", "error_line"),
    [
        ("tests:", "test:", ':5: unknown key "test": did you mean "tests"?'),
        ("at: 1s, cluster", "after: 1s, cluster", ':10: unknown key "after"'),
        ("submitted: [orders]", "submitted: [jobs]", ':10: tests[0].when[0].submitted[0]: "jobs" has another meaning'),
        (
            "orders: jm-b",
            "order: jm-b",
            ':10: tests[0].when[0].leader.order: "order" was not submitted: did you mean "orders"?',
        ),
        ("jm-a#2", "j m", ':10: tests[0].when[0].leader.all: "j m" must be a host like jm-0'),
        (
            "gone: [jobs, dispatcher]",
            "gone: [dispatch]",
            ':11: tests[0].when[1].gone[0]: "dispatch" was not submitted: did you mean "dispatcher"?',
        ),
        ("ended: [orders]", "ended: [dispatcher]", ':11: tests[0].when[1].ended[0]: "dispatcher" was not submitted'),
        ("blind: true", "blind: yes", ':11: tests[0].when[1].blind: "yes" must be true or false'),
        ("contenders: 2", "contenders: two", ':10: tests[0].when[0].contenders: "two" is not a whole number'),
        (
            "- {at: 1m, cluster: payments, gone",
            "- {at: 0s, cluster: payments, gone",
            ':11: tests[0].when[1].at: "0s" is before the event above it',
        ),
        ("at: 1m, receiver", "at: soon, receiver", ':14: tests[0].expect[0].at: "soon" is not a duration'),
        (
            "receiver: oncall, alerts",
            "receiver: onkel, alerts",
            ':14: tests[0].expect[0].receiver: "onkel" is not one of the receivers',
        ),
        (
            "alerts: [FlinkNoLeader,",
            "alerts: [NoLeader,",
            ':14: tests[0].expect[0].alerts[0]: "NoLeader" is not one of the rules: did you mean "FlinkNoLeader"?',
        ),
        ("[FlinkNoLeader, FlinkNoLeader]", "[]", ":14: tests[0].expect[0]: alerts is missing"),
        ("reason: GREW", "reason: grew", ':14: tests[0].expect[0].reason: "grew" is unknown'),
        ("+01:00", "", ':7: tests[0].starts: "2026-03-01T01:00:00" needs a UTC offset'),
        ("2026-03-01T01", "soon", ':7: tests[0].starts: "soon:00:00+01:00" is not a time'),
        ("until: 2h", "until: 1s", ':8: tests[0].until: "1s" is too short: give at least 1m'),
        ("receiver: ops,", "receiver: opps,", ':4: route.receiver: "opps" is not one of the receivers'),
        ("    expect:\n", "    expect: []\n    expected:\n", ':14: unknown key "expected"'),
    ],
)
def test_each_mistake_is_one_line_with_its_place(wrong: str, right: str, error_line: str, write: Write) -> None:
    """File, line, key, what to write instead; never a secret."""
    assert wrong in WHOLE
    file = write(WHOLE.replace(wrong, right, 1))
    with pytest.raises(SettingsError) as error:
        read_tests(file)
    assert str(error.value).startswith(f"{file}{error_line}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "error_line"),
    [
        ("", ": has no tests: list at least one under tests"),
        ("tests: [{name: a, expect: []}]", ": when is missing"),
        ("tests: [{name: a, when: [{at: 0s}]}]", ": expect is missing: give [] if no notification is expected"),
        (
            "tests: [{name: a, when: [{at: 0s}], expect: []}, {name: a, when: [{at: 0s}], expect: []}]",
            ' there is a test "a" already: rename one',
        ),
        ("rule_files: [no.yaml]\ntests: []", "no.yaml: cannot be read: No such file or directory"),
    ],
)
def test_what_is_missing_is_said(text: str, error_line: str, write: Write) -> None:
    """A test without a word is no test."""
    with pytest.raises(SettingsError) as error:
        read_tests(write(text))
    assert error_line in str(error.value)


def test_a_rule_file_may_be_a_whole_configuration(tmp_path: Path) -> None:
    """What else it says does not matter here; its own rule files and external labels do."""
    (tmp_path / "sidecar.yaml").write_text(
        "flink_conf_dir: /no/such/folder\nexternal_labels: {env: prod}\nrule_files: [more.yaml]\nhttp: {port: '${NOT_SET}'}\n"
    )
    (tmp_path / "more.yaml").write_text(
        "rules: [{alert: Mine, on: blind}]\nreceivers: [{name: a, urls: ['${NOT_SET}', b]}]\n"
    )
    (tmp_path / "tests.yaml").write_text(
        "rule_files: [sidecar.yaml]\ntests: [{name: a, when: [{at: 0s}], expect: [{at: 1s, alerts: [Mine]}]}]\n"
    )
    rules = read_tests(tmp_path / "tests.yaml").rules
    assert [rule.alert for rule in rules.rules] == ["Mine"]
    assert [(receiver.name, len(receiver.endpoints)) for receiver in rules.receivers] == [("a", 1)]
    assert rules.external_labels == {"env": "prod"}
    assert read_rules(tmp_path / "sidecar.yaml") == rules


def test_labels_are_written_as_matchers_are() -> None:
    """With escapes, whatever their names; a condition is no label."""
    text = 'alert="X", team=core, note="say \\"hi\\", twice"'
    assert labels_in(Setting(text, "--labels")) == {"alert": "X", "team": "core", "note": 'say "hi", twice'}
    assert labels_in(Setting("", "--labels")) == {}
    with pytest.raises(SettingsError, match='an alert has labels, not conditions: write severity="…"'):
        labels_in(Setting('severity=~"a"', "--labels"))
