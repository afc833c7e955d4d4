"""From a write to the line that reports it: `python -m tests.bench.latency [SECONDS]`.

Three listeners, each a process whose stdout is read here: `watch --view flink --output json`, a minimal one on kazoo
(tests/bench/minimal.py) and Flink's own. A writer in a process of its own sets the dispatcher's leader, with a fresh session id each time.
The time is taken just before `set()`, when the server has answered it, and when the line is in hand, on one clock. Two series, in one run:

- in turn: each listener has a node of its own, and they are written one after the other: the same moment, disk and machine for all,
  while nobody else is busy with the same write;
- at once: all watch the same node, and compete for the cores.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import NamedTuple
from uuid import UUID, uuid4

from kazoo.client import KazooClient
from msgspec import json

from tests.bench.stage import Flinks, Listener, Table, leader, node, zookeeper
from tests.kit.sidecar_process import COMMAND
from tests.kit.zookeeper_client import connected

RATE = 40
"""Writes of each node, per second."""
SECONDS = 30.0
_WARM_UP_SECONDS = 5.0
_START_SECONDS = 60.0
_LAST_SECONDS = 5.0
_TO_MINIMAL, _TO_FLINKS = 1.3, 1.0
OURS, MINIMAL, FLINKS = "watch --view flink", "minimal kazoo", "Flink's listener"


class Write(NamedTuple):
    """Monotonic nanoseconds: just before `set()`, and when the server had answered it."""

    began: int
    ended: int


class Delays(NamedTuple):
    """Of how many writes which were reported, and how late: milliseconds since the write, and since the server's answer to it."""

    behind_write: list[float]
    behind_answer: list[float]
    writes: int


def main(seconds: float = SECONDS) -> None:
    """Two tables and the targets."""
    with zookeeper() as (server, folder):
        flinks = Flinks(folder)
        names = (OURS, MINIMAL, FLINKS) if flinks else (OURS, MINIMAL)
        if not flinks:
            print("there is no javac: without Flink's listener")
        for series, clusters in (
            ("in turn", {name: f"in-turn-{number}" for number, name in enumerate(names)}),
            ("at once", dict.fromkeys(names, "at-once")),
        ):
            _series(series, _measure(server.address, folder, flinks, clusters, seconds))


def _measure(address: str, folder: Path, flinks: Flinks, clusters: dict[str, str], seconds: float) -> dict[str, Delays]:
    """What each listener reported; behind them, how long the writes themselves took."""
    paths = [node(cluster) for cluster in dict.fromkeys(clusters.values())]
    spawning = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning) as writer:
        first = UUID(int=1)
        writer.submit(create, address, paths, first).result(_START_SECONDS)
        listeners = {name: _listener(name, address, cluster, folder, flinks) for name, cluster in clusters.items()}
        try:
            for name, listener in listeners.items():
                assert listener.wait_for(str(first), _START_SECONDS), f"{name} does not report the first leader"
            writer.submit(write, address, paths, _WARM_UP_SECONDS).result(_WARM_UP_SECONDS * 4)
            written = writer.submit(write, address, paths, seconds).result(seconds * 4)
            last = {path: str(list(writes)[-1]) for path, writes in written.items()}
            for name, listener in listeners.items():
                listener.wait_for(last[node(clusters[name])], _LAST_SECONDS)
                listener.assert_runs()
        finally:
            for listener in listeners.values():
                listener.stop()
    delays = {name: _delays(listener, written[node(clusters[name])]) for name, listener in listeners.items()}
    writes = [write for writes in written.values() for write in writes.values()]
    answers = [(write.ended - write.began) / 1e6 for write in writes]
    return {**delays, "(the writer: `set()` returns)": Delays(answers, [0.0], len(writes))}


def _listener(name: str, address: str, cluster_id: str, folder: Path, flinks: Flinks) -> Listener:
    log = folder / f"{cluster_id} {name.replace(' ', '-')}.log"
    if name == OURS:
        options = ("--view", "flink", "--output", "json", "--zookeeper", address, "--cluster-id", cluster_id)
        return Listener([*COMMAND, "watch", *options], log)
    if name == MINIMAL:
        return Listener([sys.executable, "-m", "tests.bench.minimal", address, node(cluster_id)], log)
    return flinks.listener(address, cluster_id, log)


def create(address: str, paths: Sequence[str], session_id: UUID) -> None:
    """The first leaders. They are persistent, as no client lasts."""
    with connected(address) as client:
        for path in paths:
            client.create(path, leader(session_id), makepath=True)


def write(address: str, paths: Sequence[str], seconds: float) -> dict[str, dict[UUID, Write]]:
    """Set each path in turn, `RATE` times a second, at moments that are in step with nothing. Which session id was set when."""
    random = Random(RATE)
    client = KazooClient(address)
    client.start()
    written: dict[str, dict[UUID, Write]] = {path: {} for path in paths}
    pause = 1 / RATE / len(paths)
    due = time.monotonic()
    for number in range(int(seconds * RATE) * len(paths)):
        path = paths[number % len(paths)]
        session_id = uuid4()
        data = leader(session_id)
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic_ns()
        client.set(path, data)
        written[path][session_id] = Write(began, time.monotonic_ns())
        due = max(due, time.monotonic() - pause) + pause * random.uniform(0.7, 1.3)
    client.stop()
    client.close()
    return written


def _delays(listener: Listener, written: dict[UUID, Write]) -> Delays:
    """Of the writes that were measured; the line may come before the writer has its answer."""
    lines = ((at, UUID(json.decode(line)["leader_session_id"])) for at, line in listener.lines)
    reports = [(at, written[session_id]) for at, session_id in lines if session_id in written]
    behind_write = [(at - write.began) / 1e6 for at, write in reports]
    return Delays(behind_write, [(at - write.ended) / 1e6 for at, write in reports], len(written))


def _series(series: str, by_listener: dict[str, Delays]) -> None:
    table = Table(series, "reported", "p50 ms", "p90 ms", "p99 ms", "p50 beside minimal", "p50 after the answer, ms")
    middles = {name: median(delays.behind_write) for name, delays in by_listener.items()}
    for name, delays in by_listener.items():
        at = quantiles(delays.behind_write, n=100, method="inclusive")
        table.row(
            name,
            f"{len(delays.behind_write):,} of {delays.writes:,}",
            *(f"{at[percent - 1]:.2f}" for percent in (50, 90, 99)),
            f"{middles[name] / middles[MINIMAL]:.2f}",
            f"{median(delays.behind_answer):.2f}",
        )
    table.target(f"{series}: p50 beside the minimal one's", middles[OURS] / middles[MINIMAL], _TO_MINIMAL)
    if FLINKS in middles:
        table.target(f"{series}: p50 beside Flink's", middles[OURS] / middles[FLINKS], _TO_FLINKS)
    table.end()


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:]))
