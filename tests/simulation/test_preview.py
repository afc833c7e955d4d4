"""`alert preview`: what a recorded failover would look like at each receiver, as it would be sent, and without a secret."""

import json
from pathlib import Path

import pytest
from msgspec import json as msgspec_json

from tests.kit.core_sidecar import Sidecar
from tests.kit.sidecar_process import command
from tests.shell.remembering import remember, two_failovers

SECRET = "s3cretT0ken"
CONFIG = f"""\
zookeeper: {{quorum: 'zk:2181'}}
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


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sidecar]:
    """The folder of a sidecar that saw two failovers, of which one is over: its configuration and its journal."""
    folder, sidecar = tmp_path_factory.mktemp("sidecar"), two_failovers()
    remember(folder / "state", sidecar)
    (folder / "config.yaml").write_text(CONFIG + f"state_dir: {folder / 'state'}\n")
    return folder, sidecar


def preview(folder: Path, *arguments: str) -> list[dict[str, object]]:
    """What it prints as JSON."""
    ended = command("alert", "preview", "--config", str(folder / "config.yaml"), "--output", "json", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert SECRET not in ended.stdout
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.covers("command:alert preview")
def test_each_destination_gets_its_payload(remembered: tuple[Path, Sidecar]) -> None:
    """Title and text are those of the message, with the link of this configuration; an Alertmanager gets alerts."""
    folder, sidecar = remembered
    messages = preview(folder)
    first = {message["destination"]: message for message in messages if message["reason"] == "FIRST"}
    assert {name: message["payload"] for name, message in first.items()} == {
        "am#0": "alerts for an Alertmanager's API, version 2",
        "hook#0": "slack:// through Apprise",
        "hook#1": "Alertmanager's webhook payload, version 4",
    }
    episode = sidecar.episodes()[0]
    for message in first.values():
        assert message["link"] == f"http://page/episodes/{episode.id}"
        assert str(message["title"]).startswith("[UNCHECKED] default: jm-b leads")
        assert "The JobManager's ZooKeeper session expired" in str(message["body"])
    assert len({message["key"] for message in messages if str(message["destination"]).startswith("hook")}) == 1
    alerts = first["am#0"]["alerts"]
    assert isinstance(alerts, list)
    assert [alert["labels"]["alertname"] for alert in alerts] == ["FlinkLeaderChanged"] * 3
    assert not first["hook#0"]["alerts"]


def test_it_reads_as_text(remembered: tuple[Path, Sidecar]) -> None:
    """A block for each message."""
    folder, _ = remembered
    ended = command("alert", "preview", "--config", str(folder / "config.yaml"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert SECRET not in ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[0] == "am#0: alerts for an Alertmanager's API, version 2"
    assert any(line.startswith("  alert   firing {alertname=") for line in lines)
    assert "hook#0: slack:// through Apprise" in lines
    assert any(line.startswith("  title   [UNCHECKED] default") for line in lines)


def test_a_failover_is_named_by_its_id_or_read_from_files(remembered: tuple[Path, Sidecar], tmp_path: Path) -> None:
    """The first characters of the id are enough; segments of the spool are as good as the journal."""
    folder, sidecar = remembered
    by_id = preview(folder, "--episode", sidecar.episodes()[0].id[:8])
    assert by_id == preview(folder)
    segment = tmp_path / "records.jsonl"
    segment.write_bytes(b"".join(msgspec_json.encode(record) + b"\n" for record in sidecar.records))
    assert preview(folder, str(segment)) == by_id


def test_what_is_not_there_is_one_line(remembered: tuple[Path, Sidecar], tmp_path: Path) -> None:
    """An unknown failover, and a sidecar that has seen none."""
    folder, _ = remembered
    config = str(folder / "config.yaml")
    unknown = command("alert", "preview", "--config", config, "--episode", "nope")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == ("flink-ha-sidecar: no failover begins with 'nope': `episodes` lists them\n")
    remember(tmp_path / "state", two_failovers(), [])
    empty = command("alert", "preview", "--config", config, "--state-dir", str(tmp_path / "state"))
    assert (empty.returncode, empty.stdout) == (1, "")
    assert empty.stderr.count("\n") == 1
