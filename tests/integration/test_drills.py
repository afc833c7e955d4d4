"""Drills on a real ZooKeeper, with two sidecars: one message, nothing of the drilled cluster, everything of another one."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar, command
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

SESSION_SECONDS = 7.0
"""The session timeout of 4 s, and what a server takes to notice its end: a loss after that began after the drill was read."""


@pytest.fixture
def clusters(shared_zookeeper: ZooKeeper) -> Iterator[tuple[Leaders, Leaders]]:
    """Two clusters in one ZooKeeper: that of the drill, and another one."""
    names = (f"drilled-{uuid4()}", f"other-{uuid4()}")
    running = [Leaders(shared_zookeeper.address, name) for name in names]
    for cluster in running:
        cluster.start()
    yield running[0], running[1]
    for cluster in running:
        cluster.stop()


@pytest.fixture
def sidecars(
    clusters: tuple[Leaders, Leaders], shared_zookeeper: ZooKeeper, people: HttpReceiver, tmp_path: Path
) -> Iterator[list[Sidecar]]:
    """Two that watch both clusters."""
    places = "\n".join(
        f"  - flink_conf_dir: {conf_dir(tmp_path / cluster.cluster_id, shared_zookeeper.address, cluster.cluster_id)}"
        for cluster in clusters
    )
    waits = {"group_wait": "1s", "group_interval": "2s"}
    rules = "rules: [{alert: Changed, on: leader_changed}, {alert: NoLeader, on: vacant, for: 1s, severity: critical}]"
    running = [
        Sidecar(tmp_path / name, f"clusters:\n{places}\n{rules}", [people.url], observer=name, **waits) for name in "ab"
    ]
    for sidecar in running:
        sidecar.start()
    for sidecar in running:
        sidecar.wait_ready()
    yield running
    for sidecar in running:
        sidecar.stop()


def conf_dir(folder: Path, quorum: str, cluster_id: str) -> Path:
    """Flink's configuration, which says how late its session may end."""
    folder.mkdir()
    (folder / "config.yaml").write_text(f"""\
high-availability:
  type: zookeeper
  storageDir: s3://bucket/ha
  cluster-id: /{cluster_id}
  zookeeper: {{quorum: "{quorum}", client: {{session-timeout: 4 s}}}}
""")
    return folder


def drill(sidecar: Sidecar, verb: str, *arguments: str, status: int = 0) -> str:
    """What the command prints."""
    ended = command("drill", verb, "--config", str(sidecar.config), *arguments)
    assert (ended.returncode, ended.stderr) == (status, ""), (ended.stdout, ended.stderr)
    return ended.stdout.strip()


def outlast_sessions() -> None:
    """Wait until no session that ended before now is still to be noticed."""
    began = time.monotonic()
    wait_for("sessions to be over", lambda: time.monotonic() - began > SESSION_SECONDS)


def recorded(sidecar: Sidecar, phase: str) -> list[dict[str, Any]]:
    return [record for record in sidecar.records() if record["type"] == "drill" and record["phase"] == phase]


def outcomes(sidecar: Sidecar) -> list[str]:
    """Of the drill's message."""
    found = [record for record in sidecar.records() if record["type"] == "notification" and record["reason"] == "DRILL"]
    return [each["outcome"] for each in found]


def has_settled(sidecar: Sidecar) -> bool:
    return bool({"delivered", "already_told"} & {*outcomes(sidecar)})


def alerts(people: HttpReceiver, name: str) -> list[str]:
    """The messages about a cluster that are none of the drill."""
    return [message.body for message in people.received if name in message.body and "[DRILL]" not in message.title]


def test_a_drill_is_one_message_of_two_sidecars_and_hides_its_own_failover_alone(
    clusters: tuple[Leaders, Leaders], people: HttpReceiver, sidecars: list[Sidecar]
) -> None:
    """Another cluster's failover pages meanwhile; after `drill stop` the drilled one's does, too; both sidecars have the same records."""
    drilled, other = clusters
    name = drilled.cluster_id
    made = drill(sidecars[0], "start", "--cluster", name, "--window", "10m", "--comment", "spring", "--author", "ann")
    for sidecar in sidecars:
        wait_for("the drill to be known", partial(recorded, sidecar, "started"))
        wait_for("its message", partial(has_settled, sidecar))
    assert sorted(outcome for sidecar in sidecars for outcome in outcomes(sidecar)) == [
        *("already_told", "delivered", "queued", "queued")
    ]
    [message] = people.received
    assert message.title.startswith(f"[DRILL] {name[:40]}")
    assert "started by ann" in message.body
    assert drill(sidecars[1], "report", status=3).splitlines()[0].endswith(f" of {name}: unknown")
    assert [each["drill"] for each in json.loads(sidecars[0].get("/api/v1/silences")[1])] == ["failover"]
    assert "Drill in progress" in sidecars[0].get("/")[1]

    outlast_sessions()
    drilled.fail_over()
    other.fail_over()
    wait_for("the other cluster's message", lambda: alerts(people, other.cluster_id))
    for sidecar in sidecars:
        report = wait_for("the failover", partial(passed, sidecar), 60)
        assert {(alert["alert"], alert["receiver"]) for alert in report["hidden"]} == {("Changed", "ops")}
    assert alerts(people, name) == []

    assert drill(sidecars[1], "stop") == made
    for sidecar in sidecars:
        wait_for("the end of the drill", partial(recorded, sidecar, "ended"), 120)
    assert len({recorded(sidecar, phase)[0]["id"] for sidecar in sidecars for phase in ("started", "ended")}) == 2
    assert {recorded(sidecar, "ended")[0]["result"] for sidecar in sidecars} == {"passed"}
    drilled.fail_over()
    wait_for("the message of a failover after the drill", lambda: alerts(people, name))


def passed(sidecar: Sidecar) -> dict[str, Any] | None:
    """The report of the drill, once it has passed."""
    ended = command("drill", "report", "--config", str(sidecar.config), "-o", "json")
    assert ended.returncode in {0, 3}, ended.stdout
    return json.loads(ended.stdout) if ended.returncode == 0 else None


@pytest.mark.covers("command:drill start", "command:drill stop", "command:drill report")
def test_a_cluster_without_a_leader_pages_when_the_window_ends(
    clusters: tuple[Leaders, Leaders], people: HttpReceiver, sidecars: list[Sidecar]
) -> None:
    """It did so not before."""
    name = clusters[0].cluster_id
    drill(sidecars[0], "start", "--cluster", name)
    for sidecar in sidecars:
        wait_for("the drill to be known", partial(recorded, sidecar, "started"))
    outlast_sessions()
    clusters[0].vacate()
    for sidecar in sidecars:
        wait_for("the alert to be hidden", partial(hides, sidecar, "NoLeader"))
    assert alerts(people, name) == []
    assert drill(sidecars[0], "report", status=3).splitlines()[0].endswith(f" of {name}: unknown")
    drill(sidecars[1], "stop")
    wait_for("the page", lambda: alerts(people, name), 40)


def hides(sidecar: Sidecar, alert: str) -> bool:
    notifications = (record for record in sidecar.records() if record["type"] == "notification")
    return any(notification["alert"] == alert and notification["silence_id"] for notification in notifications)
