"""`status`, `alerts`, `episodes`, `explain last` and `timeline` about a failover and a vacancy, and the sidecar that observed them."""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests import ROOT
from tests.kit.cluster import JOB
from tests.kit.commands_scene import SECRET, Scene, played
from tests.kit.serving import serving
from tests.kit.sidecar_process import COMMAND, command
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

TRANSCRIPTS = re.findall(
    r"^\$ flink-ha-sidecar (.*)\n((?:(?!\$ |```).*\n)*)",
    (ROOT / "docs" / "reference" / "commands.md").read_text(),
    re.MULTILINE,
)
_CHANGING = (
    (r"/\S*sidecar\.yaml", "sidecar.yaml"),
    (r"127\.0\.0\.1:\d+|zk-1:2181", "ADDRESS"),
    (r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{8}\b", "ID"),
    (r"\d+(\.\d+)? (s|min|h|d)\b( \d+ (s|min|h)\b)*", "AGE"),
)


def words(text: str) -> set[str]:
    """The words of an output, without what differs each time."""
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return set(text.split())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, flink_2_home: Path, java: Path) -> Iterator[Scene]:
    """One for all tests here."""
    folder = tmp_path_factory.mktemp("commands")
    with (
        serving(ZooKeeper(folder / "zookeeper", flink_2_home, java)) as server,
        played(folder / "sidecar", server) as it,
    ):
        yield it


def printed(*arguments: str, status: int = 0) -> str:
    """What a command prints, all in 80 columns unless it is wide or data."""
    ended = command(*arguments)
    assert (ended.returncode, ended.stderr) == (status, "")
    if "-o" not in arguments:
        assert max(map(len, ended.stdout.splitlines())) <= 80, ended.stdout
    return ended.stdout


def revoked(scene: Scene) -> dict[str, str]:
    """When the sidecar observed that each component of `payments` lost its leader."""
    transitions = (transition for transition in scene.sidecar.transitions() if transition["cluster_id"] == "payments")
    return {each["component"]: each["observed_at"] for each in transitions if each["kind"] == "REVOKED"}


@pytest.mark.covers("command:status")
def test_status_has_every_cluster_and_the_worst_first(scene: Scene) -> None:
    """Who leads, since when, and what fires; a vacancy is as old as the sidecar knows it to be, and the exit status is 1."""
    lines = printed("status", "--config", scene.config, status=1).splitlines()
    assert lines[0].startswith("[DOWN] payments: no leader for ")
    vacant = revoked(scene)["dispatcher"][:19].replace("T", " ")
    assert any(line.split()[:4] == ["dispatcher", "no", "leader", vacant.split()[0]] for line in lines)
    assert any(line.startswith("  FlinkNoLeader (critical) firing: ") for line in lines)
    assert "[UNCHECKED] orders: jm-b leads; whether jobs run is not known (no REST)" in lines
    assert any(line.split()[:2] == ["dispatcher", "jm-b:6123"] for line in lines)
    status = json.loads(printed("status", "--config", scene.config, "-o", "json", status=1))
    payments, orders = status["clusters"]
    assert {leader["component"]: leader["since"] for leader in payments["leaders"]} == revoked(scene)
    assert {alert["alert"] for alert in payments["alerts"]} == {"FlinkNoLeader"}
    assert [leader["state"] for leader in orders["leaders"]] == ["held"] * 4
    assert status["journal"]["running"]
    assert {leader["since"] for leader in orders["leaders"]} == written(scene)


def written(scene: Scene) -> set[str]:
    """ZooKeeper's own times of what the leader of `orders` wrote."""
    transitions = (transition for transition in scene.sidecar.transitions() if transition["cluster_id"] == "orders")
    return {each["written_at"] for each in transitions if each["kind"] == "GRANTED"}


def test_the_log_is_json_and_warns_of_failed_deliveries(scene: Scene) -> None:
    """An object a line; the warning names the receiver, and has no part of its URL."""
    text = scene.sidecar.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {frozenset(line) for line in lines} == {frozenset({"at", "level", "logger", "message"})}
    failed = [line["message"] for line in lines if line["level"] == "WARNING" and "ops#1" in line["message"]]
    assert any(": failed (attempt 1)" in line for line in failed), text
    assert not any("ops#0" in line["message"] for line in lines if line["level"] != "INFO")
    assert SECRET not in text


@pytest.mark.covers("command:alerts")
def test_yaml_is_the_same_as_json(scene: Scene) -> None:
    """Of what does not change with time."""
    yaml = YAML(typ="safe").load(printed("alerts", "--config", scene.config, "-o", "yaml"))
    assert yaml == json.loads(printed("alerts", "--config", scene.config, "-o", "json"))
    assert [each["state"] for each in yaml] == ["firing"] * 4


def test_wide_is_not_shortened(scene: Scene) -> None:
    """Whole ids, and more columns."""
    wide = printed("status", "--config", scene.config, "-o", "wide", status=1)
    assert "STANDBYS  SESSION" in wide
    assert JOB in wide


def test_status_without_a_journal_says_what_it_cannot_know(scene: Scene, tmp_path: Path) -> None:
    """A vacancy began before it was looked at; alerts are not known."""
    out = printed("status", "--config", scene.config, "--state-dir", str(tmp_path), status=1)
    assert re.search(r"^  dispatcher +no leader +before 20\S+ \S+Z +> \d+ s$", out, re.MULTILINE), out
    assert "Alerts are not known: there is no journal in" in out


def test_the_exit_status_tells_led_from_vacant_and_blind(scene: Scene, tmp_path: Path) -> None:
    """0, 1 and 3; 2 is a wrong configuration, as for every command."""

    def status(cluster: str, *more: str) -> int:
        file = tmp_path / "one.yaml"
        file.write_text(f"zookeeper: {{{cluster}}}\nstate_dir: {tmp_path}\n")
        return command("status", "--config", str(file), "--timeout", "2s", *more).returncode

    address = scene.zookeeper.address
    assert status(f"quorum: '{address}', cluster_id: orders") == 0
    assert status(f"quorum: '{address}', cluster_id: payments") == 1
    assert status(f"quorum: '{address}', cluster_id: nothing-here") == 3
    assert status("quorum: '127.0.0.1:1'") == 3
    assert status("quorum: '300.1.1.1:2181'") == 2
    assert status(f"quorum: '{address}', clusters: all") == 1


def test_clusters_that_are_found_have_a_status(scene: Scene, tmp_path: Path) -> None:
    """Each below the root, without being named."""
    file = tmp_path / "all.yaml"
    file.write_text(f"zookeeper: {{quorum: '{scene.zookeeper.address}', clusters: all}}\nstate_dir: {tmp_path}\n")
    status = json.loads(printed("status", "--config", str(file), "-o", "json", status=1))
    assert {cluster["cluster_id"] for cluster in status["clusters"]} == {"orders", "payments", "spare"}


def test_status_needs_no_secret_of_receivers(scene: Scene, tmp_path: Path) -> None:
    """It sends nothing, so a variable that is set in the pod alone is not asked for."""
    file = tmp_path / "one.yaml"
    place = f"zookeeper: {{quorum: '{scene.zookeeper.address}', cluster_id: orders}}"
    file.write_text(f"{place}\nstate_dir: {tmp_path}\nreceivers: [{{name: ops, urls: ['${{NOT_SET_HERE}}']}}]\n")
    printed("status", "--config", str(file))


def test_status_watch_prints_what_changes(scene: Scene, tmp_path: Path) -> None:
    """One object a line, the next one when something has changed; SIGTERM is a clean end."""
    given = ["--zookeeper", scene.zookeeper.address, "--cluster-id", "spare", "--state-dir", str(tmp_path)]
    watching = subprocess.Popen(
        [*COMMAND, "status", "--watch", "-o", "json", *given], stdout=subprocess.PIPE, text=True
    )
    assert watching.stdout is not None
    with watching.stdout as out:
        first = json.loads(out.readline())
        assert first["status"] == "UNCHECKED"
        scene.spare.kill()
        while (now := json.loads(out.readline()))["status"] != "DOWN":
            pass
        while any(leader["since"] is None for leader in now["clusters"][0]["leaders"]):
            now = json.loads(out.readline())  # it was seen to begin
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(timeout=30) == 0


@pytest.mark.covers("command:silence add", "command:silence list", "command:silence expire")
def test_alerts_that_are_silenced_say_by_whom(scene: Scene) -> None:
    """And why; a silence that is expired hides nothing any more."""
    matched = ["--matcher", 'cluster_id="payments"', "--duration", "1h", "--comment", "upgrade", "--author", "ann"]
    name = printed("silence", "add", *matched, "--config", scene.config, "-o", "json")

    def states() -> set[str]:
        return {each["state"] for each in json.loads(printed("alerts", "--config", scene.config, "-o", "json"))}

    wait_for("the silence to be known", lambda: states() == {"silenced"})
    out = printed("alerts", "--config", scene.config)
    assert "FlinkNoLeader of payments: silenced by ann until" in out
    printed("silence", "list", "--config", scene.config)
    silence: dict[str, Any] = json.loads(name)
    printed("silence", "expire", silence["id"], "--config", scene.config)
    wait_for("its end to be known", lambda: states() == {"firing"})


@pytest.mark.covers("command:episodes")
def test_episodes_are_listed_the_newest_first(scene: Scene) -> None:
    """One in progress before all others."""
    lines = printed("episodes", "--config", scene.config).splitlines()
    assert [line.split()[1] for line in lines] == ["CLUSTER", "payments", "orders"]
    assert "no leader" in lines[1]
    found = json.loads(printed("episodes", "--config", scene.config, "-o", "json", "--last", "1"))
    assert [(each["cluster_id"], each["phase"]) for each in found] == [("payments", "OPEN")]


@pytest.mark.covers("command:explain")
def test_explain_last_is_the_newest_one(scene: Scene) -> None:
    """Without its id."""
    lines = command("explain", "last", "--config", scene.config).stdout.splitlines()
    assert lines[1] == "cluster    payments"


@pytest.mark.covers("command:timeline")
def test_the_timeline_has_what_is_asked_for(scene: Scene) -> None:
    """By component, by kind, and since a moment."""

    def records(*arguments: str) -> list[dict[str, Any]]:
        out = printed("timeline", "--config", scene.config, "-o", "json", *arguments)
        return [json.loads(line) for line in out.splitlines()]

    everything = records("--since", "1d")
    assert [each["observed_at"] for each in everything[:3]] == [
        record["observed_at"] for record in scene.sidecar.records()[:3]
    ]
    assert {record["kind"] for record in records("--kind", "revoked")} == {"REVOKED"}
    assert {record["type"] for record in records("--kind", "episode", "--kind", "notification")} == {
        "episode",
        "notification",
    }
    assert {record["component"] for record in records("--kind", "transition", "--component", "dispatcher")} == {
        "dispatcher"
    }
    last = everything[-1]["observed_at"]
    assert all(record["observed_at"] >= last for record in records("--since", last))
    assert records("--since", "2099-01-01") == []


@pytest.mark.parametrize(("line", "shown"), TRANSCRIPTS, ids=[line for line, _ in TRANSCRIPTS])
def test_the_transcripts_are_true(scene: Scene, line: str, shown: str) -> None:
    """docs/reference/commands.md shows what each command prints of this scene, apart from times, ages, ids and addresses."""
    given = line.replace("sidecar.yaml", scene.config).replace("zk-1:2181", scene.zookeeper.address)
    ended = command(*shlex.split(given))
    assert words(ended.stdout + ended.stderr) == words(shown)


@pytest.mark.covers("command:annotate")
def test_the_timeline_goes_on(scene: Scene) -> None:
    """With each record as it is written."""
    given = ["--config", scene.config, "--follow", "--last", "1", "--kind", "annotation", "-o", "json"]
    following = subprocess.Popen([*COMMAND, "timeline", *given], stdout=subprocess.PIPE, text=True)
    assert following.stdout is not None
    with following.stdout as out:
        for reason in ("first", "second"):
            printed("annotate", "last", "--reason", reason, "--config", scene.config)
        assert [json.loads(out.readline())["reason"] for _ in range(2)][-1] == "second"
        following.send_signal(signal.SIGTERM)
        assert following.wait(timeout=30) == 0
