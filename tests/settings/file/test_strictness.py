"""Every mistake in a configuration is one clear line that names the place."""

from pathlib import Path

import pytest

from sidecar.net.endpoints import AppriseUrl
from sidecar.settings import SettingsError, load
from tests.settings.conftest import Write


def error_of(config: Path) -> str:
    with pytest.raises(SettingsError) as error:
        load(config, {"zookeeper": "zk"})
    return str(error.value).replace(str(config), "FILE").replace(str(config.parent), "DIR")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recievers: []\n", 'FILE:1: unknown key "recievers": did you mean "receivers"?'),
        ("http:\n  prot: 1\n", 'FILE:2: unknown key "prot": did you mean "port"?'),
        ("http: {zzz: 1}\n", 'FILE:1: unknown key "zzz": expected one of allowed_hosts, external_url, host, port'),
        ("\nrules:\n- alert: A\n  on: vacant\n  fro: 5s\n", 'FILE:5: unknown key "fro": did you mean "for"?'),
        ("kubernetes: {name_space: flink}\n", 'FILE:1: unknown key "name_space": did you mean "namespace"?'),
        ("route: {routes: [{match: {}}]}\n", 'FILE:1: unknown key "match": did you mean "matchers"?'),
        ("summary: x\n", 'FILE:1: unknown key "summary": expected one of '),
    ],
)
def test_an_unknown_key_is_reported_with_what_was_meant(write: Write, text: str, message: str) -> None:
    """The nearest known key for a slip of the pen, all known keys for a guess."""
    assert error_of(write(text)).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trust_window: 10\n", 'FILE:1: trust_window: "10" is not a duration: write it like "10s", "1h30m" or "250ms"'),
        ("trust_window: [1s]\n", "FILE:1: trust_window: must be a single value"),
        ("spool:\n  roll_interval: 1ms\n", 'FILE:2: spool.roll_interval: "1ms" is too short: give at least 100ms'),
        (
            "spool:\n  roll_records: many\n",
            'FILE:2: spool.roll_records: "many" is not a whole number from 1 to 1000000',
        ),
        ("spool: file:///x\n", "FILE:1: spool: must be a mapping of keys to values"),
        (
            "spool: {url: 'file://host/x'}\n",
            "FILE:1: spool.url: must be like file:///var/spool/flink-ha-sidecar, with three slashes",
        ),
        ("http: {port: 65536}\n", 'FILE:1: http.port: "65536" is not a whole number from 0 to 65535'),
        ("http: {host: ''}\n", "FILE:1: http.host: is empty: give a value, or remove it"),
        ("state_dir: ''\n", "FILE:1: state_dir: is empty: give a path"),
        ("observer:\n", "FILE:1: observer: has no value: give it one, or remove it"),
        ("observer: a/b\n", 'FILE:1: observer: "a/b" must be a name of letters, digits, _, - and .: set observer'),
        ('observer: "a\\nb"\n', "FILE:1: observer: must be one line of printable text"),
        ("observer: ${NOT_SET}\n", "FILE:1: observer: the environment variable NOT_SET is not set"),
        (
            "observer: ${A:-b}\n",
            "FILE:1: observer: only ${NAME} is understood after a dollar sign; write $${ for a plain ${",
        ),
        ("ledger: {mode: none}\n", 'FILE:1: ledger.mode: "none" is unknown: expected one of auto, local, store'),
        ("external_labels: [a]\n", "FILE:1: external_labels: must be a mapping of names to values"),
        ("external_labels: {env: {a: b}}\n", "FILE:1: external_labels.env: must be a single value"),
        (
            "external_labels: {a-b: c}\n",
            "FILE:1: external_labels: a label name has letters, digits and _, and does not begin with a digit",
        ),
        (
            "external_labels:\n  severity: x\n",
            "FILE:2: external_labels.severity: alerts already have a label of this name: choose another",
        ),
        (
            "external_labels:\n  alertname: x\n",
            "FILE:2: external_labels.alertname: alerts already have a label of this name: choose another",
        ),
        (
            "zookeeper: {session_timeout: 1ms}\n",
            'FILE:1: zookeeper.session_timeout: "1ms" is too short: give at least 10ms',
        ),
        (
            "zookeeper: {tolerate_suspended_connections: yes}\n",
            'FILE:1: zookeeper.tolerate_suspended_connections: "yes" must be true or false',
        ),
        ("rule_files: more.yaml\n", "FILE:1: rule_files: must be a list"),
        ("rule_files: [more.yaml]\n", "DIR/more.yaml: cannot be read: No such file or directory"),
        ("observer: a\nobserver: b\n", 'FILE:2: the key "observer" is here twice (first in line 1): keep one'),
    ],
)
def test_a_wrong_value_is_shown_where_it_stands(write: Write, text: str, message: str) -> None:
    """Type, unit, range, variable: file, line, key, what is wrong."""
    assert error_of(write(text)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules:\n- on: vacant\n", "FILE:2: rules[0]: alert is missing"),
        ("rules:\n- alert: A\n", "FILE:2: rules[0]: on is missing"),
        ("rules: [A]\n", "FILE:1: rules: must be a list of mappings, but entry 1 is not a mapping"),
        (
            "rules:\n- {alert: A, on: vacant}\n- {alert: A, on: leader_changed}\n",
            'FILE:3: rules[1].alert: there is a rule "A" already: rename one',
        ),
        ("rules: [{alert: A, on: vacent}]\n", 'FILE:1: rules[0].on: "vacent" is unknown: did you mean "vacant"?'),
        (
            "rules: [{alert: A b, on: vacant}]\n",
            'FILE:1: rules[0].alert: "A b" must be 1 to 64 letters, digits, _, - or .',
        ),
        (
            "rules: [{alert: A, on: leader_changed, for: 5s}]\n",
            "FILE:1: rules[0].for: is for conditions only (blind, jobs_wait, leader_silent, no_standby, not_recovered, vacant): remove it",
        ),
        (
            "rules: [{alert: A, on: vacant, severity: high}]\n",
            'FILE:1: rules[0].severity: "high" is unknown: expected one of critical, info, warning',
        ),
        ("receivers:\n- urls: [x]\n", "FILE:2: receivers[0]: name is missing"),
        (
            "receivers:\n- name: a\n",
            "FILE:2: receivers[0]: the receiver has no endpoint: give it at least one of urls, webhook, slack, alertmanager",
        ),
        (
            "receivers:\n- {name: a, urls: []}\n",
            "FILE:2: receivers[0]: the receiver has no endpoint: give it at least one of urls, webhook, slack, alertmanager",
        ),
        ("receivers: [{name: a, urls: x}]\n", "FILE:1: receivers[0].urls: must be a list"),
        ("receivers: [{name: a, urls: ['']}]\n", "FILE:1: receivers[0].urls[0]: is empty: give an Apprise URL"),
        (
            "receivers:\n- name: a\n  urls:\n  - file:secret\n",
            'FILE:4: receivers[0].urls[0]: "file:secret" cannot be read: No such file or directory',
        ),
        (
            "receivers:\n- {name: a, urls: [x]}\n- {name: a, urls: [y]}\n",
            'FILE:3: receivers[1].name: there is a receiver "a" already: rename one',
        ),
        (
            "receivers: [{name: a, urls: [x]}, {name: b, urls: [y]}]\n",
            "FILE:1: route: several receivers (a, b): name the one that gets the alerts in route.receiver",
        ),
        (
            "route: {receiver: pos}\nreceivers: [{name: ops, urls: [x]}]\n",
            'FILE:1: route.receiver: "pos" is not one of the receivers: did you mean "ops"?',
        ),
        ("route: {receiver: ops}\n", 'FILE:1: route.receiver: "ops" is not one of the receivers: there are none'),
        ("route: {group_interval: 0}\n", 'FILE:1: route.group_interval: "0" is too short: give at least 1s'),
    ],
)
def test_rules_and_receivers_fit_together(write: Write, text: str, message: str) -> None:
    """Names, no name twice, a route that leads somewhere."""
    assert error_of(write(text)) == message


def test_a_rule_file_has_only_what_belongs_there(write: Write, tmp_path: Path) -> None:
    """Its errors name it, and one route is enough."""
    config = write("rule_files: [more.yaml]\nroute: {group_wait: 1s}\n")
    (tmp_path / "more.yaml").write_text("\nroute: {group_wait: 2s}\n")
    assert error_of(config) == "DIR/more.yaml:2: route: there is a route already, in FILE:1: keep one"
    (tmp_path / "more.yaml").write_text("state_dir: x\n")
    assert error_of(config).startswith(
        'DIR/more.yaml:1: unknown key "state_dir": expected one of inhibit_rules, receivers, '
    )


@pytest.mark.parametrize("content", [b"", b"\n", b"slack://a\nslack://b\n", b"\xff\xfe"])
def test_a_file_with_a_url_holds_one_line(write: Write, tmp_path: Path, content: bytes) -> None:
    """Nothing, two lines or bytes that are no text are errors that show none of it."""
    (tmp_path / "url").write_bytes(content)
    message = error_of(write("receivers: [{name: a, urls: ['file:url']}]\n"))
    assert message in {
        'FILE:1: receivers[0].urls[0]: "file:url" must hold one URL, in one line',
        'FILE:1: receivers[0].urls[0]: "file:url" cannot be read: it is not UTF-8 text',
    }


def test_what_a_variable_holds_is_not_shown(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable in a wrong place may hold a secret: the line shows its name only."""
    monkeypatch.setenv("TOKEN", "xoxb")
    assert error_of(write("trust_window: ${TOKEN}\n")).startswith('FILE:1: trust_window: "${TOKEN}" is not a duration')


def test_the_line_break_of_a_secret_that_echo_made_is_left_out(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a file. Also within a URL, and in our own variables."""
    monkeypatch.setenv("TOKEN", "secret\r\n")
    monkeypatch.setenv("FLINK_HA_SIDECAR_OBSERVER", "jm-0\n")
    config = write("receivers: [{name: a, urls: ['json://u:${TOKEN}@ops.example/${TOKEN}']}]\n")
    read = load(config, {"zookeeper": "zk"})
    endpoint = read.receivers[0].endpoints[0]
    assert isinstance(endpoint, AppriseUrl)
    assert (endpoint.url.reveal(), read.observer) == ("json://u:secret@ops.example/secret", "jm-0")


def test_a_variable_of_two_lines_is_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content may be a secret."""
    monkeypatch.setenv("TOKEN", "xoxb\nxoxb")
    assert error_of(write("receivers: [{name: a, urls: ['${TOKEN}']}]\n")) == (
        "FILE:1: receivers[0].urls[0]: the environment variable TOKEN must hold one line of printable text"
    )


@pytest.mark.parametrize(
    "value",
    [
        "zk-1.zookeeper.svc.cluster.local:2181,zk-2.zookeeper.svc.cluster.local:2181;x",
        "a=~b|c",
        "[x]",
        "x@y",
        "a//b/c!",
    ],
)
def test_a_value_that_is_no_secret_is_shown(value: str) -> None:
    """However long it is, and whatever signs it has."""
    with pytest.raises(SettingsError) as error:
        load(None, {"zookeeper": f"zk,{value}!"})
    assert value in str(error.value)


@pytest.mark.parametrize(
    "secret",
    [
        "mailto://alice:pw@host",
        "mailto:alice:pw@host",
        "alice:Winter@SecretTail9@host",
        "//token/a",
        "slack//token/a",
        "ops.example/hook?token=pw",
        f"eyJhbGciOiJIUzI1NiJ9.{'aB3' * 30}.x=",
    ],
)
def test_what_may_be_a_misplaced_secret_is_not_shown(secret: str) -> None:
    """URLs of notification services with a slip in them, too, and tokens."""
    with pytest.raises(SettingsError) as error:
        load(None, {"zookeeper": "zk", "observer": secret})
    assert str(error.value).startswith("--observer: <not shown: it may be a secret> must be a name")


def test_a_host_name_that_is_no_name_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the observer is that of a folder too."""
    monkeypatch.setenv("POD_NAME", "../x")
    with pytest.raises(SettingsError) as error:
        load(None, {"zookeeper": "zk"})
    assert str(error.value) == (
        'the observer\'s name, from POD_NAME or the host name: "../x" must be a name of letters, digits, _, - and .: set observer'
    )


def test_the_command_line_is_checked_like_a_file() -> None:
    """Its errors name the option."""
    with pytest.raises(SettingsError) as error:
        load(None, {"zookeeper": "zk", "observer": "a b"})
    assert str(error.value) == '--observer: "a b" must be a name of letters, digits, _, - and .: set observer'
