"""A sidecar with a real ZooKeeper exports its failovers to a collector, and misses none while that is away."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sidecar.sinks.otlp.exporter import POSITION
from tests.kit.leaders import Leaders
from tests.kit.otel_collector import ACCEPTED, OtelCollector, Reply, attributes, otel_collector
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.zookeeper import ZooKeeper

EXPORTED = ("transition", "episode", "death", "recovery")


@pytest.fixture
def collector() -> Iterator[OtelCollector]:
    with otel_collector() as running:
        yield running


def exported(sidecar: Sidecar) -> list[str]:
    """The ids of the records that the collector is to have."""
    return [record["id"] for record in sidecar.records() if record["type"] in EXPORTED]


def test_failovers_reach_the_collector_across_its_outage_and_our_restart(
    shared_zookeeper: ZooKeeper, tmp_path: Path, collector: OtelCollector
) -> None:
    """Each record once, in order, by the ids of the audit log."""
    cluster_id = f"test-{uuid4()}"
    leaders = Leaders(shared_zookeeper.address, cluster_id)
    leaders.start()
    sidecar = Sidecar(
        tmp_path,
        f"zookeeper: {{quorum: '{shared_zookeeper.address}', cluster_id: /{cluster_id}}}\n"
        f"otlp: {{endpoint: '{collector.settings.endpoint}'}}",
        [],
    )
    try:
        sidecar.start()
        sidecar.wait_ready()
        wait_for("the exporter", (sidecar.state / POSITION).exists)
        leaders.fail_over()
        wait_for("the first failover's record", lambda: "episode" in [record["type"] for record in sidecar.records()])
        wait_for("the first failover", lambda: collector.ids()[-1:] == exported(sidecar)[-1:])
        collector.judge = lambda _events: Reply(503)
        leaders.fail_over()
        wait_for("the second failover", lambda: [r["type"] for r in sidecar.records()].count("episode") == 2)
        wait_for("an export that fails", lambda: "flink_ha_otlp_up 0.0" in sidecar.get("/metrics")[1])
        assert sidecar.stop() == 0
        collector.judge = lambda _events: ACCEPTED
        sidecar.start()
        sidecar.wait_ready()
        wait_for("what it missed", lambda: collector.ids()[-1:] == exported(sidecar)[-1:])
        assert collector.ids() == [metric for metric in exported(sidecar) if metric in set(collector.ids())]
        episodes = [record["id"] for record in sidecar.records() if record["type"] == "episode"]
        assert set(episodes) <= set(collector.ids())
        resource = attributes(collector.resources[-1].attributes)
        assert (resource["service.instance.id"], resource["env"]) == ("jm-0", "test")
    finally:
        sidecar.stop()
        leaders.stop()
