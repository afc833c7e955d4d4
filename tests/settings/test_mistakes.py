"""`config check` and `rules check` find every mistake: none hides another one, and none is reported for what another one has caused."""

from pathlib import Path

import pytest

from sidecar.settings import SettingsError, load
from sidecar.settings.mistakes import check, check_rules, sorted_mistakes
from tests.settings.conftest import Write

CONFIG = """\
zookeper: {quorum: "a:1"}
zookeeper: {quorum: "300.1.1.1:2181", cluster_id: /x, session_timeout: 5 bananas}
observer: "a b"
http: {port: 99999, host: 300.1.1.1}
rule_files: [missing.yaml, rules.yaml]
receivers:
  - name: ops
    urls: ["json://h/x", "${NOT_SET_ANYWHERE}"]
    send_resolved: maybe
  - name: oncall
    webhook: {url: "http://300.1.1.1/x"}
route:
  receiver: opps
  routes:
    - matchers: [severity="info", 'alert=~"Thrid.*"']
      receiver: oncall
      group_wait: soon
    - matchers: ['severiti="x"']
      receiver: oncall
inhibit_rules:
  - source_matchers: [alert="Fine"]
    target_matchers: [severity!="info"]
ledger: {mode: automatic}
"""
RULES = """\
rules:
  - alert: My Alert
    on: vacant
  - alert: Other
    on: vacannt
    for: 5y
    severity: bad
  - alert: Third
    on: blind
    sumary: "x"
  - {alert: Fine, on: split}
"""


def lines(errors: list[SettingsError], folder: Path) -> list[str]:
    return [str(mistake).removeprefix(f"{folder}/") for mistake in sorted_mistakes(errors)]


def test_every_mistake_is_found_at_once(write: Write, tmp_path: Path) -> None:
    """In all files, each with its line, whatever else is wrong in the same entry."""
    (tmp_path / "rules.yaml").write_text(RULES)
    checked = check(write(CONFIG), {})
    duration = 'is not a duration: write it like "10s", "1h30m" or "250ms"'
    assert lines(checked.mistakes, tmp_path) == [
        "missing.yaml: cannot be read: No such file or directory",
        'rules.yaml:2: rules[0].alert: "My Alert" must be 1 to 64 letters, digits, _, - or .',
        'rules.yaml:5: rules[1].on: "vacannt" is unknown: did you mean "vacant"?',
        f'rules.yaml:6: rules[1].for: "5y" {duration}',
        'rules.yaml:7: rules[1].severity: "bad" is unknown: expected one of critical, info, warning',
        'rules.yaml:10: unknown key "sumary": did you mean "summary"?',
        'sidecar.yaml:1: unknown key "zookeper": did you mean "zookeeper"?',
        'sidecar.yaml:2: zookeeper.quorum: "300.1.1.1:2181" is not a list of ZooKeeper servers: 300.1.1.1 is no IP address',
        f'sidecar.yaml:2: zookeeper.session_timeout: "5 bananas" {duration}',
        'sidecar.yaml:3: observer: "a b" must be a name of letters, digits, _, - and .: set observer',
        'sidecar.yaml:4: http.host: "300.1.1.1" is no IP address, and no host name',
        'sidecar.yaml:4: http.port: "99999" is not a whole number from 0 to 65535',
        "sidecar.yaml:8: receivers[0].urls[1]: the environment variable NOT_SET_ANYWHERE is not set",
        'sidecar.yaml:9: receivers[0].send_resolved: "maybe" must be true or false',
        "sidecar.yaml:11: receivers[1].webhook.url: is not an http:// or https:// URL",
        'sidecar.yaml:13: route.receiver: "opps" is not one of the receivers: did you mean "ops"?',
        'sidecar.yaml:15: route.routes[0].matchers[0]: no rule has severity="info": expected one of warning',
        'sidecar.yaml:15: route.routes[0].matchers[1]: no rule has alert=~"Thrid.*": did you mean "Third"?',
        f'sidecar.yaml:17: route.routes[0].group_wait: "soon" {duration}',
        'sidecar.yaml:18: route.routes[1].matchers[0]: no alert has a label "severiti": did you mean "severity"?',
        'sidecar.yaml:23: ledger.mode: "automatic" is unknown: did you mean "auto"?',
    ]
    assert checked.settings is not None
    assert [receiver.name for receiver in checked.settings.receivers] == ["ops", "oncall"]


def test_the_first_mistake_is_that_of_the_start(write: Write) -> None:
    """`run` ends with one of the same lines."""
    file = write(CONFIG.replace("missing.yaml, rules.yaml", ""))
    with pytest.raises(SettingsError) as refused:
        load(file, {})
    assert str(refused.value) in [*map(str, check(file, {}).mistakes)]


def test_what_is_right_has_no_mistakes(write: Write) -> None:
    """And the settings are those that are loaded."""
    file = write("zookeeper: {quorum: zk}\nreceivers: [{name: ops, urls: ['json://h/x']}]\n")
    checked = check(file, {})
    assert checked.mistakes == []
    assert checked.settings
    assert checked.settings.policy().route == load(file, {}).policy().route


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("- a list\n", ["sidecar.yaml:1: must be a mapping of keys to values"]),
        ("a: [\n", ["sidecar.yaml:2: is not valid YAML"]),
        ("zookeeper: {quorum: zk}\nroute: {}\n", []),
        ("clusters: [{zookeeper: {quorum: ''}}]\n", ["sidecar.yaml:1: clusters[0].zookeeper.quorum: "]),
        (
            "zookeeper: {quorum: zk}\nreceivers: [{name: a}, {name: b}]\n",
            ["route: ", "receivers[0]: "],  # with an endpoint there, the other one may notify nobody
        ),
        ("zookeeper: {quorum: zk, tls: {ca_file: /no}}\nhttp: {port: x}\n", ["zookeeper.tls.ca_file: ", "http.port: "]),
    ],
    ids=["no mapping", "no YAML", "nothing", "no cluster left", "no receiver left", "a file of TLS"],
)
def test_a_mistake_is_not_reported_for_what_it_causes(config: str, expected: list[str], write: Write) -> None:
    """Each cause is one line, and the search always ends."""
    errors = [str(mistake) for mistake in sorted_mistakes(check(write(config), {}).mistakes)]
    assert len(errors) == len(expected), errors
    assert all(part in line for part, line in zip(expected, errors, strict=True)), errors


def test_without_a_cluster_the_rest_is_checked(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing names one is one mistake of several."""
    monkeypatch.setenv("FLINK_CONF_DIR", "")
    errors = [str(mistake) for mistake in check(write("receivers: [{name: ops, urls: ['']}]\n"), {}).mistakes]
    assert ["is empty: give an Apprise URL" in line for line in errors] == [True, False]
    assert errors[1].startswith("which Flink cluster?")


def test_a_rule_file_is_checked_by_itself(tmp_path: Path) -> None:
    """Without a cluster, a receiver, or a secret."""
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    _, errors = check_rules(file)
    assert [line.split(":")[1] for line in lines(errors, tmp_path)] == ["2", "5", "6", "7", "10"]
    file.write_text("rules: [{alert: Fine, on: split}]\nreceivers: [{name: ops, urls: ['${NOT_SET_ANYWHERE}/x']}]\n")
    alerting, errors = check_rules(file)
    assert errors == []
    assert alerting
    assert [rule.alert for rule in alerting.rules] == ["Fine"]


SHIPPED = {rule.alert for rule in load(None, {"zookeeper": "zk"}).rules}


def test_shipped_rules_are_kept_by_a_word(write: Write) -> None:
    """Those that have the name of an own rule give way; without the word, all do."""
    own = "zookeeper: {quorum: zk}\nrules: [{alert: FlinkNoLeader, on: vacant, for: 5m}, {alert: Mine, on: split}]\n"
    replaced = load(write(own), {})
    assert [rule.alert for rule in replaced.rules] == ["FlinkNoLeader", "Mine"]
    assert replaced.inhibit_rules == ()
    kept = load(write(f"{own}shipped_rules: keep\n"), {})
    assert {rule.alert for rule in kept.rules} == {*SHIPPED, "Mine"}
    assert {rule.hold_for for rule in kept.rules if rule.alert == "FlinkNoLeader"} == {300_000_000}
    assert kept.inhibit_rules == load(None, {"zookeeper": "zk"}).inhibit_rules
    assert load(write(f"{own}shipped_rules: replace\n"), {}).rules == replaced.rules


def test_the_quiet_rules_are_taken_by_a_word(write: Write) -> None:
    """In place of the default ones, with or without rules of one's own."""
    alone = load(write("zookeeper: {quorum: zk}\nshipped_rules: quiet\n"), {})
    assert "FlinkLeaderChanged" not in {rule.alert for rule in alone.rules}
    assert {rule.hold_for for rule in alone.rules if rule.alert == "FlinkNoLeader"} == {120_000_000}
    assert {rule.alert for rule in alone.rules} < SHIPPED
    own = "zookeeper: {quorum: zk}\nshipped_rules: quiet\nrules: [{alert: Mine, on: split}]\n"
    assert {rule.alert for rule in load(write(own), {}).rules} == {*(rule.alert for rule in alone.rules), "Mine"}


def test_two_files_agree_on_the_shipped_rules(write: Write, tmp_path: Path) -> None:
    """Or it is a mistake with both places."""
    (tmp_path / "more.yaml").write_text("shipped_rules: replace\n")
    file = write("zookeeper: {quorum: zk}\nshipped_rules: keep\nrule_files: [more.yaml]\n")
    with pytest.raises(
        SettingsError, match=r"more\.yaml:1: shipped_rules: another file says otherwise \(.*:2: shipped"
    ):
        load(file, {})
