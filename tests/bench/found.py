"""One process that finds its clusters: `python -m tests.bench.found [CLUSTERS [MINUTES]]`, in ConfigMaps of a real API server.

- So many clusters (1,000), each with a job and a leader who renews its lease every 5 s: memory, CPU, requests, watches of `run`.
- Then 200 of other names come and go at random for so many minutes (10): each is created with a leader, lives for up to a minute, withdraws
  and is deleted. None may be missed, and nobody may be notified of any.
- At last the leader of one cluster changes: from its write to the message, with one sidecar, and with two of which the other was killed.
"""

import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from tests.bench.apiserver import Meter, OpenKubernetes
from tests.bench.configmap import Clusters
from tests.bench.stage import Table
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

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


class Stage:
    """An API server, the clusters on it, and sidecars that find them."""

    def __init__(self, folder: Path, ending: ExitStack) -> None:
        self._folder = folder
        self._ending = ending
        self.server = OpenKubernetes(folder / "kubernetes", _FLINK, _FINDER)
        ending.callback(self.server.kill)
        self.server.start()
        namespace = self.server.namespace("default")
        namespace.allow(_FLINK, "create", "update", "delete")
        namespace.allow(_FINDER, "list", "watch", "get", "create", "patch")
        token = self.server.server.users[_FLINK]
        self.flink = Clusters(self.server.server.url, self.server.authority.ca, token, _LEASE)
        self.meter, self.receiver = Meter(self.server.server.address), HttpReceiver()
        ending.callback(self.meter.close)
        self.receiver.start()
        ending.callback(self.receiver.stop)

    def sidecar(self, observer: str, url: str) -> Sidecar:
        """A ready one."""
        kubeconfig = self.server.kubeconfig(_FINDER, server=f"https://{self.meter.address}")
        found = f"kubernetes: {{namespaces: [default], kubeconfig: {kubeconfig}}}"
        sidecar = Sidecar(self._folder / observer, found, [url], observer=observer)
        self._ending.callback(sidecar.stop)
        sidecar.start()
        sidecar.wait_ready(_READY_SECONDS)
        return sidecar


def main(clusters: int = CLUSTERS, minutes: float = MINUTES) -> None:
    """The tables."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        writers = ending.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        stage = Stage(Path(folder), ending)
        names = [f"steady-{number}" for number in range(clusters)]
        session = uuid4()
        stage.flink.create(_STEADY, session)
        sidecar = stage.sidecar("one", stage.receiver.url)
        alone = sidecar.memory_mib()
        for name in names[1:]:
            stage.flink.create(name, session)
        seconds = SECONDS + minutes * 60 + _LONGEST_LIFE + 3 * _SETTLE_SECONDS
        renewing = writers.submit(renew, stage.flink, names, session, seconds)
        wait_for("all clusters", lambda: _watched_count(sidecar) == clusters, _READY_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        _steady(stage, sidecar, clusters, alone)
        if minutes:
            lived = writers.submit(come_and_go, stage.flink, minutes * 60).result(_HOUR)
            _judged(stage, sidecar, lived, clusters)
        renewing.result(_HOUR)  # a renewal gives a cluster its first leader back; the leases outlast what follows
        _voices(stage, sidecar, names)


def _steady(stage: Stage, sidecar: Sidecar, clusters: int, alone: float) -> None:
    before, received, asked = sidecar.cpu_seconds(), stage.meter.received, len(stage.server.asked(_FINDER))
    time.sleep(SECONDS)
    cpu, received = (sidecar.cpu_seconds() - before) / SECONDS, stage.meter.received - received
    asked = len(stage.server.asked(_FINDER)) - asked
    rss = sidecar.memory_mib()
    began = time.monotonic()
    size = len(sidecar.get("/metrics", _HOUR)[1])
    scrape = time.monotonic() - began
    assert sidecar.process
    threads = len(list(Path(f"/proc/{sidecar.process.pid}/task").iterdir()))
    table = Table(
        "clusters",
        "RSS MiB",
        "of that, each cluster's",
        "threads",
        "CPU %",
        "requests an hour",
        "MB an hour",
        "/metrics",
    )
    table.row(
        f"{clusters:,}",
        f"{rss:.1f}",
        f"{(rss - alone) / max(1, clusters - 1):.3f}",
        str(threads),
        f"{cpu * 100:.1f}",
        f"{asked / SECONDS * _HOUR:,.0f}",
        f"{received / SECONDS * _HOUR / 1e6:,.0f}",
        f"{size / 1e6:.1f} MB in {scrape:.1f} s",
    )
    table.target("MiB of each cluster", (rss - alone) / max(1, clusters - 1), 0.1)
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


def come_and_go(flink: Clusters, seconds: float) -> list[tuple[str, UUID]]:
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
            alive.append((now + chance.uniform(0.5, _LONGEST_LIFE), name))
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
    other = stage.sidecar("two", stage.receiver.url)
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
    main(*(int(argument) for argument in sys.argv[1:2]), *(float(argument) for argument in sys.argv[2:3]))
