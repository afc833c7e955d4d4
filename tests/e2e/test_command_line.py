"""Bad input is one clear line and exit status 2; trouble at run time is logged, survived, and visible."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from kazoo.client import KazooClient

from sidecar.core.errors import installing
from sidecar.core.flink.leadership import LeaderInformation
from tests.kit.cluster import DISPATCHER, RESOURCE_MANAGER, REST_SERVER, A
from tests.kit.fake_flink import Flink
from tests.kit.sidecar_process import COMMAND, Sidecar, command
from tests.kit.waiting import wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

SECRET = "xoxb-very-secret"
_ELSEWHERE = {"FLINK_CONF_DIR": "", "FLINK_HA_SIDECAR_ZOOKEEPER": ""}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("zookeper: {quorum: 'a:1'}\n", ["zookeper", "zookeeper"]),
        ("observer: a\nobserver: b\n", ["observer", "twice"]),
        ("zookeeper: {quorum: 'a:1'}\nreceivers: [{name: ops, urls: ['${NOT_SET_ANYWHERE}']}]\n", ["NOT_SET_ANYWHERE"]),
        (f"zookeeper: {{quorum: 'a:1'}}\nreceivers: [{{name: ops, urls: ['nonsense://{SECRET}@host/x']}}]\n", ["ops"]),
        ("flink_conf_dir: /no/such/folder\n", ["/no/such/folder"]),
    ],
    ids=["unknown key", "duplicate key", "unset variable", "unknown scheme", "no such Flink conf dir"],
)
@pytest.mark.parametrize("verb", [["config", "check"], ["run"]], ids=["config check", "run"])
def test_a_bad_configuration_is_one_line(config: str, words: list[str], verb: list[str], tmp_path: Path) -> None:
    """It names what is wrong, holds no secret and no traceback; the status is 2."""
    file = tmp_path / "sidecar.yaml"
    file.write_text(config)
    ended = command(*verb, "--config", str(file), environment=_ELSEWHERE)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert all(word in line for word in words), line
    assert SECRET not in ended.stderr + ended.stdout


def test_a_cluster_without_ha_has_no_leader_to_watch(tmp_path: Path) -> None:
    """`high-availability: NONE` is reported, not watched."""
    (tmp_path / "flink-conf.yaml").write_text("high-availability: NONE\n")
    ended = command("who", "--flink-conf", str(tmp_path))
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "high-availability" in ended.stderr


def test_wrong_usage_is_one_line() -> None:
    """An unknown option names the command's help."""
    ended = command("watch", "--zokeeper", "a:1")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "--help" in ended.stderr


def test_without_a_command_the_help_is_the_answer() -> None:
    """Every command with what it is for, none cut short."""
    ended = command()
    assert ended.returncode == 2
    assert "Usage: flink-ha-sidecar" in ended.stderr
    assert "..." not in ended.stderr.partition("Commands:")[2]


def test_what_an_extra_brings_is_named_where_it_is_missing(tmp_path: Path) -> None:
    """`audit sql` without its extra says what to install."""
    without = "import sys; sys.modules['pyspark'] = None; from sidecar.cli.main import main; main()"
    arguments = ("audit", "sql", "--audit", str(tmp_path), "SELECT 1")
    ended = subprocess.run(
        [sys.executable, "-c", without, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.endswith(f"; install it with: {installing('audit')}\n")


@pytest.fixture
def leader(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """A client that leads as the dispatcher."""
    with connected(zookeeper.address) as client:
        lead(client, term=1)
        yield client


def lead(client: KazooClient, term: int) -> None:
    """The dispatcher of this term publishes itself, and what the one before had published is gone."""
    flink = Flink(ZNodes(writer=ZooKeeperWriter(client)))
    flink.vacate(DISPATCHER)
    leader = LeaderInformation(f"pekko.tcp://flink@jm-{term}:6123/user/rpc/dispatcher_1", UUID(int=term))
    flink.publish(DISPATCHER, leader)


@pytest.mark.covers("command:who")
def test_who_tells_who_leads(zookeeper: ZooKeeper, leader: KazooClient) -> None:
    """As text for people below the cluster's status, as one object a line for scripts; its exit status is that of the status."""
    text = command("who", "--zookeeper", zookeeper.address)
    assert text.returncode == 1, text.stderr
    said, header, *lines = text.stdout.splitlines()
    status = command("status", "--zookeeper", zookeeper.address)
    assert text.returncode == status.returncode
    for line in (said, status.stdout.splitlines()[0]):
        assert line.startswith("[DOWN] default: no leader of resource_manager, rest_server")
    assert header.split() == ["COMPONENT", "STATE", "LEADER", "SINCE", "CONTENDERS"]
    assert [line.split()[:2] for line in lines] == [
        ["dispatcher", "held"],
        ["resource_manager", "vacant"],
        ["rest_server", "vacant"],
    ]
    leaders = [
        json.loads(line)
        for line in command("who", "--zookeeper", zookeeper.address, "--output", "json").stdout.splitlines()
    ]
    assert leaders[0]["leader_address"] == "pekko.tcp://flink@jm-1:6123/user/rpc/dispatcher_1"
    assert leaders[0]["leader_session_id"] == "00000000-0000-0000-0000-000000000001"
    assert leaders[0]["since"] is not None
    assert [leader["since"] for leader in leaders[1:]] == [None, None]  # a vacancy that was there before anybody looked
    assert [line.split()[4] for line in lines[1:]] == ["before"] * 2
    Flink(ZNodes(writer=ZooKeeperWriter(leader))).elect(A, RESOURCE_MANAGER, REST_SERVER)
    led = command("who", "--zookeeper", zookeeper.address)
    assert led.stdout.splitlines()[0] == "[UNCHECKED] default: jm-1 leads; whether jobs run is not known (no REST)"
    assert led.returncode == 0


def test_who_says_when_it_cannot_see() -> None:
    """No answer from ZooKeeper is an error, not an empty list; the status is 3, as that of `status`: 1 means that there is no leader."""
    ended = command("who", "--zookeeper", "127.0.0.1:1", "--timeout", "1s")
    assert ended.returncode == 3
    assert len([line for line in ended.stderr.splitlines() if line.startswith("flink-ha-sidecar:")]) == 1
    assert ended.stdout == ""


def test_who_says_when_a_leader_cannot_be_read(zookeeper: ZooKeeper, leader: KazooClient) -> None:
    """Bytes that are no leader's are neither a leader nor a vacancy: 3, while every other component is led."""
    Flink(ZNodes(writer=ZooKeeperWriter(leader))).elect(A, RESOURCE_MANAGER, REST_SERVER)
    leader.set("/flink/default/leader/dispatcher/connection_info", b"?")
    ended = command("who", "--zookeeper", zookeeper.address)
    assert ended.returncode == 3, ended.stdout
    assert "unknown" in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", [("who",), ("status",), ("ha", "check")])
def test_an_interrupted_command_cannot_tell(verb: tuple[str, ...], number: signal.Signals, tmp_path: Path) -> None:
    """It has read nothing, so its status is not that of a cluster with leaders."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        place = ["--zookeeper", address, *(["--timeout", "60s"] if verb != ("ha", "check") else [])]
        # A shell's job in the background ignores SIGINT, and so would its children.
        line = ["/usr/bin/env", "--default-signal=INT", *COMMAND, *verb, *place]
        asking = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        silent.accept()[0].close()  # it has begun to read
        asking.send_signal(number)
        _, complaint = asking.communicate(timeout=60)
    assert asking.returncode == 3
    assert complaint.splitlines()[-1] == "flink-ha-sidecar: interrupted before everything was read"


@pytest.mark.parametrize("verb", ["who", "status"])
def test_a_timeout_is_a_duration(verb: str) -> None:
    """As every time of the configuration: it has a unit."""
    ended = command(verb, "--zookeeper", "127.0.0.1:1", "--timeout", "5")
    written = 'write it like "10s", "1h30m" or "250ms"'
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f'flink-ha-sidecar: --timeout: "5" is not a duration: {written}\n'


def test_who_says_when_there_is_no_such_cluster(zookeeper: ZooKeeper, leader: KazooClient) -> None:
    """A misspelled id is an error that names the clusters that exist, not a cluster without leaders."""
    leader.ensure_path("/flink/payments")
    ended = command("who", "--zookeeper", zookeeper.address, "--cluster-id", "/paymets")
    assert (ended.returncode, ended.stdout) == (3, "")
    nothing = f"no such cluster: nothing was ever found under {zookeeper.address}/flink/paymets in ZooKeeper"
    beside = re.fullmatch(
        rf"flink-ha-sidecar: {re.escape(nothing)}; clusters found beside it: (.*)\. "
        "Check the id, and that a JobManager runs",
        ended.stderr.splitlines()[-1],
    )
    assert beside
    assert "payments" in beside[1].split(", ")


@pytest.mark.parametrize("view", ["transitions", "flink"])
@pytest.mark.covers("command:watch")
def test_watch_prints_each_change_at_once_and_ends_with_0(zookeeper: ZooKeeper, leader: KazooClient, view: str) -> None:
    """One JSON object a line, flushed; SIGTERM is a clean end."""
    watching = subprocess.Popen(
        [*COMMAND, "watch", "--view", view, "--output", "json", "--zookeeper", zookeeper.address],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    with watching.stdout:

        def next_of_dispatcher() -> dict[str, object]:
            assert watching.stdout is not None
            while (record := json.loads(watching.stdout.readline()))["component"] != "dispatcher":
                pass
            return dict(record)

        session = "leader_session_id" if view == "flink" else "after_session_id"
        assert next_of_dispatcher()[session] == "00000000-0000-0000-0000-000000000001"
        lead(leader, term=2)
        while (now := next_of_dispatcher()[session]) is None:
            pass
        assert now == "00000000-0000-0000-0000-000000000002"
        os.kill(watching.pid, signal.SIGTERM)
        assert watching.wait(timeout=15) == 0


@pytest.mark.covers("command:run")
def test_a_zookeeper_that_is_not_there_yet(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """The sidecar keeps trying, says so, is alive and not ready; and ready once ZooKeeper is there."""
    address = zookeeper.address
    zookeeper.kill()
    sidecar = Sidecar(tmp_path, f"zookeeper: {{quorum: '{address}'}}", [])
    sidecar.start()
    try:
        wait_for("an answer", lambda: sidecar.get("/readyz")[0] == 503)
        assert sidecar.get("/livez") == (200, "ok\n")
        wait_for("a word about it", lambda: address in sidecar.log.read_text())
        zookeeper.start()
        sidecar.wait_ready(30)
    finally:
        status = sidecar.stop()
    assert status == 0
    assert "Traceback" not in sidecar.log.read_text()


def test_a_state_folder_that_cannot_be_written_does_not_keep_alerts_back(
    zookeeper: ZooKeeper, leader: KazooClient, tmp_path: Path
) -> None:
    """It is logged, it is a metric, and the alert goes out."""
    receiver = HttpReceiver()
    receiver.start()
    sidecar = Sidecar(tmp_path, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [receiver.url], group_wait="100ms")
    sidecar.state.touch()  # a file where the folder should be: unwritable for root too
    sidecar.start()
    try:
        sidecar.wait_ready()
        lead(leader, term=2)
        wait_for("the alert", lambda: receiver.received)
        assert "flink_ha_journal_up 0.0" in sidecar.get("/metrics")[1]
        assert str(sidecar.state) in sidecar.log.read_text()
        sidecar.state.unlink()
        wait_for("the journal to heal", lambda: "flink_ha_journal_up 1.0" in sidecar.get("/metrics")[1])
    finally:
        status = sidecar.stop()
        receiver.stop()
    assert status == 0
    kinds = [t["kind"] for t in sidecar.transitions() if t["component"] == "dispatcher"]
    assert kinds[0] == "DISCOVERED"
    assert sidecar.transitions()[-1]["after_session_id"] == "00000000-0000-0000-0000-000000000002"
