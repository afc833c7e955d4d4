"""What the sidecar costs while nothing happens: `python -m tests.bench.idle [zookeeper|kubernetes] [SECONDS]`, on a real store.

`run` with one HTTP receiver: beside four leaders in ZooKeeper, or beside a leader in a ConfigMap who renews its lease every 5 s, and what
a renewal costs. There, from 300 s on, a watch comes to its orderly end, beside another cluster with another leader each second, of whom
`watch` must report all.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from msgspec import json

from tests.bench.apiserver import Asked, OpenKubernetes
from tests.bench.configmap import Clusters
from tests.bench.stage import Listener, Table, zookeeper
from tests.kit.leaders import Leaders
from tests.kit.relay import Wire
from tests.kit.sidecar_process import COMMAND, Sidecar
from tests.lab.receivers import HttpReceiver

RENEWALS, RATE = 2_000, 50.0
_WATCH_ENDS_SECONDS = 300.0
_START_SECONDS = 60.0
_SETTLE_SECONDS = 10.0
_LAST_SECONDS = 5.0
_MOST_MIB, _MOST_PERCENT = 52.0, 0.3
_HOUR = 3600.0
_FLINK, _READER = "flink", "reader"


class Spent(NamedTuple):
    """Until a moment (monotonic)."""

    at: float
    cpu_seconds: float
    children_seconds: float
    """CPU of the children that have ended."""
    received: int
    sent: int

    @classmethod
    def by(cls, sidecar: Sidecar, wire: Wire) -> "Spent":
        """Until now. `wire`: the sidecar's way to the store."""
        return cls(time.monotonic(), sidecar.cpu_seconds(), _children_seconds(sidecar), wire.received, wire.sent)

    def since(self, other: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(self, other, strict=True)))  # type: ignore[arg-type]


def on_zookeeper(seconds: float) -> None:
    """One table, and the targets."""
    with zookeeper() as (server, folder), ExitStack() as ending:
        leaders = Leaders(server.address)
        leaders.start()
        ending.callback(leaders.stop)
        wire = Wire(server.address)
        ending.callback(wire.close)
        sidecar = _started(folder, f"zookeeper: {{quorum: '{wire.address}'}}", ending)
        time.sleep(_SETTLE_SECONDS)
        _print_idle(sidecar, wire, seconds)


def on_kubernetes(seconds: float) -> None:
    """Two tables and the targets; of a long run also what was asked, and what was reported around the orderly end of a watch."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as ending:
        writers = ending.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn")))
        folder = Path(name)
        server = OpenKubernetes(folder / "kubernetes", _FLINK, _READER)
        ending.callback(server.kill)
        server.start()
        namespace = server.namespace("default")
        namespace.allow(_FLINK, "create", "update")
        namespace.allow(_READER, "get", "list", "watch")
        flink = Clusters(server.server.url, server.authority.ca, server.server.users[_FLINK])
        flink.create("idle", session := uuid4())
        wire = Wire(server.server.address)
        ending.callback(wire.close)
        renewing = writers.submit(renew, flink, "idle", session, int((seconds + 2 * _SETTLE_SECONDS) / 5), 0.2)
        kubeconfig = server.kubeconfig(_READER, server=f"https://{wire.address}")
        place = f"kubernetes: {{cluster_id: idle, namespace: default, kubeconfig: {kubeconfig}}}"
        sidecar = _started(folder, place, ending)
        with _changing(server, folder, flink, writers, seconds):
            time.sleep(_SETTLE_SECONDS)
            _print_idle(sidecar, wire, seconds)
        renewing.result(_START_SECONDS)
        before = Spent.by(sidecar, wire)
        writers.submit(renew, flink, "idle", session, RENEWALS, RATE).result(RENEWALS / RATE * 4)
        time.sleep(_LAST_SECONDS)
        _print_renewals(Spent.by(sidecar, wire).since(before))
        transitions = [transition for transition in sidecar.transitions() if transition["kind"] != "DISCOVERED"]
        assert not transitions, f"a renewal was taken for news: {transitions[0]}"
        sidecar.stop()  # its last request is over then
        if seconds >= _WATCH_ENDS_SECONDS:
            _print_asked("`run`", [each for each in server.asked(_READER) if "idle-cluster-config-map" in each.uri])


def _started(folder: Path, place: str, ending: ExitStack) -> Sidecar:
    """A ready one, with a receiver."""
    receiver = HttpReceiver()
    receiver.start()
    ending.callback(receiver.stop)
    sidecar = Sidecar(folder / "sidecar", place, [receiver.url])
    ending.callback(sidecar.stop)
    sidecar.start().wait_ready()
    return sidecar


def renew(flink: Clusters, cluster: str, session_id: UUID, renewals: int, rate: float) -> None:
    """So many renewals, `rate` a second: none is a transition."""
    due = time.monotonic()
    for _ in range(renewals):
        time.sleep(max(0.0, due - time.monotonic()))
        flink.replace(cluster, session_id)
        due += 1 / rate


def change(flink: Clusters, cluster: str, changes: int) -> list[UUID]:
    """So many leaders, one each second."""
    sessions = [uuid4() for _ in range(changes)]
    for session_id in sessions:
        flink.replace(cluster, session_id)
        time.sleep(1.0)
    return sessions


@contextmanager
def _changing(
    server: OpenKubernetes, folder: Path, flink: Clusters, writers: Executor, seconds: float
) -> Iterator[None]:
    """In a long run, another cluster with another leader each second, and `watch` beside it. It must report all, once and in order."""
    if seconds < _WATCH_ENDS_SECONDS:
        yield
        return
    flink.create("changing", first := uuid4())
    where = ("--kubernetes", "--namespace", "default", "--kubeconfig", str(server.kubeconfig(_READER)))
    command = [*COMMAND, "watch", "--output", "json", *where, "--cluster-id", "changing"]
    listener = Listener(command, folder / "changing.log")
    try:
        assert listener.wait_for(str(first), _START_SECONDS), "watch does not report the first leader"
        changes: Future[list[UUID]] = writers.submit(change, flink, "changing", int(seconds))
        yield
        written = changes.result(_START_SECONDS)
        listener.wait_for(str(written[-1]), _LAST_SECONDS)
        listener.assert_runs()
    finally:
        listener.stop()
    lines = [json.decode(line) for _, line in listener.lines]
    dispatchers = [(line["kind"], line["after_session_id"]) for line in lines if line["component"] == "dispatcher"]
    exactly = dispatchers == [("DISCOVERED", str(first)), *(("CHANGED", str(session_id)) for session_id in written)]
    asked = [each for each in server.asked(_READER) if "changing-cluster-config-map" in each.uri]
    _print_asked("`watch`", asked)
    print(
        f"of {len(written):,} leaders of the dispatcher, one each second, `watch` reported {len(dispatchers) - 1:,}: ",
        "each once, in order, and nothing else" if exactly else "NOT as they were written",
        "\n",
        sep="",
        flush=True,
    )
    assert exactly, "a transition is missing, or there is one too many"


def _print_idle(sidecar: Sidecar, wire: Wire, seconds: float) -> None:
    before = Spent.by(sidecar, wire)
    time.sleep(seconds)
    idle = Spent.by(sidecar, wire).since(before)
    sidecar.get("/metrics")
    table = Table("`run`, idle", f"in {idle.at:.0f} s", "an hour")
    mib, percent = sidecar.memory_mib(), idle.cpu_seconds / idle.at * 100
    table.row("RSS, MiB", f"{mib:.1f}", "")
    table.row("CPU, % of a core", f"{percent:.2f}", "")
    table.row("CPU of its children, s", f"{idle.children_seconds:.2f}", "")
    for what, count in (("from", idle.received), ("to", idle.sent)):
        table.row(f"kB {what} the store", f"{count / 1000:.1f}", f"{count / idle.at * _HOUR / 1000:,.0f}")
    table.target("RSS", mib, _MOST_MIB, " MiB")
    table.target("CPU", percent, _MOST_PERCENT, " %")
    table.end()


def _print_renewals(storm: Spent) -> None:
    table = Table(f"{RENEWALS:,} renewals, {RATE:.0f} a second", "each")
    table.row("CPU, ms", f"{storm.cpu_seconds / RENEWALS * 1000:.2f}")
    table.row("kB from the API server", f"{storm.received / RENEWALS / 1000:.2f}")
    table.end()


def _print_asked(who: str, asked: list[Asked]) -> None:
    """The last of them ended with the process."""
    table = Table(f"{who} asked, at s", "for", "with timeoutSeconds", "for s", "answer")
    began = min(datetime.fromisoformat(request.began) for request in asked)
    orderly = []
    for request in sorted(asked):
        start, end = (datetime.fromisoformat(text) for text in (request.began, request.ended))
        lasted = (end - start).total_seconds()
        wanted = parse_qs(urlsplit(request.uri).query).get("timeoutSeconds", [""])[0]
        table.row(f"{(start - began).total_seconds():.1f}", request.verb, wanted, f"{lasted:.1f}", request.status)
        if wanted and lasted >= int(wanted):
            orderly.append(lasted)
    table.end()
    assert orderly, "no watch came to its orderly end"
    each_hour = 2 * _HOUR / (sum(orderly) / len(orderly))
    print(f"{who}: a list and a watch as often as this: {each_hour:.0f} requests an hour\n", flush=True)


def _children_seconds(sidecar: Sidecar) -> float:
    assert sidecar.process is not None
    fields = Path(f"/proc/{sidecar.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


STORES: Mapping[str, Callable[[float], None]] = {"zookeeper": on_zookeeper, "kubernetes": on_kubernetes}


def main(store: str, seconds: float = 60.0) -> None:
    STORES[store](seconds)


if __name__ == "__main__":
    store, *seconds = sys.argv[1:] or ["zookeeper"]
    main(store, *map(float, seconds))
