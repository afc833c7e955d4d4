"""What one tenant can do to everybody else: `python -m tests.bench.worst_tenant [zookeeper|kubernetes] [BORDER ...]`.

A sidecar finds 100 honest clusters. Then a tenant fills each border beyond its bound, all at once, with what it may write: memory, the
longest turn of the owner's thread, `/livez`, and how long it takes until an honest outage is reported, beside the same time without the
tenant. At last the sidecar starts again beside all that.
"""

import os
import re
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import uuid4

from kazoo.client import KazooClient

from sidecar.lab.distribution import flink_home
from sidecar.lab.java import find_java
from sidecar.lab.processes import start_child
from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.zookeeper import ZooKeeper
from tests.bench.found_zookeeper import Clusters
from tests.bench.stage import FLINK, Table
from tests.kit.config_maps import LEADER
from tests.kit.kubernetes_server import Kubernetes, assets
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for

HONEST: Final = 100
MOST_MIB: Final = 200.0
MOST_TURN_SECONDS: Final = 1.0
MOST_LATER: Final = 1.2
_SETTLE_SECONDS: Final = 40.0
_LONGEST_SECONDS: Final = 300.0
_AT_ONCE: Final = 500
_FOLDERS: Final = 10
_LEASE: Final = '{"holderIdentity": "jvm", "leaseDuration": 3600.0, "renewTime": "%s"}'


class TimedSidecar(Sidecar):
    """One that writes its longest turns into a file: see `tests.bench.timed_turns`."""

    def start(self) -> None:
        timed = {"FLINK_HA_SIDECAR_TURNS": str(self._turns)}
        command = [sys.executable, "-m", "tests.bench.timed_turns", "run", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = start_child(command, log, {**os.environ, **timed})

    def longest_turn(self) -> tuple[float, float]:
        """Seconds, and seconds of CPU, since the last call."""
        lines = self._turns.read_text().splitlines() if self._turns.exists() else []
        self._turns.write_text("")
        turns = [tuple(map(float, line.split())) for line in lines]
        return max((turn[0] for turn in turns), default=0.0), max((turn[1] for turn in turns), default=0.0)

    @property
    def _turns(self) -> Path:
        return self.folder / "turns"


class Health:
    """What `/livez` answers, asked again and again."""

    def __init__(self, sidecar: Sidecar) -> None:
        self.asked = self.failed = 0
        self._sidecar = sidecar
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def stop(self) -> str:
        self._stopping.set()
        self._thread.join()
        return f"{self.asked - self.failed} of {self.asked}"

    def _ask(self) -> None:
        while not self._stopping.wait(1.0):
            self.asked += 1
            self.failed += self._sidecar.get("/livez")[0] != 200


class _LargeZooKeeper(ZooKeeper):
    """One that has room for what the tenant writes."""

    def build_command(self) -> Sequence[str]:
        return [re.sub(r"^-Xmx.*", "-Xmx768m", argument) for argument in super().build_command()]


class Store(ABC):
    """A real store with the honest clusters, and a tenant who writes to a place of its own."""

    borders: Mapping[str, Callable[[], None]]
    """What the tenant fills, by name: each a function of its own."""
    cluster: str
    """The lines of the configuration that say where the clusters are."""

    @abstractmethod
    def create(self, number: int) -> None:
        """An honest cluster."""

    @abstractmethod
    def stop_leading(self, number: int) -> None:
        """The outage of an honest cluster."""


class ZooKeeperStore(Store):
    """Clusters below `/flink/team-N/`, the tenant below `/flink/tenant/`, and a root to which everybody may add a folder."""

    def __init__(self, address: str) -> None:
        self.cluster = f"zookeeper: {{quorum: '{address}', clusters: all}}"
        self._flink = Clusters(address)
        self._client: KazooClient = self._flink.client
        self.borders = {
            "job stores": self._job_stores,
            "empty znodes": self._empty_znodes,
            "long list": self._long_list,
        }

    def create(self, number: int) -> None:
        self._flink.create(_name(number))

    def stop_leading(self, number: int) -> None:
        self._client.delete(f"/flink/{_name(number)}/leader", recursive=True)
        self._client.ensure_path(f"/flink/{_name(number)}/leader/latch")

    def stop(self) -> None:
        self._client.stop()
        self._client.close()

    def _job_stores(self) -> None:
        """Three clusters with two job stores of 49,900 ids each."""
        for name in ("tenant/jobs-0", "tenant/jobs-1", "tenant/jobs-2"):
            self._flink.create(name)
            for store in ("jobgraphs", "execution-plans"):
                self._client.ensure_path(f"/flink/{name}/{store}")
                self._fill(f"/flink/{name}/{store}/{uuid4().hex}" for _ in range(49_900))

    def _empty_znodes(self) -> None:
        """20,000 znodes that might lead to clusters."""
        self._client.ensure_path("/flink/tenant")
        self._fill(f"/flink/tenant/{number:05}" for number in range(20_000))

    def _long_list(self) -> None:
        """200,000 znodes beside the clusters: their list has 20 MB."""
        self._fill(f"/flink/{number:06}{'x' * 90}" for number in range(200_000))

    def _fill(self, paths: Iterator[str]) -> None:
        while some := [*islice(paths, _AT_ONCE)]:
            transaction = self._client.transaction()
            for path in some:
                transaction.create(path)
            transaction.commit()


class KubernetesStore(Store):
    """Clusters in the namespaces `team-N`, the tenant in its own."""

    def __init__(self, server: Kubernetes) -> None:
        server.allow_everywhere("finder", "list", "watch", "get")
        self.cluster = (
            f"kubernetes: {{namespaces: all, kubeconfig: {server.kubeconfig('finder')}}}\nledger: {{mode: local}}"
        )
        self._teams = [server.namespace(f"team-{number}") for number in range(_FOLDERS)]
        self._tenant = server.namespace("tenant")
        self.borders = {"large ConfigMaps": self._large_config_maps}
        self._led: dict[int, dict[str, str | None]] = {}
        self._stopping = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def stop(self) -> None:
        self._stopping.set()
        self._renewing.join()

    def create(self, number: int) -> None:
        led = {f"{LEADER}{component}": _led() for component in ("dispatcher", "resourcemanager", "restserver")}
        self._led[number] = {**led, f"{LEADER}job-{uuid4().hex}": _led()}
        self._write(number, self._led[number], new=True)
        if number == HONEST - 1:
            self._renewing.start()

    def _renew(self) -> None:
        """Renew one lease a second, as Flinks do: in a store without any write a watch confirms nothing."""
        while not self._stopping.wait(1.0):
            self._write(HONEST - 1, self._led[HONEST - 1], new=False)

    def stop_leading(self, number: int) -> None:
        self._write(number, {}, new=False)

    def _write(self, number: int, content: dict[str, str | None], *, new: bool) -> None:
        team, name = self._teams[number % _FOLDERS], f"orders-{number}"
        write = team.create if new else team.replace
        write(f"{name}-cluster-config-map", content, _LEASE % time.time(), _labels(name))

    def _large_config_maps(self) -> None:
        """30 of 0.95 MB, with as many jobs as they can hold."""
        for number in range(30):
            jobs: dict[str, str | None] = {
                f"{LEADER}job-{uuid4().hex}": f"{uuid4()},pekko.tcp://f@h:1/u" for _ in range(7_800)
            }
            name = f"jobs-{number}"
            self._tenant.create(f"{name}-cluster-config-map", jobs, _LEASE % time.time(), _labels(name))


def _name(number: int) -> str:
    return f"team-{number % _FOLDERS}/orders-{number}"


def _labels(name: str) -> dict[str, str]:
    return {"app": name, "type": "flink-native-kubernetes", "configmap-type": "high-availability"}


def _led() -> str:
    return f"{uuid4()},pekko.tcp://flink@10.0.0.1:6123/user/rpc/dispatcher_1"


@contextmanager
def _zookeeper() -> Iterator[tuple[Store, Path]]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as ending:
        server = _LargeZooKeeper(Path(name) / "zookeeper", flink_home(FLINK, print), find_java())
        ending.callback(server.kill)
        server.start()
        store = ZooKeeperStore(server.address)
        ending.callback(store.stop)
        yield store, Path(name)


@contextmanager
def _kubernetes() -> Iterator[tuple[Store, Path]]:
    with tempfile.TemporaryDirectory() as name:
        server = Kubernetes(Path(name) / "kubernetes", assets(), finder="token-of-finder")
        try:
            server.start()
            store = KubernetesStore(server)
            try:
                yield store, Path(name)
            finally:
                store.stop()
        finally:
            server.kill()


STORES: Final = {"zookeeper": _zookeeper, "kubernetes": _kubernetes}


def measure(kind: str, borders: Sequence[str], table: Table) -> None:
    """The rows of one store. `borders`: those that are filled; none: all."""
    with STORES[kind]() as (store, folder), ExitStack() as ending:
        people = HttpReceiver()
        people.start()
        ending.callback(people.stop)
        for number in range(HONEST):
            store.create(number)
        sidecar = TimedSidecar(folder / "sidecar", store.cluster, [people.url])
        ending.callback(sidecar.kill)
        sidecar.start()
        sidecar.wait_ready()
        quiet = _row(table, kind, "quiet", sidecar, _outage(store, people, 0), Health(sidecar), None)
        health, began = Health(sidecar), time.monotonic()
        for name, fill in store.borders.items():
            if not borders or name in borders:
                fill()
        print(f"filled in {time.monotonic() - began:.0f} s", flush=True)
        time.sleep(_SETTLE_SECONDS)
        _row(table, kind, "filled", sidecar, _outage(store, people, 1), health, quiet)
        sidecar.kill()
        sidecar.start()
        wait_for("an answer", lambda: sidecar.get("/livez")[0], _LONGEST_SECONDS)
        health = Health(sidecar)
        time.sleep(_SETTLE_SECONDS)
        _row(table, kind, "started beside it", sidecar, _outage(store, people, 2), health, quiet)
        print(*sidecar.get("/readyz", 60), sep="\n", flush=True)


def _outage(store: Store, people: HttpReceiver, number: int) -> float:
    """Seconds until the outage of an honest cluster is reported; `inf`: it is not."""
    name = f"orders-{number}"
    store.stop_leading(number)
    began = time.monotonic()

    def reported() -> bool:
        return any(
            "FlinkNoLeader" in message.raw.decode() and name in message.raw.decode() for message in people.received
        )

    while time.monotonic() - began < _LONGEST_SECONDS:
        if reported():
            return time.monotonic() - began
        time.sleep(0.1)
    return float("inf")


def _row(
    table: Table, kind: str, when: str, sidecar: TimedSidecar, seconds: float, health: Health, quiet: float | None
) -> float:
    peak, (turn, worked), alive = sidecar.memory_mib("VmHWM"), sidecar.longest_turn(), health.stop()
    table.row(kind, when, f"{peak:.0f}", f"{turn:.2f}", f"{worked:.2f}", alive, f"{seconds:.1f}")
    table.target(f"{kind}, {when}: memory", peak, MOST_MIB, " MiB")
    table.target(f"{kind}, {when}: longest turn", turn, MOST_TURN_SECONDS, " s")
    table.target(f"{kind}, {when}: CPU of a turn", worked, MOST_TURN_SECONDS, " s")
    table.target(f"{kind}, {when}: `/livez` failed", health.failed, 0)
    if quiet is not None:
        table.target(f"{kind}, {when}: outage", seconds / quiet, MOST_LATER, " x the quiet time")
    return seconds


def main(arguments: Sequence[str]) -> None:
    """The table."""
    kinds = [argument for argument in arguments if argument in STORES]
    table = Table(
        "store", "tenant", "peak MiB", "longest turn, s", "its CPU, s", "`/livez` 200", "outage reported after, s"
    )
    for kind in kinds or STORES:
        measure(kind, [argument for argument in arguments if argument not in STORES], table)
    table.end()


if __name__ == "__main__":
    main(sys.argv[1:])
