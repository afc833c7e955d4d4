"""What holds for every command, `--debug` and completion, and those that judge files: `config check`, `rules check`, `rules show`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sidecar.cli.main import cli
from sidecar.core.policy.triggers import TRIGGERS, Need
from tests import ROOT
from tests.kit.amtool import find_amtool
from tests.kit.sidecar_process import COMMAND, command

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
"""
ROUTES = """\
route:
  receiver: ops
  routes:
    - matchers: [severity="critical", 'cluster_id=~"a.*"']
      receiver: oncall
      continue: true
      routes:
        - matchers: [alert="FlinkNoLeader"]
    - matchers: [severity!="info"]
      receiver: oncall
receivers:
  - name: ops
  - name: oncall
"""


def commands(group: click.Group) -> Iterator[click.Command]:
    for each in group.commands.values():
        yield each
        if isinstance(each, click.Group):
            yield from commands(each)


def test_debug_is_taken_in_every_place() -> None:
    """By the command itself, by each group, and by each command below it."""
    for each in (cli, *commands(cli)):
        assert ["--debug"] in [option.opts for option in each.params], each.name


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_debug_shows_the_traceback_from_every_place(place: int, tmp_path: Path) -> None:
    """Before the command, between its words, or behind all."""
    without = command("alert", "preview", "--config", str(tmp_path))
    assert "Traceback" not in without.stderr
    words = ["alert", "preview", "--config", str(tmp_path)]
    words.insert(place, "--debug")
    ended = command(*words)
    assert ended.returncode == without.returncode == 2
    assert "Traceback" in ended.stderr


def test_completion_is_that_of_a_shell() -> None:
    """bash takes the script of the documents, and gets commands and options."""
    program = f'flink-ha-sidecar() {{ {sys.executable} -m sidecar "$@"; }}\n'
    script = (
        program + 'eval "$(_FLINK_HA_SIDECAR_COMPLETE=bash_source flink-ha-sidecar)" && complete -p flink-ha-sidecar'
    )
    ended = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "-F _flink_ha_sidecar_completion flink-ha-sidecar" in ended.stdout

    def completed(line: str) -> set[str]:
        words = line.split(" ")
        asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_FLINK_HA_SIDECAR_COMPLETE": "bash_complete"}
        found = subprocess.run(COMMAND, capture_output=True, text=True, check=True, env=os.environ | asked)
        return {each.partition(",")[2] for each in found.stdout.splitlines()}

    assert completed("flink-ha-sidecar st") == {"status"}
    assert completed("flink-ha-sidecar rules ") == {"check", "show", "test"}
    assert "--follow" in completed("flink-ha-sidecar timeline --")
    assert completed("flink-ha-sidecar timeline --component rest") == {"rest_server"}


@pytest.mark.covers("command:rules show")
def test_the_route_tree_is_drawn_as_amtool_draws_it(tmp_path: Path) -> None:
    """Apart from the blanks of its first level."""
    alertmanager, ours = tmp_path / "alertmanager.yml", tmp_path / "rules.yaml"
    alertmanager.write_text(ROUTES)
    ours.write_text(
        ROUTES.replace("  - name: ops\n", "  - {name: ops, urls: ['json://h']}\n").replace(
            "  - name: oncall\n", "  - {name: oncall, urls: ['json://h']}\n"
        )
    )
    shown = command("rules", "show", "--config", str(ours)).stdout
    drawn = subprocess.run(
        [str(find_amtool()), "config", "routes", "show", f"--config.file={alertmanager}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    def tree(text: str) -> list[list[str]]:
        lines = text[text.index("Routing tree:") :].replace("\N{NO-BREAK SPACE}", " ").splitlines()
        return [line.split() for line in lines if line]

    assert tree(shown) == tree(drawn)


@pytest.mark.covers("command:rules check")
def test_rules_check_judges_each_file(tmp_path: Path) -> None:
    """What is wrong is on stderr, what is right on stdout; 2 if anything is wrong."""
    (tmp_path / "good.yaml").write_text("rules: [{alert: Mine, on: vacant, for: 5m, severity: info}]\n")
    (tmp_path / "bad.yaml").write_text("rules: [{alert: Mine, on: vacannt, for: x}]\n")
    ended = command("rules", "check", str(tmp_path / "good.yaml"), str(tmp_path / "bad.yaml"))
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 2
    header, rule, left_out = ended.stdout.splitlines()[1:4]
    assert rule.split() == ["Mine", "vacant", "5m", "info"]
    assert header.split() == ["ALERT", "ON", "FOR", "SEVERITY"]
    assert left_out.startswith("not among them, of the shipped rules: FlinkLeaderChanged, ")
    ended = command("rules", "check", "-o", "json", str(tmp_path / "good.yaml"))
    assert json.loads(ended.stdout)["rules"] == [
        {"alert": "Mine", "on": "vacant", "for": "5m", "severity": "info", "needs": ""}
    ]


def test_config_check_says_which_rules_cannot_fire_and_what_they_need(tmp_path: Path) -> None:
    """None of them is listed among those that can; what a configuration has takes its rules from the list."""
    config, journal = tmp_path / "sidecar.yaml", f"state_dir: {tmp_path}\n"
    receivers = "receivers: [{name: ops, urls: ['json://h/x']}]\n"

    def checked(text: str) -> tuple[list[str], list[str]]:
        config.write_text(text + journal + receivers)
        summary = json.loads(command("config", "check", "--config", str(config), "-o", "json").stdout)
        return summary["rules"], [line.partition(": cannot fire without ")[2] for line in summary.get("idle", [])]

    active, needs = checked("zookeeper: {quorum: zk}\nevidence: {flink_rest: never}\n")
    assert len(active) == 9
    assert {"FlinkNoLeader", "FlinkNoStandby", "FlinkJobMissing"} <= {*active}
    assert needs == [Need.PLANS, Need.KUBERNETES, Need.FLINK_REST]
    active, needs = checked("zookeeper: {quorum: zk}\n")
    assert (len(active), needs) == (14, [Need.PLANS, Need.KUBERNETES])
    (tmp_path / "kube").write_text(KUBECONFIG)
    place = f"cluster_id: c, kubeconfig: {tmp_path / 'kube'}"
    _, needs = checked(f"kubernetes: {{{place}, plans: true}}\n")
    assert needs == [Need.ZOOKEEPER]
    ended = command("config", "check", "--config", str(config))
    assert (
        f"idle       FlinkNoStandby, FlinkZooKeeperZxidHeadroom: cannot fire without {Need.ZOOKEEPER}\n" in ended.stdout
    )


def test_each_trigger_says_what_it_needs() -> None:
    """`rules show -o json` has it of each rule; and no need stands there that no configuration is asked about."""
    shown = json.loads(command("rules", "show", "-o", "json").stdout)["rules"]
    assert {rule["alert"]: rule["needs"] for rule in shown if rule["on"] in {"vacant", "leader_silent"}} == {
        "FlinkNoLeader": "",
        "FlinkLeaderSilent": Need.FLINK_REST,
    }
    assert {kind.needs for kind in TRIGGERS.values()} - {None} == {*Need}


@pytest.mark.covers("command:config check")
def test_config_check_finds_what_is_outside_of_the_text(tmp_path: Path) -> None:
    """URLs that no service takes, each with its line, and a state folder that cannot be written."""
    (tmp_path / "state").write_text("a file")
    config = tmp_path / "sidecar.yaml"
    config.write_text(
        "zookeeper: {quorum: zk}\nstate_dir: state\nreceivers:\n  - name: ops\n    urls:\n"
        "      - nonsense://s3cret@host/x\n      - json://h/x\n      - mailto://\n"
    )
    ended = command("config", "check", "--config", str(config))
    assert (ended.returncode, ended.stdout) == (2, "")
    problems = [line.removeprefix(f"flink-ha-sidecar: {config}:").partition(": ") for line in ended.stderr.splitlines()]
    assert [(line, rest.partition(": ")[0]) for line, _, rest in problems] == [
        ("2", "state_dir"),
        ("6", "receivers[0].urls[0]"),
        ("8", "receivers[0].urls[2]"),
    ]
    assert problems[0][2] == f"state_dir: {tmp_path / 'state'} is not a folder"
    assert "s3cret" not in ended.stderr
    ended = command("config", "check", "--config", str(config), "-o", "json")
    assert [len(line) > 0 for line in json.loads(ended.stdout)["mistakes"]] == [True] * 3
