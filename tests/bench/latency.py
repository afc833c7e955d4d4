"""From a write to the line that reports it: `python -m tests.bench.latency [zookeeper|kubernetes] [SECONDS]`, on a real store.

The listeners are `watch --output json`, the least that one can be (tests/bench/least.py) and on ZooKeeper Flink's own, each a process whose
stdout is read here. A writer in a process of its own sets the dispatcher's leader, with a fresh session id each time. The time is taken
just before the write, when the server has answered it, and when the line is in hand, on one clock.

- In turn: each listener has a cluster of its own, and they are written one after the other: the same moment, disk and machine for all,
  while nobody else is busy with the same write.
- At once, on ZooKeeper: all watch the same node, and compete for the cores.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from kazoo.client import KazooClient
from msgspec import json

from tests.bench.apiserver import OpenKubernetes
from tests.bench.configmap import Clusters, cluster_config_map
from tests.bench.stage import Flinks, Listener, Table, leader, node, zookeeper
from tests.kit.sidecar_process import COMMAND

SECONDS: Final = 30.0
_WARM_UP_SECONDS: Final = 5.0
_START_SECONDS: Final = 60.0
_LAST_SECONDS: Final = 5.0
_TO_LEAST, _TO_FLINKS = 1.3, 1.0
OURS, LEAST, FLINKS = "watch", "the least", "Flink's listener"
_FLINK, _READER = "flink", "reader"


class Write(NamedTuple):
    """Monotonic nanoseconds: just before it, and when the server had answered it."""

    began: int
    ended: int


class Delays(NamedTuple):
    """Of how many writes which were reported, and how late: milliseconds since the write, and since the server's answer to it."""

    behind_write: list[float]
    behind_answer: list[float]
    writes: int


class ZNodeLeaders:
    """The dispatcher's node of each cluster, by one client. Sent to another process, they connect anew there."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = KazooClient(address)
        self._client.start()

    def __reduce__(self) -> tuple[type["ZNodeLeaders"], tuple[str]]:
        return ZNodeLeaders, (self._address,)

    def create(self, cluster: str, session_id: UUID) -> None:
        self._client.create(node(cluster), leader(session_id), makepath=True)

    def replace(self, cluster: str, session_id: UUID) -> None:
        self._client.set(node(cluster), leader(session_id))


class Store(NamedTuple):
    """Where the leaders are, and who listens to them."""

    flink: ZNodeLeaders | Clusters
    rate: float
    """Writes of each cluster, per second."""
    listeners: Mapping[str, Callable[[str, Path], Listener]]
    """By name: one that listens to a cluster, and logs into a file."""
    at_once: bool


@contextmanager
def _on_zookeeper() -> Iterator[tuple[Store, Path]]:
    with zookeeper() as (server, folder):
        address = server.address
        ours = (*COMMAND, "watch", "--view", "flink", "--output", "json", "--zookeeper", address, "--cluster-id")
        least = (sys.executable, "-m", "tests.bench.least", "zookeeper", address)
        listeners: dict[str, Callable[[str, Path], Listener]] = {
            OURS: lambda cluster, log: Listener([*ours, cluster], log),
            LEAST: lambda cluster, log: Listener([*least, node(cluster)], log),
        }
        if flinks := Flinks(folder):
            listeners[FLINKS] = partial(flinks.listener, address)
        else:
            print("there is no javac: without Flink's listener")
        yield Store(ZNodeLeaders(address), 40, listeners, at_once=True), folder


@contextmanager
def _on_kubernetes() -> Iterator[tuple[Store, Path]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = OpenKubernetes(folder / "kubernetes", _FLINK, _READER)
        try:
            server.start()
            namespace = server.namespace("default")
            namespace.allow(_FLINK, "create", "update")
            namespace.allow(_READER, "get", "list", "watch")
            url, authority, users = server.server.url, server.authority.ca, server.server.users
            where = ("--kubernetes", "--namespace", "default", "--kubeconfig", str(server.kubeconfig(_READER)))
            ours = (*COMMAND, "watch", "--output", "json", *where, "--cluster-id")
            place = (url, str(authority), users[_READER], "default")
            least = (sys.executable, "-m", "tests.bench.least", "kubernetes", *place)
            listeners: dict[str, Callable[[str, Path], Listener]] = {
                OURS: lambda cluster, log: Listener([*ours, cluster], log),
                LEAST: lambda cluster, log: Listener([*least, cluster_config_map(cluster)], log),
            }
            yield Store(Clusters(url, authority, users[_FLINK]), 20, listeners, at_once=False), folder
        finally:
            server.kill()


STORES: Final[Mapping[str, Callable[[], AbstractContextManager[tuple[Store, Path]]]]] = {
    "zookeeper": _on_zookeeper,
    "kubernetes": _on_kubernetes,
}


def main(name: str, seconds: float = SECONDS) -> None:
    """A table for each series, and the targets."""
    with STORES[name]() as (store, folder):
        in_turn = {name: f"in-turn-{number}" for number, name in enumerate(store.listeners)}
        _print("in turn", _measure(store, folder, in_turn, seconds))
        if store.at_once:
            _print("at once", _measure(store, folder, dict.fromkeys(store.listeners, "at-once"), seconds))


def _measure(store: Store, folder: Path, clusters: dict[str, str], seconds: float) -> dict[str, Delays]:
    """What each listener reported; behind them, how long the writes themselves took."""
    written_to, first = [*dict.fromkeys(clusters.values())], uuid4()
    for cluster in written_to:
        store.flink.create(cluster, first)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
        write = partial(_write, store.flink, written_to, store.rate)
        listeners = {
            name: store.listeners[name](cluster, folder / f"{cluster} {name.replace(' ', '-')}.log")
            for name, cluster in clusters.items()
        }
        try:
            for name, listener in listeners.items():
                assert listener.wait_for(str(first), _START_SECONDS), f"{name} does not report the first leader"
            writer.submit(write, _WARM_UP_SECONDS).result(_WARM_UP_SECONDS * 4)
            written = writer.submit(write, seconds).result(seconds * 4)
            for name, listener in listeners.items():
                listener.wait_for(str([*written[clusters[name]]][-1]), _LAST_SECONDS)
                listener.assert_runs()
        finally:
            for listener in listeners.values():
                listener.stop()
    delays = {name: _delays(listener, written[clusters[name]]) for name, listener in listeners.items()}
    writes = [write for writes in written.values() for write in writes.values()]
    answers = [(write.ended - write.began) / 1e6 for write in writes]
    return {**delays, "(the writer: the server answers)": Delays(answers, [0.0], len(writes))}


def _write(
    flink: ZNodeLeaders | Clusters, clusters: Sequence[str], rate: float, seconds: float
) -> dict[str, dict[UUID, Write]]:
    """Set each leader in turn, `rate` times a second, at moments that are in step with nothing. Which session id was set when."""
    random = Random(rate)
    written: dict[str, dict[UUID, Write]] = {cluster: {} for cluster in clusters}
    pause = 1 / rate / len(clusters)
    due = time.monotonic()
    for number in range(int(seconds * rate) * len(clusters)):
        cluster = clusters[number % len(clusters)]
        session_id = uuid4()
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic_ns()
        flink.replace(cluster, session_id)
        written[cluster][session_id] = Write(began, time.monotonic_ns())
        due = max(due, time.monotonic() - pause) + pause * random.uniform(0.7, 1.3)
    return written


def _delays(listener: Listener, written: dict[UUID, Write]) -> Delays:
    """Of the writes that were measured; the line may come before the writer has its answer."""
    reports = [(at, written[session_id]) for at, session_id in _dispatchers(listener) if session_id in written]
    behind_write = [(at - write.began) / 1e6 for at, write in reports]
    return Delays(behind_write, [(at - write.ended) / 1e6 for at, write in reports], len(written))


def _dispatchers(listener: Listener) -> Iterator[tuple[int, UUID]]:
    """When which one was reported."""
    for at, line in listener.lines:
        record = json.decode(line)
        session_id = record.get("after_session_id") or record.get("leader_session_id")
        if record["component"] == "dispatcher" and session_id:
            yield at, UUID(session_id)


def _print(series: str, by_listener: dict[str, Delays]) -> None:
    table = Table(series, "reported", "p50 ms", "p90 ms", "p99 ms", "p50 beside the least", "p50 after the answer, ms")
    middles = {name: median(delays.behind_write) for name, delays in by_listener.items()}
    for name, delays in by_listener.items():
        at = quantiles(delays.behind_write, n=100, method="inclusive")
        table.row(
            name,
            f"{len(delays.behind_write):,} of {delays.writes:,}",
            *(f"{at[percent - 1]:.2f}" for percent in (50, 90, 99)),
            f"{middles[name] / middles[LEAST]:.2f}",
            f"{median(delays.behind_answer):.2f}",
        )
    table.target(f"{series}: p50 beside the least one's", middles[OURS] / middles[LEAST], _TO_LEAST)
    if FLINKS in middles:
        table.target(f"{series}: p50 beside Flink's", middles[OURS] / middles[FLINKS], _TO_FLINKS)
    table.end()


if __name__ == "__main__":
    store, *seconds = sys.argv[1:] or ["zookeeper"]
    main(store, *map(float, seconds))
