"""What one tenant can do to everybody else: `python -m tests.bench.worst_tenant [zookeeper|kubernetes] [in-turn] [BORDER ...]`.

A sidecar finds 100 honest clusters. Then a tenant fills each border beyond its bound, all at once or in turn, with what it may write, and
with what its servers answer: memory, the longest turn of the owner's thread, `/livez`, and how long it takes until an honest outage is
reported, beside the same time without the tenant. At last the sidecar starts again beside all that. Four mail servers among the receivers
do not end their greeting, from the beginning.
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
from typing import Final, Self
from uuid import uuid4

from kazoo.client import KazooClient

from tests.bench import hostile_answers
from tests.bench.found import ZNodeClusters
from tests.bench.stage import FLINK, Table
from tests.kit.config_maps import LEADER
from tests.kit.flink_rest_server import RestServer
from tests.kit.java_serialization import connection_info
from tests.kit.kubernetes_server import Kubernetes, assets
from tests.kit.sidecar_process import Sidecar
from tests.kit.slow_silences import slow_silences
from tests.kit.strange_servers import answering
from tests.kit.waiting import wait_for
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.lab.processes import start_child
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

HONEST: Final = 100
MOST_MIB: Final = 200.0
MOST_TURN_SECONDS: Final = 1.0
MOST_LATER: Final = 1.2
_SETTLE_SECONDS: Final = 40.0
_LONGEST_SECONDS: Final = 300.0
_AT_ONCE: Final = 500
_FOLDERS: Final = 10
_IN_TURN: Final = "in-turn"
_SERVERS: Final = 12
_MAIL_SERVERS: Final = 4
_ASKED_SECONDS: Final = 10.0
_EVIDENCE: Final = "evidence: {flink_rest: auto}"
_OWN: Final = "/flink-ha-sidecar"
_LEASE: Final = '{"holderIdentity": "jvm", "leaseDuration": 3600.0, "renewTime": "%s"}'


class TimedSidecar(Sidecar):
    """One that writes its longest turns into a file: see `tests.bench.timed_turns`."""

    def start(self) -> Self:
        timed = {"FLINK_HA_SIDECAR_TURNS": str(self._turns)}
        command = [sys.executable, "-m", "tests.bench.timed_turns", "run", "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = start_child(command, log, {**os.environ, **timed})
        return self

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
    hostile: RestServer
    """What the tenant's leaders and invented observers answer with."""

    @abstractmethod
    def create(self, number: int) -> None:
        """An honest cluster."""

    @abstractmethod
    def stop_leading(self, number: int) -> None:
        """The outage of an honest cluster."""


class ZooKeeperStore(Store):
    """Clusters below `/flink/team-N/`, the tenant below `/flink/tenant/`, and a root to which everybody may add a folder."""

    def __init__(self, address: str) -> None:
        self.cluster = f"zookeeper: {{quorum: '{address}', clusters: all}}\n{_EVIDENCE}"
        self.hostile = hostile_answers.rest_server()
        self._flink = ZNodeClusters(address)
        self._client: KazooClient = self._flink.client
        self.borders = {  # its servers first: clusters for which no room is left are not asked
            "rest servers": self._rest_servers,
            "evidence": self._evidence,
            "documents": self._documents,
            "job stores": self._job_stores,
            "empty znodes": self._empty_znodes,
            "long list": self._long_list,
        }

    def create(self, number: int) -> None:
        self._flink.create(_name(number), uuid4())

    def stop_leading(self, number: int) -> None:
        self._client.delete(f"/flink/{_name(number)}/leader", recursive=True)
        self._client.ensure_path(f"/flink/{_name(number)}/leader/latch")

    def stop(self) -> None:
        self._client.stop()
        self._client.close()

    def _job_stores(self) -> None:
        """Three clusters with two job stores of 49,900 ids each."""
        for name in ("tenant/jobs-0", "tenant/jobs-1", "tenant/jobs-2"):
            self._flink.create(name, uuid4())
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

    def _rest_servers(self) -> None:
        """Those of twelve clusters answer as much as they may."""
        for number in range(_SERVERS):
            self._serve(f"rest-{number}")

    def _evidence(self) -> None:
        """Clusters whose REST servers are asked for 2 MiB of evidence: their leaders go."""
        names = [f"evidence-{number}" for number in range(_SERVERS // 2)]
        for name in names:
            self._serve(name)
        time.sleep(_ASKED_SECONDS)
        for name in names:
            for component in ("dispatcher", "resource_manager"):
                self._client.delete(f"/flink/tenant/{name}/leader/{component}/connection_info")

    def _serve(self, name: str) -> None:
        """A cluster whose REST server is the tenant's."""
        self._flink.create(f"tenant/{name}", uuid4())
        path = f"/flink/tenant/{name}/leader/rest_server/connection_info"
        self._client.set(path, connection_info(self.hostile.address, uuid4()))

    def _documents(self) -> None:
        """Whoever may write to the sidecars' own documents fills them, and names observers whose answers have 1 MiB."""
        contents = {"ledger": hostile_answers.ledger(self.hostile.address), "silences": slow_silences()}
        places = [_OWN]
        while places:
            place = places.pop()
            for name in self._client.get_children(place) if self._client.exists(place) else ():
                places.append(f"{place}/{name}")
                if name in contents:
                    self._client.set(f"{place}/{name}", contents[name])

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
        kubeconfig = server.kubeconfig("finder")
        self.cluster = (
            f"kubernetes: {{namespaces: all, kubeconfig: {kubeconfig}}}\nledger: {{mode: local}}\n{_EVIDENCE}"
        )
        self.hostile = hostile_answers.rest_server()
        self._teams = [server.namespace(f"team-{number}") for number in range(_FOLDERS)]
        self._tenant = server.namespace("tenant")
        self.borders = {"large ConfigMaps": self._large_config_maps, "rest servers": self._rest_servers}
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

    def _rest_servers(self) -> None:
        """Those of twelve clusters answer as much as they may."""
        for number in range(_SERVERS):
            led = {f"{LEADER}{component}": _led() for component in ("dispatcher", "resourcemanager")}
            content: dict[str, str | None] = {**led, f"{LEADER}restserver": f"{uuid4()},{self.hostile.address}"}
            name = f"rest-{number}"
            self._tenant.create(f"{name}-cluster-config-map", content, _LEASE % time.time(), _labels(name))


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


def measure(kind: str, borders: Sequence[str], table: Table, *, in_turn: bool) -> None:
    """The rows of one store. `borders`: those that are filled; none: all. `in_turn`: a row for each, beside those before."""
    with STORES[kind]() as (store, folder), ExitStack() as ending:
        people = HttpReceiver()
        people.start()
        ending.callback(people.stop)
        for number in range(HONEST):
            store.create(number)
        ending.enter_context(store.hostile)
        mail = [ending.enter_context(answering(hostile_answers.mail_server)) for _ in range(_MAIL_SERVERS)]
        addresses = "mode=insecure&from=a@example.com&to=b@example.com"
        urls = [people.url, *(f"mailto://{address}/?{addresses}" for address in mail)]
        sidecar = TimedSidecar(folder / "sidecar", store.cluster, urls)
        ending.callback(sidecar.kill)
        sidecar.start().wait_ready()
        quiet = _row(table, kind, "quiet", sidecar, _outage(store, people, 0), Health(sidecar), None)
        filled = [name for name in store.borders if not borders or name in borders]
        together = [[name] for name in filled] if in_turn else [filled]
        for number, names in enumerate(together, start=1):
            health, began = Health(sidecar), time.monotonic()
            for name in names:
                store.borders[name]()
            print(f"{', '.join(names)}: filled in {time.monotonic() - began:.0f} s", flush=True)
            time.sleep(_SETTLE_SECONDS)
            when = f"filled: {names[0]}" if in_turn else "filled"
            _row(table, kind, when, sidecar, _outage(store, people, number), health, quiet)
            print(f"asked the tenant's servers {len(store.hostile.asked)} times", flush=True)
        sidecar.kill()
        sidecar.start()
        wait_for("an answer", lambda: sidecar.get("/livez")[0], _LONGEST_SECONDS)
        health = Health(sidecar)
        time.sleep(_SETTLE_SECONDS)
        _row(table, kind, "started beside it", sidecar, _outage(store, people, len(together) + 1), health, quiet)
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
        borders = [argument for argument in arguments if argument not in {*STORES, _IN_TURN}]
        measure(kind, borders, table, in_turn=_IN_TURN in arguments)
    table.end()


if __name__ == "__main__":
    main(sys.argv[1:])
