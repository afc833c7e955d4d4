"""What one document of a stranger costs: long addresses, slow patterns, a segment that unpacks to much. `python -m tests.bench.hostile`.

Each part has a process of its own, for its peak of memory: `python -m tests.bench.hostile addresses 300`.
"""

import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from uuid import uuid4

from kazoo.client import KazooClient
from msgspec.structs import replace

from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.policy.labels import Matcher, Operator
from sidecar.sinks.spool.chain import read_chain
from sidecar.sinks.spool.folder import Folder
from tests.core.alerting.test_silences import Silenced, silence
from tests.core.groups import ALL, LOW, alert
from tests.kit.java_serialization import connection_info
from tests.kit.sidecar_process import Sidecar
from tests.lab.distribution import flink_home
from tests.lab.java import find_java
from tests.lab.zookeeper import ZooKeeper

ADDRESS_BYTES: Final = 65_000
JOBS: Final = 600
PATTERNS: Final = 50
"""As many as a document may have."""
SLOW: Final = f"({'[a-z0-9]?' * 19})*x"
RECORDS: Final = 8000
RECORD_BYTES: Final = 60_000
PARTS: Final = (("addresses", "300"), ("addresses", "1000"), ("patterns", ""), ("segment", ""))


def addresses(writes: int) -> str:
    """So many addresses of 65 kB, one after the other, in the dispatcher's leader."""
    path = "/flink/default/leader/dispatcher/connection_info"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        zookeeper = ZooKeeper(folder / "zookeeper", flink_home("2.3.0", print), find_java())
        zookeeper.start()
        client = KazooClient(zookeeper.address)
        client.start()
        client.create(
            path, connection_info("pekko.tcp://flink@jm-0:6123/user/rpc/dispatcher_1", uuid4()), makepath=True
        )
        sidecar = Sidecar(folder / "sidecar", f"zookeeper: {{quorum: '{zookeeper.address}'}}", [])
        sidecar.start()
        try:
            sidecar.wait_ready(90)
            peak = sidecar.memory_mib()
            for _ in range(writes):
                client.set(path, connection_info(f"pekko.tcp://flink@{'x' * ADDRESS_BYTES}", uuid4()))
                time.sleep(0.02)
                peak = max(peak, sidecar.memory_mib())
            for _ in range(15):
                time.sleep(1)
                peak = max(peak, sidecar.memory_mib())
            journal = sum(file.stat().st_size for file in sidecar.state.rglob("*") if file.is_file())
            _, answer = sidecar.get("/api/v1/transitions?last=1000", 120)
            return f"{writes} addresses: peak {peak:.0f} MiB, journal {journal / 1e6:.1f} MB, transitions {len(answer):,} bytes"
        finally:
            sidecar.stop()
            client.stop()
            zookeeper.kill()


def patterns() -> str:
    """The longest tick of groups of 600 jobs, beside silences that match none of them."""
    slow = [Matcher("job_id", Operator.MATCHES_NOT, f"{SLOW}{number:02}") for number in range(PATTERNS)]
    never = Matcher("alert", Operator.EQUAL, "")
    written = [silence(*slow[at : at + 9], never, number=at + 1) for at in range(0, PATTERNS, 9)]
    groups = Silenced(replace(ALL, group_by=("job_id",))).has(*written)
    groups.fires(*(alert(LOW, ComponentId(Component.JOB, f"{number:032x}")) for number in range(JOBS))).waits(4)
    longest = 0.0
    for _ in range(8):
        began = time.process_time()
        groups.waits(1)
        longest = max(longest, time.process_time() - began)
    return f"{PATTERNS} patterns, {JOBS} jobs: longest tick {longest:.2f} s of CPU"


def segment() -> str:
    """The start beside a segment of records with ids of 60 kB."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / f"{1:016}-{10_000_000:016}.jsonl.gz"
        with gzip.open(file, "wb", compresslevel=9) as out:
            for number in range(RECORDS):
                record = {"id": f"{number:06}{'x' * RECORD_BYTES}", "observer": "o"}
                out.write(json.dumps(record).encode() + b"\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        read_chain(Folder(Path(name)), "o", 0, {}, latest=10_000_000)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return f"a segment of {file.stat().st_size / 1e3:.0f} kB: {more >> 10} MiB more"


def main() -> None:
    """All parts, or the one of the command line."""
    match sys.argv[1:]:
        case ["addresses", writes]:
            print(addresses(int(writes)))
        case ["patterns", *_]:
            print(patterns())
        case ["segment", *_]:
            print(segment())
        case _:
            for part in PARTS:
                subprocess.run([sys.executable, "-m", "tests.bench.hostile", *part], check=True)


if __name__ == "__main__":
    main()
