"""One process that finds its clusters below a root of a real ZooKeeper: `python -m tests.bench.found_zookeeper [CLUSTERS ...]`.

Each cluster has what Flink 1.19 and newer writes, with one job. After they came: memory, CPU, requests and watches of `run`. Then ten of
other names come and go: none may be missed, and nobody may be notified of any. At last the leader of one cluster changes.
"""

import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from kazoo.client import KazooClient

from tests.bench.stage import Table, leader, zookeeper
from tests.kit.four_letter_words import says
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

CLUSTERS: Final = (100, 1_000)
SECONDS: Final = 60.0
COMING: Final = 10
_SETTLE_SECONDS: Final = 15.0
_READY_SECONDS: Final = 300.0
_HOUR: Final = 3600.0
_COMPONENTS: Final = ("resource_manager", "dispatcher", "rest_server")


class Clusters:
    """What Flinks write, by one client."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address, timeout=60)
        self.client.start()

    def create(self, name: str) -> None:
        """A cluster with a job, and its leader."""
        job, place = uuid4().hex, f"/flink/{name}"
        self.client.ensure_path(f"{place}/leader/latch")
        self.client.ensure_path(f"{place}/execution-plans/{job}")
        self.client.create(f"{place}/leader/latch/_c_{uuid4()}-latch-0000000000", ephemeral=True)
        content = leader(uuid4())
        for component in (*_COMPONENTS, f"job-{job}"):
            self.client.create(f"{place}/leader/{component}/connection_info", content, ephemeral=True, makepath=True)

    def fail_over(self, name: str) -> None:
        content = leader(uuid4())
        for component in self.client.get_children(f"/flink/{name}/leader"):
            if component != "latch":
                path = f"/flink/{name}/leader/{component}/connection_info"
                self.client.delete(path)
                self.client.create(path, content, ephemeral=True)

    def remove(self, name: str) -> None:
        """As Flink cleans up."""
        self.client.delete(f"/flink/{name}", recursive=True)


@contextmanager
def finding(folder: Path, address: str, people: HttpReceiver) -> Iterator[Sidecar]:
    """A sidecar that is ready."""
    sidecar = Sidecar(folder / "sidecar", f"zookeeper: {{quorum: '{address}', clusters: all}}", [people.url])
    sidecar.start()
    try:
        sidecar.wait_ready(_READY_SECONDS)
        yield sidecar
    finally:
        sidecar.stop()


def watched(sidecar: Sidecar) -> int:
    found = re.search(r"^flink_ha_clusters_watched (\d+)", sidecar.get("/metrics", _HOUR)[1], re.MULTILINE)
    return int(found[1]) if found else 0


def counted(server: ZooKeeper, what: str) -> int:
    """A figure of the server's `mntr`."""
    found = re.search(rf"^{what}\s+(\d+)", says(server, "mntr"), re.MULTILINE)
    assert found
    return int(found[1])


def idle(server: ZooKeeper) -> float:
    """Packets that the server received in a second without the sidecar: of the client that wrote the clusters."""
    before = counted(server, "zk_packets_received")
    time.sleep(_SETTLE_SECONDS)
    return (counted(server, "zk_packets_received") - before) / _SETTLE_SECONDS


def measure(number: int, table: Table) -> None:
    with zookeeper() as (server, folder):
        flink, people = Clusters(server.address), HttpReceiver()
        people.start()
        try:
            flink.create("steady-0")
            others = idle(server)
            with finding(folder, server.address, people) as sidecar:
                time.sleep(_SETTLE_SECONDS)
                alone = sidecar.memory_mib()
                for index in range(1, number):
                    flink.create(f"steady-{index}")
                wait_for("all clusters", lambda: watched(sidecar) == number, _READY_SECONDS)
                time.sleep(_SETTLE_SECONDS)
                steady = _steady(server, sidecar, number, alone, others)
                table.row(f"{number:,}", *steady, *_changes(flink, sidecar, people, number))
        finally:
            people.stop()
            flink.client.stop()
            flink.client.close()


def _steady(server: ZooKeeper, sidecar: Sidecar, number: int, alone: float, others: float) -> tuple[str, ...]:
    cpu, packets = sidecar.cpu_seconds(), counted(server, "zk_packets_received")
    time.sleep(SECONDS)
    cpu, packets = (sidecar.cpu_seconds() - cpu) / SECONDS, counted(server, "zk_packets_received") - packets
    requests = (packets / SECONDS - others) * _HOUR
    memory = sidecar.memory_mib()
    assert sidecar.process
    threads = len(list(Path(f"/proc/{sidecar.process.pid}/task").iterdir()))
    return (
        f"{memory:.1f}",
        f"{(memory - alone) / max(1, number - 1):.3f}",
        f"{threads}",
        f"{cpu * 100:.1f}",
        f"{counted(server, 'zk_watch_count'):,}",
        f"{requests:,.0f}",
        f"{requests / number:.1f}",
    )


def _changes(flink: Clusters, sidecar: Sidecar, people: HttpReceiver, number: int) -> tuple[str, ...]:
    for index in range(COMING):
        flink.create(f"passing-{index}")
    wait_for("those that come", lambda: watched(sidecar) == number + COMING, _READY_SECONDS)
    for index in range(COMING):
        flink.remove(f"passing-{index}")
    wait_for("their end", lambda: watched(sidecar) == number, _READY_SECONDS)
    retired = [change for change in sidecar.transitions() if change["kind"] == "RETIRED"]
    assert len({change["cluster_id"] for change in retired if change["component"] == "dispatcher"}) == COMING
    assert people.received == []
    began = time.monotonic()
    flink.fail_over(f"steady-{random.randrange(number)}")
    wait_for("the message", lambda: people.received, _READY_SECONDS)
    return (f"{len(people.received)} after {time.monotonic() - began:.1f} s",)


def main(numbers: tuple[int, ...]) -> None:
    """The table."""
    table = Table(
        *("clusters", "RSS MiB", "of that, each cluster's", "threads", "CPU %", "watches", "requests an hour"),
        *("each cluster's", "message"),
    )
    for number in numbers:
        measure(number, table)
    table.end()


if __name__ == "__main__":
    main(tuple(int(argument) for argument in sys.argv[1:]) or CLUSTERS)
