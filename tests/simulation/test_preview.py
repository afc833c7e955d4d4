"""`alert preview`: what a failover would look like at each receiver, as it would be sent, and without a secret."""

import json
from pathlib import Path

import pytest

from tests.kit.sidecar_process import command

SECRET = "s3cretT0ken"
CONFIG = f"""\
zookeeper: {{quorum: 'zk:2181', cluster_id: shop}}
observer: sidecar-0
external_labels: {{env: prod}}
http: {{external_url: 'http://page'}}
route:
  receiver: ops
  routes:
  - {{receiver: am, matchers: [], continue: true}}
  - {{receiver: hook, matchers: []}}
receivers:
- {{name: ops, urls: ['json://unused']}}
- {{name: am, alertmanager: {{url: 'http://am/{SECRET}', bearer_token: {SECRET}}}}}
- name: hook
  urls: ['slack://{SECRET}/{SECRET}/{SECRET}/']
  webhook: {{url: 'https://hook/{SECRET}'}}
"""


def preview(folder: Path, config: str = CONFIG) -> list[dict[str, object]]:
    """What it prints as JSON."""
    (folder / "config.yaml").write_text(config)
    ended = command("alert", "preview", "--config", str(folder / "config.yaml"), "--output", "json")
    assert ended.returncode == 0
    assert SECRET not in ended.stdout
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.covers("command:alert preview")
def test_each_destination_gets_its_payload(tmp_path: Path) -> None:
    """Title and text are those of the message, with the link of this configuration; an Alertmanager gets alerts."""
    messages = preview(tmp_path)
    assert {message["destination"]: message["payload"] for message in messages} == {
        "am#0": "alerts for an Alertmanager's API, version 2",
        "hook#0": "slack:// through Apprise",
        "hook#1": "Alertmanager's webhook payload, version 4",
    }
    titles = [str(message["title"]).partition(":")[0] for message in messages if message["destination"] == "hook#1"]
    assert titles == ["[DOWN] shop", "[RECOVERING] shop", "[OK] shop"]
    assert all(str(message["link"]).startswith("http://page/episodes/") for message in messages)
    alerts = next(message for message in messages if message["destination"] == "am#0")["alerts"]
    assert isinstance(alerts, list)
    assert {alert["labels"]["alertname"] for alert in alerts} == {"FlinkNoLeader"}


def test_a_cluster_that_is_not_asked_is_shown_as_unchecked(tmp_path: Path) -> None:
    """Without the REST server nobody can say that jobs run, in the preview neither."""
    messages = preview(tmp_path, CONFIG + "evidence: {flink_rest: never}\n")
    assert str(messages[-1]["title"]).startswith("[UNCHECKED] shop: jm-b leads")


def test_it_reads_as_text(tmp_path: Path) -> None:
    """A block for each message."""
    (tmp_path / "config.yaml").write_text(CONFIG)
    ended = command("alert", "preview", "--config", str(tmp_path / "config.yaml"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert SECRET not in ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[0] == "am#0: alerts for an Alertmanager's API, version 2"
    assert any(line.startswith("  alert   firing {alertname=") for line in lines)
    assert "hook#0: slack:// through Apprise" in lines
    assert any(line.startswith("  title   [DOWN] shop: no leader") for line in lines)


def test_a_configuration_that_notifies_nobody_of_it_says_so(tmp_path: Path) -> None:
    """One line, on stderr."""
    (tmp_path / "config.yaml").write_text("zookeeper: {quorum: 'zk:2181', cluster_id: shop}\n")
    ended = command("alert", "preview", "--config", str(tmp_path / "config.yaml"))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "flink-ha-sidecar: no receiver gets a message about this failover\n"
