"""`run` finds clusters below a root of a real ZooKeeper: what happens to each is notified as of a configured one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.test_found_clusters import held, kinds, titles
from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

RULES = """\
rules:
  - {alert: FlinkLeaderChanged, on: leader_changed}
  - {alert: FlinkNoLeader, on: vacant, for: 30s}
"""


@pytest.fixture
def cluster(zookeeper: ZooKeeper) -> Iterator[Callable[[str], Leaders]]:
    """Starts clusters with this id, each with a job and a leader."""
    running: list[Leaders] = []

    def start(name: str) -> Leaders:
        leaders = Leaders(zookeeper.address, name)
        leaders.start()
        running.append(leaders)
        return leaders

    yield start
    for leaders in running:
        leaders.stop()


@pytest.fixture
def sidecar_of(zookeeper: ZooKeeper, people: HttpReceiver, tmp_path: Path) -> Iterator[Callable[[str], Sidecar]]:
    made: list[Sidecar] = []

    def make(observer: str) -> Sidecar:
        config = f"zookeeper: {{quorum: '{zookeeper.address}', clusters: all}}\n{RULES}"
        made.append(Sidecar(tmp_path / observer, config, [people.url], observer=observer, group_wait="1s"))
        made[-1].start()
        return made[-1]

    yield make
    for sidecar in made:
        sidecar.end()


def remove(leaders: Leaders, name: str) -> None:
    """As Flink does when it cleans up."""
    leaders.vacate()
    leaders.client.delete(f"/flink/{name}", recursive=True)


def test_found_clusters_are_watched_and_retired(
    cluster: Callable[[str], Leaders], people: HttpReceiver, sidecar_of: Callable[[str], Sidecar]
) -> None:
    """A failover is one message, of two sidecars that find the same; a cluster that is removed, observed or while nobody watches, is
    retired and never paged for; what comes later is watched too.
    """
    clusters = {name: cluster(name) for name in ("orders", "team-a/billing", "team-b/billing")}
    one, two = pair = [sidecar_of(observer) for observer in ("one", "two")]
    for sidecar in pair:
        sidecar.wait_ready()
    wait_for("all clusters", lambda: all(held(sidecar) == clusters.keys() for sidecar in pair))

    clusters["team-b/billing"].fail_over()
    wait_for("the message", lambda: titles(people))
    assert "] team-b/billing: " in titles(people)[0]

    remove(clusters["team-a/billing"], "team-a/billing")
    wait_for("its end", lambda: kinds(one, "team-a/billing") == ["DISCOVERED", "REVOKED", "RETIRED"])
    late = cluster("late")
    wait_for("the new one", lambda: held(one) == {"orders", "team-b/billing", "late"})
    metrics = one.get("/metrics")[1]
    assert "flink_ha_clusters_watched 3.0" in metrics
    assert 'cluster_id="team-a/billing"' not in metrics

    for sidecar in pair:
        assert sidecar.stop() == 0
    remove(clusters["orders"], "orders")
    one.start().wait_ready()
    wait_for("its end", lambda: kinds(one, "orders")[-1:] == ["RETIRED"])
    late.fail_over()
    wait_for("the second message", lambda: len(titles(people)) == 2)
    assert "] late: " in titles(people)[1], people.received
    assert one.stop() == 0
    episodes = {record["cluster_id"]: record["cause"] for record in one.records() if record["type"] == "episode"}
    assert episodes["team-a/billing"] == "cluster_removed"
    assert len(titles(people)) == 2
    assert two.log.read_text().count("Traceback") == 0
