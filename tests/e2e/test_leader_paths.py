"""`/leader` and `/standby` of two sidecars, one beside each JobManager, in a failover and while the store does not answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

pytestmark = pytest.mark.e2e


@pytest.fixture
def sidecars(leaders: Leaders, zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[list[Sidecar]]:
    """In the pods of the first and the second JobManager. The first one leads."""
    assert leaders.present == "jm-00001"
    running = []
    for number in (1, 2):
        cluster = f"zookeeper: {{quorum: '{zookeeper.address}'}}"
        sidecar = Sidecar(tmp_path / f"{number}", cluster, [], observer=f"jm-0000{number}")
        sidecar.environment = {"POD_NAME": f"jm-0000{number}", "POD_IP": f"10.1.2.{number}"}
        sidecar.start()
        running.append(sidecar)
    for sidecar in running:
        sidecar.wait_ready()
    yield running
    for sidecar in running:
        sidecar.kill()


def statuses(sidecars: list[Sidecar], path: str) -> list[int]:
    """Of each sidecar."""
    return [sidecar.get(path)[0] for sidecar in sidecars]


def test_one_leads_and_blind_ones_do_not_know(leaders: Leaders, sidecars: list[Sidecar], zookeeper: ZooKeeper) -> None:
    """At most one `/leader` is 200; none is in a vacancy, and nothing is while the sidecars cannot see."""
    assert (statuses(sidecars, "/leader"), statuses(sidecars, "/standby")) == ([200, 503], [503, 200])
    leaders.vacate()
    wait_for("the vacancy", lambda: statuses(sidecars, "/leader") == [503, 503])
    assert sidecars[0].get("/leader")[1].startswith("no JobManager leads rest_server")
    leaders.elect()
    wait_for("the next leader", lambda: statuses(sidecars, "/leader") == [503, 200])
    wait_for("the next standby", lambda: statuses(sidecars, "/standby") == [200, 503])
    assert sidecars[0].get("/api/v1/clusters/default/leader")[1].startswith('{"cluster_id":"default","component":"rest')
    zookeeper.pause()
    wait_for("the loss of sight", lambda: statuses(sidecars, "/leader") + statuses(sidecars, "/standby") == [503] * 4)
    assert all(sidecar.get("/leader")[1].startswith("blind: ") for sidecar in sidecars)
    zookeeper.resume()
    wait_for("sight again", lambda: statuses(sidecars, "/leader") == [503, 200])
