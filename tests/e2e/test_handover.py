"""A sidecar ends with its pod, and its folder with it: the next one continues from the handover in the store."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sidecar.core import handover
from sidecar.core.failover.episodes import is_away
from sidecar.core.pods import host_port
from sidecar.runtime.clock import Clock
from sidecar.sinks.handover import REFILL_SECONDS
from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper


@pytest.fixture
def pod(zookeeper: ZooKeeper, people: HttpReceiver, tmp_path: Path) -> Iterator[Callable[[str], Sidecar]]:
    """Starts the sidecar of a pod of this name, with an empty folder."""
    running: list[Sidecar] = []

    def start(name: str) -> Sidecar:
        cluster = f"zookeeper: {{quorum: '{zookeeper.address}'}}"
        sidecar = Sidecar(tmp_path / name, cluster, [people.url], observer=name)
        running.append(sidecar)
        sidecar.start().wait_ready()
        return sidecar

    yield start
    for sidecar in running:
        sidecar.stop()


def handed_over(leaders: Leaders) -> int:
    """How often the handover was written, plus one; 0: never."""
    stat = leaders.client.exists("/flink-ha-sidecar/flink/default/handover")
    return stat.version + 1 if stat else 0


def led(leaders: Leaders) -> list[str]:
    """The hosts of those who lead, as handed over."""
    content, _ = leaders.client.get("/flink-ha-sidecar/flink/default/handover")
    document = handover.read(content, "default", Clock()())
    assert document
    states = document.cluster.components.values()
    return [
        host_port(each.last_known.address).partition(":")[0]
        for each in states
        if each.last_known and not (each.absence and is_away(each.absence))
    ]


def knows_cluster(folder: Path) -> bool:
    """Whether the journal in `folder` has anything of the cluster."""
    with (
        suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{folder}/journal.db?mode=ro", uri=True)) as journal,
    ):
        return bool(journal.execute("SELECT 1 FROM state WHERE kind = 'view'").fetchall())
    return False


def changes(people: HttpReceiver) -> list[str]:
    """Titles of messages about changed leaders."""
    return [message.title for message in people.received if "failed over" in message.body]


def test_the_only_pod_is_deleted_and_people_hear_of_it_once(
    leaders: Leaders, people: HttpReceiver, pod: Callable[[str], Sidecar]
) -> None:
    """The first sidecar sees its JobManager withdraw and ends with it; the second one ends the episode that the first one opened."""
    first = pod("jm-a")
    leaders.vacate()
    wait_for("the withdrawal", lambda: [change for change in first.transitions() if change["kind"] == "REVOKED"])
    before = {transition["episode_id"] for transition in first.transitions() if transition["kind"] == "REVOKED"}
    assert first.stop() == 0
    leaders.elect()
    second = pod("jm-b")
    [episode] = wait_for("the episode", lambda: [record for record in second.records() if record["type"] == "episode"])
    assert {episode["id"]} == before
    assert episode["facts"][-1] == "What was before is known from the handover of sidecar jm-a."
    assert episode["downtime_seconds_at_least"] > 0
    wait_for("the message", lambda: changes(people))
    assert "continuing from the handover of sidecar jm-a" in second.log.read_text()
    assert second.stop() == 0
    assert len(changes(people)) == 1, people.received


def test_a_sidecar_that_is_killed_has_left_what_it_knew(
    leaders: Leaders, people: HttpReceiver, pod: Callable[[str], Sidecar]
) -> None:
    """A node is lost: the leader that follows is known not to be the first one."""
    first = pod("jm-a")
    wait_for("the handover", lambda: handed_over(leaders))
    first.kill()
    leaders.fail_over()
    second = pod("jm-b")
    wait_for("the message", lambda: changes(people))
    discovered = [transition for transition in second.transitions() if transition["kind"] == "DISCOVERED"]
    assert len(discovered) == 4
    assert {"jm-00001" in each["last_known_address"] for each in discovered} == {True}
    assert second.stop() == 0
    assert len(changes(people)) == 1, people.received


def test_an_election_just_before_the_end_is_handed_over(leaders: Leaders, pod: Callable[[str], Sidecar]) -> None:
    """The withdrawal and the election follow each other in seconds, and so does `kill -9`: the next sidecar knows the new leader."""
    first = pod("jm-a")
    wait_for("the first leaders", lambda: handed_over(leaders))
    began = time.monotonic()
    leaders.vacate()
    wait_for("the withdrawal", lambda: led(leaders) == [])
    leaders.elect()
    wait_for("the election", lambda: led(leaders) == [leaders.present] * 4)
    assert time.monotonic() - began < REFILL_SECONDS
    first.kill()
    second = pod("jm-b")
    assert [transition["same_leader"] for transition in second.transitions()] == [True] * 4


def test_a_sidecar_that_is_killed_before_it_has_read_the_handover_reads_it_in_its_next_run(
    zookeeper: ZooKeeper, leaders: Leaders, people: HttpReceiver, pod: Callable[[str], Sidecar], tmp_path: Path
) -> None:
    """The journal that it leaves knows the cluster by name alone."""
    first = pod("jm-a")
    leaders.vacate()
    wait_for("the withdrawal", lambda: [change for change in first.transitions() if change["kind"] == "REVOKED"])
    assert first.stop() == 0
    zookeeper.pause()
    second = Sidecar(tmp_path / "jm-b", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [people.url], observer="jm-b")
    second.start()
    wait_for("its journal", lambda: knows_cluster(second.state))
    second.kill()
    zookeeper.resume()
    leaders.elect()
    second = pod("jm-b")
    [episode] = wait_for("the episode", lambda: [record for record in second.records() if record["type"] == "episode"])
    assert episode["facts"][-1] == "What was before is known from the handover of sidecar jm-a."
    wait_for("the message", lambda: changes(people))
    assert second.stop() == 0
    assert len(changes(people)) == 1, people.received


def test_nobody_hears_of_a_sidecar_that_was_replaced(
    leaders: Leaders, people: HttpReceiver, pod: Callable[[str], Sidecar]
) -> None:
    """An upgrade of the sidecar alone is no failover."""
    first = pod("jm-a")
    assert first.stop() == 0
    assert handed_over(leaders)
    second = pod("jm-b")
    assert [transition["same_leader"] for transition in second.transitions()] == [True] * 4
    assert second.stop() == 0
    assert changes(people) == []
