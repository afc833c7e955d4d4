"""What it costs to listen to the ConfigMaps of Kubernetes: `python -m tests.bench.kubernetes [SECONDS]`, on a real API server.

- From a write to the line: `watch --output json` and the least that can be (tests/bench/bare.py), each a process whose stdout is read here,
  each on a ConfigMap of its own; a writer in a process of its own changes their leaders in turn. All times are on one clock.
- Idle, and a renewal (tests/bench/upkeep.py): `run` while its leader renews the lease every 5 s, for so many seconds (60). From 300 s on, a
  watch comes to its orderly end.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median, quantiles
from uuid import UUID, uuid4

from msgspec import json

from tests.bench.apiserver import OpenKubernetes
from tests.bench.configmap import Clusters, cluster_config_map
from tests.bench.latency import Delays, Write
from tests.bench.stage import Listener, Table
from tests.bench.upkeep import upkeep
from tests.kit.sidecar_process import COMMAND

TRANSITIONS = 500
RATE = 20
"""Writes of each ConfigMap, per second."""
SECONDS = 60.0
_WARM_UP = 60
_START_SECONDS = 60.0
_LAST_SECONDS = 5.0
_TO_BARE = 1.3
_FLINK, _READER = "flink", "reader"
_OURS, _BARE = "watch --output json", "bare urllib3"


def main(seconds: float = SECONDS) -> None:
    """The tables and the targets."""
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(2, mp_context=get_context("spawn")) as writers:
        folder = Path(name)
        server = OpenKubernetes(folder / "kubernetes", _FLINK, _READER)
        try:
            server.start()
            namespace = server.namespace("default")
            namespace.allow(_FLINK, "create", "update")
            namespace.allow(_READER, "get", "list", "watch")
            flink = Clusters(server.server.url, server.authority.ca, server.server.users[_FLINK])
            _latency(server, folder, flink, writers)
            upkeep(server, folder, flink, writers, _READER, seconds)
        finally:
            server.kill()


def _latency(server: OpenKubernetes, folder: Path, flink: Clusters, writers: Executor) -> None:
    clusters = {_OURS: "in-turn-0", _BARE: "in-turn-1"}
    in_turn, first = list(clusters.values()), uuid4()
    for cluster in in_turn:
        flink.create(cluster, first)
    listeners = {name: _listener(server, folder, name, cluster) for name, cluster in clusters.items()}
    try:
        for name, listener in listeners.items():
            assert listener.wait_for(str(first), _START_SECONDS), f"{name} does not report the first leader"
        writers.submit(write, flink, in_turn, _WARM_UP).result(_START_SECONDS)
        written = writers.submit(write, flink, in_turn, TRANSITIONS).result(_START_SECONDS * 4)
        for name, listener in listeners.items():
            listener.wait_for(str(list(written[clusters[name]])[-1]), _LAST_SECONDS)
            listener.assert_runs()
    finally:
        for listener in listeners.values():
            listener.stop()
    _print({name: _delays(listener, written[clusters[name]]) for name, listener in listeners.items()}, written)


def _listener(server: OpenKubernetes, folder: Path, name: str, cluster: str) -> Listener:
    log = folder / f"{cluster}.log"
    if name == _OURS:
        where = ("--kubernetes", "--namespace", "default", "--kubeconfig", str(server.kubeconfig(_READER)))
        return Listener([*COMMAND, "watch", "--output", "json", *where, "--cluster-id", cluster], log)
    place = (server.server.url, str(server.authority.ca), server.server.users[_READER], "default")
    return Listener([sys.executable, "-m", "tests.bench.bare", *place, cluster_config_map(cluster)], log)


def write(flink: Clusters, clusters: Sequence[str], changes: int) -> dict[str, dict[UUID, Write]]:
    """Change the leader of each cluster in turn, at moments that are in step with nothing. Which session id was written when."""
    random = Random(RATE)
    written: dict[str, dict[UUID, Write]] = {cluster: {} for cluster in clusters}
    pause = 1 / RATE / len(clusters)
    due = time.monotonic()
    for number in range(changes * len(clusters)):
        cluster = clusters[number % len(clusters)]
        session_id = uuid4()
        time.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic_ns()
        flink.replace(cluster, session_id)
        written[cluster][session_id] = Write(began, time.monotonic_ns())
        due = max(due, time.monotonic() - pause) + pause * random.uniform(0.7, 1.3)
    return written


def _delays(listener: Listener, written: dict[UUID, Write]) -> Delays:
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


def _print(by_listener: dict[str, Delays], written: dict[str, dict[UUID, Write]]) -> None:
    answers = [(write.ended - write.began) / 1e6 for writes in written.values() for write in writes.values()]
    bare = median(by_listener[_BARE].behind_write)
    table = Table("in turn", "reported", "p50 ms", "p90 ms", "p99 ms", "p50 beside bare", "p50 after the answer, ms")
    for name, delays in {
        **by_listener,
        "(the writer: the PUT is answered)": Delays(answers, [0.0], len(answers)),
    }.items():
        at = quantiles(delays.behind_write, n=100, method="inclusive")
        table.row(
            name,
            f"{len(delays.behind_write):,} of {delays.writes:,}",
            *(f"{at[percent - 1]:.2f}" for percent in (50, 90, 99)),
            f"{median(delays.behind_write) / bare:.2f}",
            f"{median(delays.behind_answer):.2f}",
        )
    table.target("p50 beside the bare reader's", median(by_listener[_OURS].behind_write) / bare, _TO_BARE)
    table.end()


if __name__ == "__main__":
    main(*(float(argument) for argument in sys.argv[1:]))
