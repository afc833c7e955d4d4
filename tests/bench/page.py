"""What readers of the page cost the listener: `python -m tests.bench.page [SECONDS]`.

A real ZooKeeper in which leaders fail over twice a second, a real `run` with 10,000 transitions in its journal, and three series: nobody
reads; 20 readers, each of whom gets the status page every 3 s; 500 connections that say nothing, and 50 scrapes at once, over and over.
Measured is the time from the store's write of a new leader (its own clock, in milliseconds) until it is observed, on one machine.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles

from sidecar.journal import Journal
from tests.bench.stage import zookeeper
from tests.kit.cluster import CLUSTER
from tests.kit.leaders import Flapping
from tests.kit.sidecar_process import Sidecar
from tests.shell.remembering import two_failovers
from tests.shell.test_timeline_pictures import flapping

SECONDS = 25.0
READERS, EVERY_SECONDS = 20, 3.0
IDLE, SCRAPES = 500, 50


def main(seconds: float = SECONDS) -> None:
    """One row for each series."""
    with zookeeper() as (server, folder):
        sidecar = Sidecar(folder / "sidecar", f"zookeeper: {{quorum: '{server.address}', cluster_id: {CLUSTER}}}", [])
        _remember(sidecar.state)
        leaders = Flapping(server.address)
        leaders.start()
        sidecar.start()
        try:
            sidecar.wait_ready()
            print("| series | leaders | median | p95 | p99 | longest | CPU | first answer | median answer |")
            print("|---|---|---|---|---|---|---|---|---|")
            for name, disturbing in (
                ("nobody reads", None),
                (f"{READERS} readers", _reading),
                (f"{IDLE} idle connections, {SCRAPES} scrapes at once", _scraping),
            ):
                print(f"| {name} | {_series(sidecar, seconds, disturbing)} |", flush=True)
        finally:
            leaders.stop()
            sidecar.kill()


def _remember(state: Path) -> None:
    """Leave a journal with 10,000 transitions of the last day."""
    like = two_failovers()
    like.now = time.time_ns() // 1000
    journal = Journal(state)
    journal.open()
    assert journal.commit(like.state, flapping(like, 10_000, ["another"]))
    journal.close()


def _series(
    sidecar: Sidecar, seconds: float, disturbing: "Callable[[Sidecar, threading.Event], list[float]] | None"
) -> str:
    began, cpu, over = time.time(), sidecar.cpu_seconds(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        took = pool.submit(disturbing, sidecar, over) if disturbing else None
        time.sleep(seconds)
        over.set()
        pages = took.result() if took else []
    used = (sidecar.cpu_seconds() - cpu) / (time.time() - began)
    delays = sorted(
        1000
        * (datetime.fromisoformat(t["observed_at"]).timestamp() - datetime.fromisoformat(t["written_at"]).timestamp())
        for t in sidecar.transitions()
        if t["kind"] == "GRANTED"
        and t["written_at"]
        and t["cluster_id"] == CLUSTER
        and datetime.fromisoformat(t["observed_at"]).timestamp() > began
    )
    cuts = quantiles(delays, n=100)
    shown = f"{pages[0]:.0f} ms | {median(pages):.0f} ms" if pages else "| "
    return f"{len(delays)} | {median(delays):.1f} ms | {cuts[94]:.1f} ms | {cuts[98]:.1f} ms | {delays[-1]:.1f} ms | {used:.0%} | {shown}"


def _timed(sidecar: Sidecar, path: str) -> float:
    """Milliseconds until the whole answer is read."""
    began = time.monotonic()
    status, _ = sidecar.get(path, 30)
    assert status in {200, 0}, status
    return 1000 * (time.monotonic() - began)


def _reading(sidecar: Sidecar, over: threading.Event) -> list[float]:
    took = [_timed(sidecar, "/")]

    def reads(number: int) -> None:
        over.wait(number * EVERY_SECONDS / READERS)
        while not over.wait(EVERY_SECONDS):
            took.append(_timed(sidecar, "/"))

    with ThreadPoolExecutor(READERS) as readers:
        list(readers.map(reads, range(READERS)))
    return took


@contextmanager
def _idle(port: int) -> Iterator[None]:
    """Connections that say nothing, opened again as they are closed."""
    opened: list[socket.socket] = []
    for _ in range(IDLE):
        with suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=5))
    try:
        yield
    finally:
        for connection in opened:
            connection.close()


def _scraping(sidecar: Sidecar, over: threading.Event) -> list[float]:
    took: list[float] = []
    with ThreadPoolExecutor(SCRAPES) as scrapers:
        while not over.wait(1.0):
            with _idle(sidecar.port):
                took += scrapers.map(lambda _: _timed(sidecar, "/metrics"), range(SCRAPES))
    return took


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
