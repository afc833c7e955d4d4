"""One process that finds its clusters: `python -m tests.bench.found [kubernetes|zookeeper] [CLUSTERS [MINUTES]]`, in a real store.

- So many clusters (1,000), each with a job; in ConfigMaps each leader renews its lease every 5 s: memory, CPU, requests of `run`.
- Then 200 of other names come and go at random for so many minutes (10): each is created with a leader, lives for up to a minute (in
  ZooKeeper for at least 5 s: what came and went between two reads is nowhere), withdraws and is deleted. None may be missed, and nobody may
  be notified of any.
- At last the leader of one cluster changes: from its write to the message, with one sidecar, and with two of which the other was killed.
"""

import gzip
import json
import random
import re
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from kazoo.client import KazooClient

from tests.bench.apiserver import OpenKubernetes
from tests.bench.configmap import Clusters
from tests.bench.stage import FLINK, Table
from tests.kit.cluster import JobManager
from tests.kit.fake_flink import Flink
from tests.kit.four_letter_words import says
from tests.kit.relay import Wire
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

CLUSTERS: Final = 1_000
MINUTES: Final = 10.0
COMING: Final = 200
SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 20.0
_READY_SECONDS: Final = 300.0
_LONGEST_LIFE: Final = 60.0
_HOUR: Final = 3600.0
_RENEW_SECONDS: Final = 5.0
_LEASE: Final = "PT5M"
"""On a busy machine nobody renews 1,000 leases in 15 s. What is read is the same."""
_FLINK, _FINDER = "flink", "finder"
_STEADY: Final = "steady-0"


class ZNodeClusters:
    """Fake Flinks in ZooKeeper, by one client. Sent to another process, they connect anew there."""

    def __init__(self, address: str) -> None:
        self.client = KazooClient(address, timeout=60)
        self.client.start()
        self._address = address
        self._flinks: dict[str, Flink] = {}

    def __reduce__(self) -> tuple[type["ZNodeClusters"], tuple[str]]:
        return ZNodeClusters, (self._address,)

    def create(self, cluster: str, session_id: UUID) -> None:
        """A cluster with a job, and its leader."""
        self._flinks[cluster] = flink = Flink(ZNodes(writer=ZooKeeperWriter(self.client, f"/flink/{cluster}")))
        flink.submit().elect(JobManager(cluster, session_id, 0))
        self.client.create(f"/flink/{cluster}/leader/latch/_c_{uuid4()}-latch-0000000000", ephemeral=True)

    def replace(self, cluster: str, session_id: UUID) -> None:
        """Another leader."""
        self._flinks[cluster].vacate()
        self._flinks[cluster].elect(JobManager(cluster, session_id, 0))

    def remove(self, cluster: str) -> None:
        """As Flink cleans up."""
        self.client.delete(f"/flink/{cluster}", recursive=True)

    def stop(self) -> None:
        self.client.stop()
        self.client.close()


class Stage(ABC):
    """A real store, the clusters in it, and sidecars that find them."""

    flink: Clusters | ZNodeClusters
    found: str
    """The lines of the sidecar's configuration."""
    wire: Wire
    """The sidecar's way to the store."""
    shortest_life = 0.5

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self._folder = folder
        self._ending = ending
        self.receiver = HttpReceiver()
        self.receiver.start()
        ending.callback(self.receiver.stop)

    @abstractmethod
    def asked(self) -> int:
        """Requests so far."""

    def sidecar(self, observer: str) -> Sidecar:
        """A ready one."""
        sidecar = Sidecar(self._folder / observer, self.found, [self.receiver.url], observer=observer)
        self._ending.callback(sidecar.stop)
        sidecar.start().wait_ready(_READY_SECONDS)
        return sidecar


class KubernetesStage(Stage):
    """Clusters in ConfigMaps."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        super().__init__(folder, ending)
        self._server = OpenKubernetes(folder / "kubernetes", _FLINK, _FINDER)
        ending.callback(self._server.kill)
        self._server.start()
        namespace = self._server.namespace("default")
        namespace.allow(_FLINK, "create", "update", "delete")
        namespace.allow(_FINDER, "list", "watch", "get", "create", "patch")
        server = self._server.server
        self.flink = Clusters(server.url, self._server.authority.ca, server.users[_FLINK], _LEASE)
        self.wire = Wire(server.address)
        ending.callback(self.wire.close)
        kubeconfig = self._server.kubeconfig(_FINDER, server=f"https://{self.wire.address}")
        self.found = f"kubernetes: {{namespaces: [default], kubeconfig: {kubeconfig}}}"

    def asked(self) -> int:
        return len(self._server.asked(_FINDER))


class ZooKeeperStage(Stage):
    """Clusters below one root."""

    shortest_life = 5.0

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        super().__init__(folder, ending)
        self._server = ZooKeeper(folder / "zookeeper", flink_home(FLINK, print), find_java())
        ending.callback(self._server.kill)
        self._server.start()
        self.flink = ZNodeClusters(self._server.address)
        ending.callback(self.flink.stop)
        self.wire = Wire(self._server.address)
        ending.callback(self.wire.close)
        self.found = f"zookeeper: {{quorum: '{self.wire.address}', clusters: all}}"

    def asked(self) -> int:
        """With the pings of the client that wrote the clusters: three a minute."""
        found = re.search(r"^zk_packets_received\s+(\d+)", says(self._server, "mntr"), re.MULTILINE)
        assert found
        return int(found[1])


STAGES: Final[Mapping[str, Callable[[Path, ExitStack], Stage]]] = {
    "kubernetes": KubernetesStage,
    "zookeeper": ZooKeeperStage,
}


def main(store: str, clusters: int = CLUSTERS, minutes: float = MINUTES) -> None:
    """The tables."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        writers = ending.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        stage = STAGES[store](Path(folder), ending)
        names = [f"steady-{number}" for number in range(clusters)]
        session = uuid4()
        stage.flink.create(_STEADY, session)
        sidecar = stage.sidecar("one")
        alone = sidecar.memory_mib()
        for name in names[1:]:
            stage.flink.create(name, session)
        seconds = SECONDS + minutes * 60 + _LONGEST_LIFE + 3 * _SETTLE_SECONDS
        leased = stage.flink if isinstance(stage.flink, Clusters) else None
        renewing = writers.submit(renew, leased, names, session, seconds) if leased else None
        wait_for("all clusters", lambda: _watched_count(sidecar) == clusters, _READY_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        _steady(stage, sidecar, clusters, alone)
        if minutes:
            lived = writers.submit(come_and_go, stage.flink, minutes * 60, stage.shortest_life).result(_HOUR)
            _judged(stage, sidecar, lived, clusters)
        if renewing:
            renewing.result(_HOUR)  # a renewal gives a cluster its first leader back; the leases outlast what follows
        _voices(stage, sidecar, names)


def _steady(stage: Stage, sidecar: Sidecar, clusters: int, alone: float) -> None:
    before, received, asked = sidecar.cpu_seconds(), stage.wire.received, stage.asked()
    time.sleep(SECONDS)
    cpu, received = (sidecar.cpu_seconds() - before) / SECONDS, stage.wire.received - received
    asked = stage.asked() - asked
    rss = sidecar.memory_mib()
    began = time.monotonic()
    size = len(sidecar.get("/metrics", _HOUR)[1])
    scrape = time.monotonic() - began
    assert sidecar.process
    threads = len(list(Path(f"/proc/{sidecar.process.pid}/task").iterdir()))
    table = Table(
        *("clusters", "RSS MiB", "of that, each cluster's", "threads", "CPU %", "requests an hour", "MB an hour"),
        "/metrics",
    )
    table.row(
        *(f"{clusters:,}", f"{rss:.1f}", f"{(rss - alone) / max(1, clusters - 1):.3f}", threads, f"{cpu * 100:.1f}"),
        f"{asked / SECONDS * _HOUR:,.0f}",
        f"{received / SECONDS * _HOUR / 1e6:,.0f}",
        f"{size / 1e6:.1f} MB in {scrape:.1f} s",
    )
    if clusters >= CLUSTERS:
        table.target("MiB of each cluster", (rss - alone) / clusters, 0.1)
        table.target("requests of each cluster, an hour", asked / SECONDS * _HOUR / clusters, 20)
    table.end()


def renew(flink: Clusters, clusters: Sequence[str], session_id: UUID, seconds: float) -> None:
    """Renew every cluster's lease every 5 s, spread over them."""
    began = due = time.monotonic()
    while due < began + seconds:
        for cluster in clusters:
            time.sleep(max(0.0, due - time.monotonic()))
            flink.replace(cluster, session_id)
            due += _RENEW_SECONDS / len(clusters)


def come_and_go(flink: Clusters | ZNodeClusters, seconds: float, shortest_life: float) -> list[tuple[str, UUID]]:
    """Each cluster that came and went, and the session of its leader."""
    chance = random.Random(COMING)
    lived, alive = list[tuple[str, UUID]](), list[tuple[float, str]]()
    began = time.monotonic()
    pause = min(seconds, _LONGEST_LIFE) / COMING
    while (now := time.monotonic()) < began + seconds or alive:
        if now < began + seconds and len(alive) < COMING:
            name, session = f"passing-{len(lived)}", uuid4()
            flink.create(name, session)
            lived.append((name, session))
            alive.append((now + chance.uniform(shortest_life, _LONGEST_LIFE), name))
        for due, name in [each for each in alive if each[0] <= now]:
            flink.remove(name)
            alive.remove((due, name))
        time.sleep(pause * chance.uniform(0.2, 1.0))
    return lived


def _judged(stage: Stage, sidecar: Sidecar, lived: Sequence[tuple[str, UUID]], clusters: int) -> None:
    began, not_retired = time.monotonic(), [name for name, _ in lived]
    while not_retired and time.monotonic() < began + _READY_SECONDS:
        time.sleep(_SETTLE_SECONDS)
        seen = _dispatchers(sidecar)
        not_retired = [name for name, _ in lived if ("RETIRED", None) not in seen.get(name, set())]
    missed = [name for name, session in lived if ("DISCOVERED", str(session)) not in seen.get(name, set())]
    notified = [message.title for message in stage.receiver.received if "passing-" in message.title + message.body]
    table = Table("came and went", "missed", "not retired", "messages", "watched at the end", "RSS MiB")
    table.row(
        f"{len(lived):,}",
        str(len(missed)),
        str(len(not_retired)),
        str(len(notified)),
        f"{_watched_count(sidecar):,} of {clusters:,}",
        f"{sidecar.memory_mib():.1f}",
    )
    table.end()
    print(f"other messages: {[message.title for message in stage.receiver.received]}\n")
    assert (missed, not_retired, notified) == ([], [], [])


def _voices(stage: Stage, sidecar: Sidecar, names: Sequence[str]) -> None:
    table = Table("the leader changes", "s until the message")
    other = stage.sidecar("two")
    wait_for("the other one", lambda: _watched_count(other) == len(names), _READY_SECONDS)
    for what, name in (("two sidecars", names[-1]), ("one of them was killed before", names[-2])):
        count = len(stage.receiver.received)
        if name == names[-2]:
            sidecar.kill()
        began = time.monotonic()
        stage.flink.replace(name, uuid4())
        wait_for("the message", lambda count=count: len(stage.receiver.received) > count, _READY_SECONDS)  # type: ignore[misc]
        table.row(what, f"{time.monotonic() - began:.1f}")
        time.sleep(_SETTLE_SECONDS)
        assert len(stage.receiver.received) == count + 1
    table.end()


def _dispatchers(sidecar: Sidecar) -> dict[str, set[tuple[str, str | None]]]:
    """The transitions of the dispatcher of each cluster: kind, and the session of its leader."""
    transitions: dict[str, set[tuple[str, str | None]]] = {}
    for each in _records(sidecar):
        if each.get("component") == "dispatcher" and each["type"] == "transition":
            transitions.setdefault(each["cluster_id"], set()).add((each["kind"], each["after_session_id"]))
    return transitions


def _records(sidecar: Sidecar) -> Iterator[dict[str, Any]]:
    """All that are sealed."""
    for segment in sorted(sidecar.spool.rglob("*.jsonl.gz")):
        for line in gzip.decompress(segment.read_bytes()).splitlines():
            yield json.loads(line)


def _watched_count(sidecar: Sidecar) -> int:
    for line in sidecar.get("/metrics", _HOUR)[1].splitlines():
        if line.startswith("flink_ha_clusters_watched "):
            return int(float(line.split()[1]))
    return 0


if __name__ == "__main__":
    store, *numbers = sys.argv[1:] or ["kubernetes"]
    main(store, *map(int, numbers[:1]), *map(float, numbers[1:]))
