"""What the sidecar costs while nothing happens. `python -m tests.bench.idle [SECONDS]`."""

import sys
import tempfile
import time
from pathlib import Path

from tests.kit.leaders import Leaders
from tests.kit.sidecar_process import Sidecar
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.lab.receivers import HttpReceiver
from tests.lab.zookeeper import ZooKeeper

SETTLE_SECONDS = 5


def main() -> None:
    """Resident memory and CPU of `run` on a real ZooKeeper with one HTTP receiver and four leaders."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeper(Path(folder) / "zookeeper", flink_home("2.3.0", print), find_java())
        zookeeper.start()
        receiver = HttpReceiver()
        receiver.start()
        leaders = Leaders(zookeeper.address)
        leaders.start()
        sidecar = Sidecar(Path(folder) / "sidecar", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [receiver.url])
        try:
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
            leaders.stop()
            receiver.stop()
            zookeeper.kill()


if __name__ == "__main__":
    main()
