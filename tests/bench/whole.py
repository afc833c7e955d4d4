"""The whole `run` with as many jobs as a cluster may have: `python -m tests.bench.whole [JOBS]`.

A real ZooKeeper with what Flink 2 keeps of so many jobs, and the real command. It starts; all jobs change their leader at once; the server
is killed and started again. What is done is read from the journal, not from the page, so that nobody asks while it is measured.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from uuid import UUID

from kazoo.client import KazooClient

from sidecar.core.bounds import JOBS_OF_CLUSTER
from tests.bench.paths import WRITERS, change, populate
from tests.bench.stage import ROOT, Table, leader, node, zookeeper
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import until, wait_for
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

JOBS = JOBS_OF_CLUSTER.most_items
_CLUSTER = "full"
_COMPONENTS = ("resource_manager", "dispatcher", "rest_server")
_SETTLE_SECONDS = 5.0
_MOST_SECONDS = 300.0
_MOST_START_SECONDS, _MOST_STORM_SECONDS, _MOST_RESTART_SECONDS = 3.0, 5.0, 5.0


def main(jobs: int = JOBS) -> None:
    """One table, and the targets."""
    ids = [f"{number:032x}" for number in range(jobs)]
    with zookeeper() as (server, folder):
        populate(server.address, ids)
        lead(server.address)
        people = HttpReceiver()
        people.start()
        cluster = f"zookeeper: {{quorum: '{server.address}', root: {ROOT}, cluster_id: {_CLUSTER}}}"
        sidecar = Sidecar(folder / "sidecar", cluster, [people.url])
        table = Table(f"{jobs:,} jobs", "s", "CPU s", "RSS MiB", "peak MiB")
        try:
            began = time.monotonic()
            sidecar.start()
            sidecar.wait_ready(_MOST_SECONDS)
            _row(table, sidecar, "start until everything is read", time.monotonic() - began, 0.0, _MOST_START_SECONDS)
            time.sleep(_SETTLE_SECONDS)
            cpu = sidecar.cpu_seconds()
            drained = _storm(server.address, sidecar, ids)
            _row(table, sidecar, "storm, last write to last record", drained, cpu, _MOST_STORM_SECONDS)
            time.sleep(_SETTLE_SECONDS)
            cpu = sidecar.cpu_seconds()
            back = _restart(server, sidecar)
            _row(table, sidecar, "server serves again until everything is read", back, cpu, _MOST_RESTART_SECONDS)
            table.end()
        finally:
            sidecar.stop()
            people.stop()


def _row(table: Table, sidecar: Sidecar, what: str, seconds: float, cpu: float, most: float) -> None:
    """`cpu`: seconds of CPU time before."""
    memory = f"{sidecar.memory_mib():.1f}", f"{sidecar.memory_mib('VmHWM'):.1f}"
    table.row(what, f"{seconds:.2f}", f"{sidecar.cpu_seconds() - cpu:.2f}", *memory)
    table.target(what, seconds, most, " s")


def lead(address: str) -> None:
    """Leaders of the cluster's own components."""
    client = KazooClient(address)
    client.start()
    for component in _COMPONENTS:
        client.create(node(_CLUSTER, f"/leader/{component}"), leader(UUID(int=1)), makepath=True)
    client.stop()
    client.close()


def _storm(address: str, sidecar: Sidecar, ids: Sequence[str]) -> float:
    """Seconds from the answer to the last write until the last transition was recorded, after each job has another leader."""
    begin_at = time.monotonic_ns() + int(_SETTLE_SECONDS * 1e9)
    with ProcessPoolExecutor(WRITERS, mp_context=get_context("spawn")) as processes:
        writers = [processes.submit(change, address, ids[each::WRITERS], begin_at, 1, 1, 1) for each in range(WRITERS)]
        last = max(writer.result(_MOST_SECONDS) for writer in writers)
    last_write = time.time() - (time.monotonic_ns() - last) / 1e9
    assert until(lambda: len(_changes(sidecar)) == len(ids), _MOST_SECONDS, every=2.0), "changes are missing"
    return max(map(_recorded, _changes(sidecar))) - last_write


def _changes(sidecar: Sidecar) -> list[str]:
    """When (RFC 3339) each change of a job's leader was recorded."""
    return [record["recorded_at"] for record in sidecar.transitions() if record["kind"] == "CHANGED"]


def _recorded(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _restart(server: ZooKeeper, sidecar: Sidecar) -> float:
    """Seconds from when the server serves again until everything has been read."""
    server.kill()
    wait_for("the loss of the connection", lambda: sidecar.get("/readyz")[0] == 503, _MOST_SECONDS)
    server.start()
    began = time.monotonic()
    sidecar.wait_ready(_MOST_SECONDS)
    return time.monotonic() - began


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
