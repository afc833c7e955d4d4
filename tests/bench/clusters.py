"""One process that watches many clusters: `python -m tests.bench.clusters [CLUSTERS ...]`, in ConfigMaps of a real API server.

`run` lists them as `clusters`; each has a leader who renews its lease every 5 s. One of them then gets another leader, and that alone is
reported. Requests are those that ended in that time: a watch does after 240 to 290 s, or when its leader was silent for 7 s.
"""

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from uuid import UUID, uuid4

from tests.bench.apiserver import Meter, OpenKubernetes
from tests.bench.configmap import Clusters
from tests.bench.stage import Table
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.receivers import HttpReceiver

CLUSTERS = (1, 50, 200)
SECONDS = 60.0
_RENEW_SECONDS = 5.0
_SETTLE_SECONDS = 10.0
_HOUR = 3600.0
_FLINK, _READER = "flink", "reader"


def main(numbers: tuple[int, ...]) -> None:
    """The table."""
    table = Table(
        "clusters", "RSS MiB", "threads", "CPU %", f"requests in {SECONDS:.0f} s", "MB from the API server, an hour"
    )
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer:
            table.row(f"{number:,}", *measured(number, Path(folder), writer))
    table.end()


def measured(number: int, folder: Path, writer: ProcessPoolExecutor) -> list[str]:
    """A row, without the number of clusters."""
    names = [f"cluster-{place}" for place in range(number)]
    with ExitStack() as ending:
        server = OpenKubernetes(folder / "kubernetes", _FLINK, _READER)
        ending.callback(server.kill)
        server.start()
        namespace = server.namespace("default")
        namespace.allow(_FLINK, "create", "update")
        namespace.allow(_READER, "list", "watch")
        flink, session = Clusters(server.server.url, server.authority.ca, server.server.users[_FLINK]), uuid4()
        for name in names:
            flink.create(name, session)
        meter, receiver = Meter(server.server.address), HttpReceiver()
        ending.callback(meter.close)
        receiver.start()
        ending.callback(receiver.stop)
        kubeconfig = server.kubeconfig(_READER, server=f"https://{meter.address}")
        listed = [
            f"{{kubernetes: {{cluster_id: {name}, namespace: default, kubeconfig: {kubeconfig}}}}}" for name in names
        ]
        sidecar = Sidecar(folder / "sidecar", f"clusters: [{', '.join(listed)}]", [receiver.url])
        ending.callback(sidecar.stop)
        renewing = writer.submit(renew, flink, names, session, SECONDS + 2 * _SETTLE_SECONDS)
        sidecar.start()
        sidecar.wait_ready()
        time.sleep(_SETTLE_SECONDS)
        before, received, asked = sidecar.cpu_seconds(), meter.received, len(server.asked(_READER))
        time.sleep(SECONDS)
        cpu, received = (sidecar.cpu_seconds() - before) / SECONDS, meter.received - received
        asked = len(server.asked(_READER)) - asked
        renewing.result(_HOUR)
        flink.replace(names[-1], uuid4())
        wait_for("the alert", lambda: receiver.received, 60)
        transitions = [transition for transition in sidecar.transitions() if transition["kind"] != "DISCOVERED"]
        assert [(change["cluster_id"], change["kind"]) for change in transitions] == [(names[-1], "CHANGED")]
        assert sidecar.process
        threads = len(list(Path(f"/proc/{sidecar.process.pid}/task").iterdir()))
        return [
            f"{sidecar.memory_mib():.1f}",
            str(threads),
            f"{cpu * 100:.2f}",
            str(asked),
            f"{received / SECONDS * _HOUR / 1e6:,.1f}",
        ]


def renew(flink: Clusters, clusters: list[str], session_id: UUID, seconds: float) -> None:
    """Renew every cluster's lease every 5 s, spread over them."""
    began = due = time.monotonic()
    while due < began + seconds:
        for cluster in clusters:
            time.sleep(max(0.0, due - time.monotonic()))
            flink.replace(cluster, session_id)
            due += _RENEW_SECONDS / len(clusters)


if __name__ == "__main__":
    main(tuple(int(argument) for argument in sys.argv[1:]) or CLUSTERS)
