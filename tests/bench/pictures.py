"""What pictures of a cluster cost: `python -m tests.bench.pictures [SECONDS]`, three minutes and four times SECONDS.

Three `run`, each on a cluster of its own in one real ZooKeeper, whose REST server is a fake one with 500 jobs: without pictures, with the
default interval, and with the shortest, until the checkpoints of all jobs are known. Then a real JobManager with as many jobs as it takes
quickly: its CPU time without and with pictures.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import UUID

from sidecar.core.flink.leadership import LeaderInformation
from tests.bench.stage import FLINK, Table, zookeeper
from tests.kit.cluster import JOB, REST_SERVER, A
from tests.kit.fake_flink import Flink
from tests.kit.flink_rest_server import RestServer
from tests.kit.pictured_flink import completed, listed, pictured, statistics
from tests.kit.sidecar_process import Sidecar
from tests.kit.znodes import ZNodes, ZooKeeperWriter
from tests.kit.zookeeper_client import connected
from tests.lab import rest
from tests.lab.flink import Lab
from tests.lab.managers import JobManager

JOBS: Final = 500
REAL_JOBS: Final = 50
MOST_MIB: Final = 6.0
"""More resident memory than without pictures."""
_FILL_SECONDS: Final = 120.0
"""At ten jobs every two seconds, 100 s until all are known."""
_INTERVALS: Final = {"none": None, "every 10 s": "10s", "every 2 s": "2s"}
_NEVER_ENDING: Final = Path(rest.__file__).parent / "job" / "never-ending-job.jar"


def main() -> None:
    """Both tables."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    print_sidecars(seconds)
    print_job_manager(seconds)


def print_sidecars(seconds: float) -> None:
    """Memory and CPU of `run`, and its requests."""
    table = Table("pictures", "requests a minute", "jobs whose checkpoints were read", "RSS MiB", "CPU % of a core")
    jobs = [listed(number, f"job-{number}", changed={"jid": JOB} if number == 0 else None) for number in range(JOBS)]
    numbers = statistics(*(completed(number) for number in range(50, 40, -1)), restored=40)
    with ExitStack() as stack:
        server, folder = stack.enter_context(zookeeper())
        client = stack.enter_context(connected(server.address))
        rows = {}
        for number, (name, interval) in enumerate(_INTERVALS.items()):
            cluster = f"cluster-{number}"
            flink = stack.enter_context(RestServer({**pictured(*jobs, checkpoints=numbers), "/jobmanager/config": []}))
            published = Flink(ZNodes(writer=ZooKeeperWriter(client, f"/flink/{cluster}"))).submit().elect(A)
            published.publish(REST_SERVER, LeaderInformation(flink.address, UUID(int=1)), A.zookeeper_session)
            evidence = f"evidence: {{flink_rest: {{interval: {interval}}}}}" if interval else ""
            where = f"zookeeper: {{quorum: '{server.address}', cluster_id: /{cluster}}}\n{evidence}"
            sidecar = Sidecar(folder / cluster, where, [])
            sidecar.start()
            stack.callback(sidecar.stop)
            sidecar.wait_ready()
            rows[name] = sidecar, flink
        time.sleep(_FILL_SECONDS)
        before = {name: (sidecar.cpu_seconds(), len(flink.asked)) for name, (sidecar, flink) in rows.items()}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        memory = {}
        for name, (sidecar, flink) in rows.items():
            cpu, asked = before[name]
            read = Counter(path for path in flink.asked if path.endswith("/checkpoints"))
            memory[name] = sidecar.memory_mib()
            share = (sidecar.cpu_seconds() - cpu) / took * 100
            requests = (len(flink.asked) - asked) / took * 60
            table.row(name, f"{requests:.0f}", len(read), f"{memory[name]:.1f}", f"{share:.2f}")
    without, *others = memory.values()
    table.target("more memory than without", max(others) - without, MOST_MIB, " MiB")
    table.end()


def print_job_manager(seconds: float) -> None:
    """CPU of a real JobManager. Most of its jobs wait for slots: it lists them, and answers for each."""
    table = Table("pictures", "jobs", "JobManager, CPU % of a core")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = stack.enter_context(Lab(folder / "lab", FLINK, progress=print))
        lab.start(jobmanagers=1)
        lab.submit_job()
        leader = lab.wait_for_leader()
        jar = rest.upload_jar(leader.rest_address, _NEVER_ENDING)
        for _ in range(REAL_JOBS - 1):
            rest.call(leader.rest_address, "POST", f"/jars/{jar}/run", b"{}", timeout=60)
        time.sleep(20)  # the JVM compiles what the submissions needed
        table.row("none", REAL_JOBS, f"{_share(leader, seconds):.2f}")
        where = f"flink_conf_dir: {lab.conf_dir}\nevidence: {{flink_rest: auto}}"
        sidecar = Sidecar(folder / "sidecar", where, [])
        sidecar.start()
        stack.callback(sidecar.stop)
        sidecar.wait_ready()
        time.sleep(20)
        table.row("every 10 s", REAL_JOBS, f"{_share(leader, seconds):.2f}")
        table.row("none, and the sidecar killed", REAL_JOBS, f"{_without(sidecar, leader, seconds):.2f}")
    table.end()


def _without(sidecar: Sidecar, leader: JobManager, seconds: float) -> float:
    sidecar.kill()
    return _share(leader, seconds)


def _share(leader: JobManager, seconds: float) -> float:
    """Percent of a core that the JobManager uses from now on."""
    before, began = _cpu_seconds(leader.pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_seconds(leader.pid) - before) / (time.monotonic() - began) * 100


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
