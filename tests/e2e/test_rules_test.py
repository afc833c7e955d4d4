"""`rules test`, as people and CI call it."""

from pathlib import Path

import pytest

from tests import ROOT
from tests.kit.sidecar_process import command

RULES = ROOT / "rules"
FAILING = """
rule_files: [default.yaml]
tests:
  - name: fine
    when: [{at: 0s, leader: {all: jm-a}}]
    expect: []
  - name: not fine
    when: [{at: 0s, leader: {all: jm-a}}, {at: 1m, leader: {all: jm-b}}]
    expect: [{at: 2m, receiver: ops, alerts: [FlinkNoLeader], title: nobody}]
"""


def test_the_shipped_rules_pass_their_tests() -> None:
    """A line for the file, and status 0."""
    ended = command("rules", "test", str(RULES / "default.test.yaml"))
    assert (ended.returncode, ended.stderr) == (0, "")
    [line] = ended.stdout.splitlines()
    passed, _, all_of_them = line.removeprefix(f"{RULES / 'default.test.yaml'}: ").removesuffix(" tests passed").split()
    assert passed == all_of_them


@pytest.mark.covers("command:rules test")
def test_a_test_that_fails_says_what_was_notified_instead(tmp_path: Path) -> None:
    """What was expected, what was notified, and when; the status is 1. The rules may be somebody's own."""
    (tmp_path / "default.yaml").write_text((RULES / "default.yaml").read_text())
    file = tmp_path / "mine.yaml"
    file.write_text(FAILING)
    ended = command("rules", "test", str(RULES / "quiet.test.yaml"), str(file))
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.splitlines()[1:] == [
        f"{file}: 1 of 2 tests passed",
        f"  FAILED not fine ({file}:7: tests[1])",
        "    expected, but not sent:",
        "      2m: ops (any reason) FlinkNoLeader: … nobody …",
        "    sent, but not expected:",
        "      1m5s: ops FIRST FlinkLeaderChanged: [UNCHECKED] default: jm-b leads; whether jobs run is not known (no REST)",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a test file, or --labels"),
        (["no.yaml"], "no.yaml: cannot be read: No such file or directory"),
        (["bad.yaml"], 'bad.yaml:2: tests[0].when[0].at: "never" is not a duration'),
        (["bad.yaml", "--config", "a"], "a test file names its own rules"),
        (["bad.yaml", "--labels", "a=b"], "give no test file with it"),
        (["--labels", "severity"], '--labels: "severity" is not a matcher'),
        (["--labels", "a=b", "--config", "no.yaml"], "no.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_tried_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    """What is wrong, where; the status is 2."""
    (tmp_path / "bad.yaml").write_text("tests:\n  - {name: a, when: [{at: never}], expect: []}\n")
    placed = [str(tmp_path / each) if each.endswith(".yaml") else each for each in arguments]
    ended = command("rules", "test", *placed)
    assert (ended.returncode, ended.stdout) == (2, "")
    [line] = ended.stderr.splitlines()
    assert message in line


def test_who_gets_an_alert(tmp_path: Path) -> None:
    """The receivers and nothing else, as amtool prints them; a label that no alert has is reported, for nothing can depend on it."""
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        """
receivers: [{name: ops, urls: ["${NOT_SET}"]}, {name: oncall, urls: [a]}, {name: log, urls: [b]}]
route:
  receiver: ops
  routes:
    - {receiver: log, matchers: [severity=~"warning|critical"], continue: true}
    - {receiver: oncall, matchers: [severity="critical"]}
"""
    )
    for labels, receivers, said in (
        ('alert="X",severity="critical"', "log,oncall\n", ""),
        ("severity=warning", "log\n", ""),
        ("", "ops\n", ""),
        ("severity=info,team=core", "ops\n", "flink-ha-sidecar: no alert has a label team\n"),
    ):
        ended = command("rules", "test", "--config", str(config), "--labels", labels)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, receivers, said)
