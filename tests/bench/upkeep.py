"""What the sidecar costs itself and the API server while a leader renews its lease: a part of `tests.bench.kubernetes`."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from msgspec import json

from tests.bench.apiserver import Asked, Meter, OpenKubernetes
from tests.bench.configmap import Clusters
from tests.bench.stage import Listener, Table
from tests.kit.sidecar_process import COMMAND, Sidecar
from tests.lab.receivers import HttpReceiver

RENEWALS, RATE = 2_000, 50.0
_WATCH_ENDS_SECONDS = 300.0
_START_SECONDS = 60.0
_SETTLE_SECONDS = 10.0
_LAST_SECONDS = 5.0
_MOST_MIB, _MOST_PERCENT = 52.0, 0.3
_HOUR = 3600.0


class Spent(NamedTuple):
    """Until a moment (monotonic)."""

    at: float
    cpu_seconds: float
    children_seconds: float
    """CPU of the children that have ended."""
    received: int
    sent: int

    def since(self, other: "Spent") -> "Spent":
        return Spent(
            self.at - other.at,
            self.cpu_seconds - other.cpu_seconds,
            self.children_seconds - other.children_seconds,
            self.received - other.received,
            self.sent - other.sent,
        )


def upkeep(server: OpenKubernetes, folder: Path, flink: Clusters, writers: Executor, user: str, seconds: float) -> None:
    """Two tables and the targets; of a long run also what was asked, and what was reported around the orderly end of a watch."""
    flink.create("idle", session := uuid4())
    meter, receiver = Meter(server.server.address), HttpReceiver()
    receiver.start()
    place = f"kubernetes: {{cluster_id: idle, namespace: default, kubeconfig: {_by_way_of(meter, server, user)}}}"
    sidecar = Sidecar(folder / "sidecar", place, [receiver.url])

    def spent() -> Spent:
        return Spent(time.monotonic(), sidecar.cpu_seconds(), _children_seconds(sidecar), meter.received, meter.sent)

    asked = len(server.asked(user))
    renewing = writers.submit(renew, flink, "idle", session, int((seconds + 2 * _SETTLE_SECONDS) / 5), 0.2)
    try:
        sidecar.start()
        sidecar.wait_ready()
        with _changing(server, folder, flink, writers, user, seconds):
            time.sleep(_SETTLE_SECONDS)
            before = spent()
            time.sleep(seconds)
            idle = spent().since(before)
            sidecar.get("/metrics")
            _print_idle(sidecar, idle)
        renewing.result(_START_SECONDS)
        before = spent()
        writers.submit(renew, flink, "idle", session, RENEWALS, RATE).result(RENEWALS / RATE * 4)
        time.sleep(_LAST_SECONDS)
        _print_renewals(spent().since(before))
        transitions = [transition for transition in sidecar.transitions() if transition["kind"] != "DISCOVERED"]
        assert not transitions, f"a renewal was taken for news: {transitions[0]}"
    finally:
        sidecar.stop()
        receiver.stop()
        meter.close()
    if seconds >= _WATCH_ENDS_SECONDS:
        _print_asked("`run`", [each for each in server.asked(user)[asked:] if "idle-cluster-config-map" in each.uri])


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
    server: OpenKubernetes, folder: Path, flink: Clusters, writers: Executor, user: str, seconds: float
) -> Iterator[None]:
    """In a long run, another cluster with another leader each second, and `watch` beside it. It must report all, once and in order."""
    if seconds < _WATCH_ENDS_SECONDS:
        yield
        return
    flink.create("changing", first := uuid4())
    where = ("--kubernetes", "--namespace", "default", "--kubeconfig", str(server.kubeconfig(user)))
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
    asked = [each for each in server.asked(user) if "changing-cluster-config-map" in each.uri]
    _print_asked("`watch`", asked)
    print(
        f"of {len(written):,} leaders of the dispatcher, one each second, `watch` reported {len(dispatchers) - 1:,}: ",
        "each once, in order, and nothing else" if exactly else "NOT as they were written",
        "\n",
        sep="",
        flush=True,
    )
    assert exactly, "a transition is missing, or there is one too many"


def _print_idle(sidecar: Sidecar, idle: Spent) -> None:
    table = Table("`run`, idle", f"in {idle.at:.0f} s", "an hour")
    mib, percent = sidecar.memory_mib(), idle.cpu_seconds / idle.at * 100
    table.row("RSS, MiB", f"{mib:.1f}", "")
    table.row("CPU, % of a core", f"{percent:.2f}", "")
    table.row("CPU of its children, s", f"{idle.children_seconds:.2f}", "")
    for what, count in (("from", idle.received), ("to", idle.sent)):
        table.row(f"kB {what} the API server", f"{count / 1000:.1f}", f"{count / idle.at * _HOUR / 1000:,.0f}")
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


def _by_way_of(meter: Meter, server: OpenKubernetes, user: str) -> Path:
    return server.kubeconfig(user, server=f"https://{meter.address}")
