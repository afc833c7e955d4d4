"""The settings of `run`."""

import socket
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from sidecar.core.moment import SECOND
from sidecar.core.policy.policy import NO_RECEIVER, Destination, Policy, Rule, Severity, Source, Store
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import Need, Trigger
from sidecar.net.endpoints import AppriseUrl
from sidecar.settings import LedgerMode, SettingsError, load
from sidecar.settings.model import HttpSettings, OwnPod, Receiver, SpoolSettings
from tests.kit.receivers import apprise, apprise_urls
from tests.settings.conftest import Write

SHIPPED = (
    Rule("FlinkLeaderChanged", Trigger.LEADER_CHANGED, Severity.WARNING),
    Rule("FlinkNoLeader", Trigger.VACANT, Severity.CRITICAL, 30 * SECOND),
    Rule("FlinkSplitLeadership", Trigger.SPLIT, Severity.CRITICAL),
)
FULL = """
zookeeper: {quorum: "zk:2181"}
observer: ${POD_NAME}
external_labels: {env: prod, shard: 07, "on": no}
state_dir: state
spool: {url: "file:///var/spool/with%20blank", roll_interval: 2s500ms, roll_records: 10}
ledger: {mode: store}
silences: {longest: 12h}
trust_window: 1m
http: {host: 127.0.0.1, port: "${PORT}"}
rule_files: [rules/more.yaml]
rules:
  - {alert: Changed, on: leader_changed, severity: info}
route: {receiver: ops, group_by: [cluster_id], group_wait: 0, group_interval: 2s, repeat_interval: 1d}
receivers:
  - name: ops
    urls: ["json://ops.example/${TOKEN}", "file:secrets/slack"]
"""
MORE = """
rules:
  - {alert: Vacant, on: vacant, for: 10s}
receivers:
  - {name: night, urls: ["mailto://u:p@mail.example"], send_resolved: false}
"""

LACKS = frozenset({Need.KUBERNETES, Need.PLANS})
"""What ZooKeeper alone does not have."""


@pytest.fixture
def full(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration that says everything."""
    for name, value in {"POD_NAME": "jm-0", "PORT": "0", "TOKEN": "t0ken"}.items():
        monkeypatch.setenv(name, value)
    for name, text in {"rules/more.yaml": MORE, "secrets/slack": "slack://a/b/c\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return write(FULL)


def test_a_quorum_is_a_whole_configuration() -> None:
    """Without a file, receivers or rules: the defaults, the shipped rules, metrics and audit only."""
    settings = load(None, {"zookeeper": "zk"})
    assert settings.observer == socket.gethostname()
    assert settings.external_labels == {}
    assert settings.state_dir == Path("/var/lib/flink-ha-sidecar")
    assert settings.spool == SpoolSettings(Path("/var/spool/flink-ha-sidecar"), 10.0, 1000)
    assert settings.ledger is LedgerMode.AUTO
    assert settings.trust_window == 3.0
    assert settings.http == HttpSettings("0.0.0.0", 9250)  # noqa: S104  the documented default
    assert apprise_urls(settings) == {}
    policy = settings.policy()
    assert policy == Policy(
        observer=socket.gethostname(),
        stores={"default": Store.ZOOKEEPER},
        rules=settings.rules,
        route=NO_RECEIVER,
        inhibit_rules=settings.inhibit_rules,
        places={"default": "zookeeper zk/ /flink/default"},
        evidence=frozenset({Source.FLINK_REST}),
        lacks=LACKS,
    )
    assert policy.rules[0].alert == "FlinkLeaderChanged"


def test_one_receiver_is_a_whole_configuration(write: Write, conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is found in Flink's own configuration, and the only receiver gets every alert."""
    monkeypatch.setenv("FLINK_CONF_DIR", str(conf_dir))
    settings = load(write("receivers: [{name: ops, urls: ['json://h/x', 'json://h/y']}]"), {})
    assert settings.clusters[0].cluster_id == "orders"
    both = (Destination("ops", 0, service="json"), Destination("ops", 1, service="json"))
    assert settings.policy().receivers == {"ops": both}
    assert settings.policy().route == Route("ops")
    assert apprise_urls(settings) == {"ops#0": "json://h/x", "ops#1": "json://h/y"}


def test_everything_that_is_said_is_meant(full: Path, tmp_path: Path) -> None:
    """Every key arrives typed; rule files add to the configuration; relative paths begin at the file they stand in."""
    settings = load(full, {})
    assert settings.state_dir == tmp_path / "state"
    assert settings.spool == SpoolSettings(Path("/var/spool/with blank"), 2.5, 10)
    assert settings.ledger is LedgerMode.STORE
    assert settings.http == HttpSettings("127.0.0.1", 0)
    assert [replace(receiver, locations=()) for receiver in settings.receivers] == [
        Receiver("ops", (apprise("json://ops.example/t0ken"), apprise("slack://a/b/c")), send_resolved=True),
        Receiver("night", (apprise("mailto://u:p@mail.example"),), send_resolved=False),
    ]
    assert settings.locations()["ops#1"] == f"{full}:17: receivers[0].urls[1]"
    assert apprise_urls(settings) == {
        "ops#0": "json://ops.example/t0ken",
        "ops#1": "slack://a/b/c",
        "night#0": "mailto://u:p@mail.example",
    }
    assert settings.policy() == Policy(
        observer="jm-0",
        stores={"default": Store.ZOOKEEPER},
        external_labels={"env": "prod", "shard": "07", "on": "no"},
        trust_window=60 * SECOND,
        rules=(
            Rule("Changed", Trigger.LEADER_CHANGED, Severity.INFO),
            Rule("Vacant", Trigger.VACANT, Severity.WARNING, 10 * SECOND),
        ),
        route=Route("ops", group_wait=0, group_interval=2 * SECOND, repeat_interval=86400 * SECOND),
        receivers={
            "ops": (Destination("ops", 0, service="json"), Destination("ops", 1, service="slack")),
            "night": (Destination("night", 0, send_resolved=False, service="mailto"),),
        },
        silence_documents=frozenset({"default"}),
        longest_silence=12 * 3600 * SECOND,
        places={"default": "zookeeper zk:2181/ /flink/default"},
        evidence=frozenset({Source.FLINK_REST}),
        lacks=LACKS,
    )


def test_the_command_line_and_the_environment_win(full: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Command line over environment over file, for everything that both can say."""
    monkeypatch.setenv("FLINK_HA_SIDECAR_OBSERVER", "env")
    monkeypatch.setenv("FLINK_HA_SIDECAR_STATE_DIR", "/env/state")
    monkeypatch.setenv("FLINK_HA_SIDECAR_SPOOL", "/env/spool")
    settings = load(full, {"observer": "line", "state_dir": None, "spool": "rel"})
    assert settings.observer == "line"
    assert settings.state_dir == Path("/env/state")
    assert settings.spool.place == Path.cwd() / "rel"


def test_variables_of_a_kubernetes_service_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service called flink-ha-sidecar puts variables with our prefix into every pod beside it."""
    monkeypatch.setenv("FLINK_HA_SIDECAR_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("FLINK_HA_SIDECAR_PORT", "tcp://10.0.0.1:9250")
    assert load(None, {"zookeeper": "zk"}).http.port == 9250


def test_no_rules_is_a_decision_too(write: Write) -> None:
    """An empty list of rules turns alerts off; rules of one's own take the place of the shipped ones."""
    assert load(write("rules: []\n"), {"zookeeper": "zk"}).rules == ()
    assert load(write("rules: [{alert: A, on: vacant}]\n"), {"zookeeper": "zk"}).rules == (Rule("A", Trigger.VACANT),)


def test_the_shipped_rules_are_found_in_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed wheel has them inside the package; without them the line says so."""
    monkeypatch.setattr("sidecar.settings.alerting.alerting.files", lambda _: tmp_path)
    (tmp_path / "default_rules").mkdir()
    (tmp_path / "default_rules" / "default.yaml").write_text("rules: [{alert: Inside, on: vacant}]\n")
    assert load(None, {"zookeeper": "zk"}).rules == (Rule("Inside", Trigger.VACANT),)


def test_a_dollar_sign_is_kept_unless_it_begins_a_variable(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords may hold dollar signs; `$${` is a plain `${`; what a variable holds is not looked into again."""
    monkeypatch.setenv("RECURSIVE", "${NOT_SET}")
    config = write("""receivers: [{name: a, urls: ['json://u:a$b$$c$${X}@h', '${RECURSIVE}']}]""")
    assert apprise_urls(load(config, {"zookeeper": "zk"})) == {"a#0": "json://u:a$b$$c${X}@h", "a#1": "${NOT_SET}"}


def test_a_secret_shows_itself_to_nobody(full: Path) -> None:
    """Neither as text, nor inside the settings, nor by an encoder; the policy holds none."""
    settings = load(full, {})
    (endpoint, *_) = settings.receivers[0].endpoints
    assert isinstance(endpoint, AppriseUrl)
    secret = endpoint.url
    assert (str(secret), repr(secret), f"{secret}", f"{secret!r:>10}") == (
        "<secret>",
        "<secret>",
        "<secret>",
        "  <secret>",
    )
    for shown in (repr(settings), str(settings.receivers), repr(settings.policy())):
        assert "t0ken" not in shown
        assert "slack://" not in shown
    with pytest.raises((TypeError, NotImplementedError)):
        msgspec.json.encode(settings)


def test_a_spool_may_be_in_an_object_store(write: Write) -> None:
    """Its URL stays as it was written."""
    for url in (
        "s3://bucket/spool",
        "gs://bucket",
        "az://container/a/b",
        "abfss://container@account.dfs.core.windows.net/spool",
    ):
        assert load(write(f"spool: {{url: '{url}'}}\n"), {"zookeeper": "zk"}).spool.place == url


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://AKID:t0ken@bucket/spool", "must hold no user and no password: credentials come from the environment"),
        ("s3://t0ken@bucket/spool", "must hold no user and no password: credentials come from the environment"),
        (
            "abfss://me:t0ken@account.dfs.core.windows.net/x",
            "must hold no user and no password: credentials come from the environment",
        ),
        (
            "az://container/x?sig=t0ken",
            "must end with its path, without ? and #: credentials and options come from the environment",
        ),
        (
            "gs://bucket/x#t0ken",
            "must end with its path, without ? and #: credentials and options come from the environment",
        ),
        ("s3:///t0ken", "names no bucket: give one like s3://bucket/prefix"),
        ("s3://[t0ken", "is not a URL"),
        (
            "https://t0ken.example/x",
            "must be a folder on this machine, file:///…, or begin with one of s3, s3a, gs, az, abfs, abfss and ://",
        ),
    ],
)
def test_a_spool_that_cannot_be_used_is_not_shown(write: Write, url: str, problem: str) -> None:
    """One line, without the URL: what is wrong with it may be a secret."""
    config = write(f"spool: {{url: '{url}'}}\n")
    with pytest.raises(SettingsError) as error:
        load(config, {"zookeeper": "zk"})
    assert str(error.value) == f"{config}:1: spool.url: {problem}"


def test_the_own_pod_is_known_by_what_its_manifest_sets(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name and address; the uid where it is set."""
    config = write("zookeeper: {quorum: zk}\n")
    assert load(config, {}).own_pod is None
    monkeypatch.setenv("POD_NAME", "jm-0")
    assert load(config, {}).own_pod is None
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    assert load(config, {}).own_pod == OwnPod("jm-0", "10.1.2.3")
    monkeypatch.setenv("POD_UID", "3b1c")
    assert load(config, {}).own_pod == OwnPod("jm-0", "10.1.2.3", "3b1c")
    monkeypatch.setenv("POD_IP", "jm-0.flink.svc")
    with pytest.raises(SettingsError) as error:
        load(config, {})
    assert str(error.value) == (
        'POD_IP: "jm-0.flink.svc" is not an IP address: set it from the field status.podIP, or not at all'
    )
