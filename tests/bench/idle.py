"""What the sidecar costs while nothing happens. `python -m tests.bench.idle [SECONDS]`."""

import sys
import tempfile
import time
from pathlib import Path

from kazoo.client import KazooClient

from sidecar.lab.distribution import flink_home
from sidecar.lab.java import find_java
from sidecar.lab.receivers import HttpReceiver
from sidecar.lab.zookeeper import ZooKeeper
from tests.e2e.sidecar import Sidecar
from tests.shell.scenes import leader_bytes

SETTLE_SECONDS = 5
NAMES = ("resource_manager", "dispatcher", "rest_server", "job-" + "ab" * 16)


def main() -> None:
    """Resident memory and CPU of `run` on a real ZooKeeper with one HTTP receiver and four leaders."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeper(Path(folder) / "zookeeper", flink_home("2.3.0", print), find_java())
        zookeeper.start()
        receiver = HttpReceiver()
        receiver.start()
        leader = KazooClient(zookeeper.address)
        leader.start()
        sidecar = Sidecar(Path(folder) / "sidecar", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [receiver.url])
        try:
            for name in NAMES:
                path = f"/flink/default/leader/{name}/connection_info"
                leader.create(path, leader_bytes("pekko.tcp://flink@jm-0:6123/x", 1), ephemeral=True, makepath=True)
            sidecar.start()
            sidecar.wait_ready()
            time.sleep(SETTLE_SECONDS)
            before, began = sidecar.cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            share = (sidecar.cpu_seconds() - before) / (time.monotonic() - began)
            sidecar.get("/metrics")
            print("| RSS MiB | CPU % of a core | over s |")
            print("|---|---|---|")
            print(f"| {sidecar.memory_mib():.1f} | {share * 100:.2f} | {seconds:.0f} |")
        finally:
            sidecar.stop()
            leader.stop()
            leader.close()
            receiver.stop()
            zookeeper.kill()


if __name__ == "__main__":
    main()
