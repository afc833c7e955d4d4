"""SIGTERM while everything around hangs: the sidecar ends in order, and records that it did."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from kazoo.client import KazooClient

from tests.e2e.test_command_line import lead
from tests.kit.receivers import Mood, Receiver
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper


@pytest.fixture
def leader(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    lead(client, term=1)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def hanging() -> Iterator[Receiver]:
    receiver = Receiver(Random(1), {Mood.HANGS: 1.0})
    receiver.start()
    yield receiver
    receiver.stop()


def test_it_ends_in_order_while_store_and_receivers_hang(
    zookeeper: ZooKeeper, leader: KazooClient, hanging: Receiver, tmp_path: Path
) -> None:
    """Exit status 0, before anybody kills it; up to when it could see is recorded, and sealed."""
    sidecar = Sidecar(tmp_path, f"zookeeper: {{quorum: '{zookeeper.address}'}}", [hanging.url])
    sidecar.start().wait_ready()
    lead(leader, term=2)
    wait_for("a message under way", lambda: hanging.arrivals)
    zookeeper.pause()
    try:
        assert sidecar.stop() == 0
    finally:
        zookeeper.resume()
    coverage = [record for record in sidecar.records() if record["type"] == "coverage"]
    assert coverage[-1]["state"] == "seeing"
    segments = sorted((sidecar.spool / "sidecar-0").glob("*.jsonl.gz")) or sorted(sidecar.spool.glob("*/*.jsonl.gz"))
    assert segments
    assert int(segments[-1].name[17:33]) == len(sidecar.records()) + int(segments[0].name[:16]) - 1
    assert "Traceback" not in sidecar.log.read_text()
