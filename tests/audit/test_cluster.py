"""Where one machine is not enough: the same commands on a Spark cluster make the same rows, also when a worker or driver dies at work."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest

from sidecar.audit.spark.jvm import archive_options
from sidecar.core.records import TransitionRecord
from tests.audit.spooling import NOON, ids, ids_seen_without_spark, seal, transition
from tests.kit.files import files_below
from tests.kit.s3_server import reach

pytestmark = pytest.mark.spark

_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_DEADLINE = 200
_BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive_options())
_SMALL = (*_BRIEF, "-Xmx128m")
_CONF = (
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
    *("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=600m"),
    *("--conf", "spark.sql.shuffle.partitions=4"),
    *("--conf", f"spark.driver.extraJavaOptions={' '.join(_BRIEF)}"),
    *("--conf", f"spark.executor.extraJavaOptions={' '.join(_BRIEF)}"),
)


class Daemon:
    """A process of a Spark cluster, and what it logged."""

    def __init__(self, folder: Path, daemon: str, *arguments: str) -> None:
        self._log = folder / f"{daemon}-{time.monotonic_ns()}.log"
        spark = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13"}  # a worker starts its executors with them
        # Executors inherit the environment of their worker: credentials, too.
        environment = os.environ | spark | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)} | reach("")
        command = [
            "java",
            *_SMALL,
            "-cp",
            f"{_HOME}/jars/*",
            f"{_DEPLOY}.{daemon}",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=log, cwd=folder, env=environment, start_new_session=True
            )

    def logged(self, words: str) -> None:
        """Wait until it has logged these words."""
        deadline = time.monotonic() + _DEADLINE
        while words not in self._log.read_text(errors="replace"):
            assert self.process.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> None:
        """Ends the worker and its executors."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_DEADLINE)


class Cluster:
    """One master and two workers with a core each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        self.master = Daemon(folder, "master.Master", "--port", str(port))
        stack.callback(self.master.end)
        self.master.logged("I have been elected leader")
        self.workers = []
        for number in range(2):
            work = folder / f"work-{number}"
            arguments = ("--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work), self.url)
            self.workers.append(Daemon(folder, "worker.Worker", *arguments))
            stack.callback(self.workers[-1].end)
        for worker in self.workers:
            worker.logged("Successfully registered with master")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Ends with all that it started."""
    (folder := tmp_path / "cluster").mkdir()
    with ExitStack() as stack:
        yield Cluster(folder, stack)


@contextmanager
def command(cluster: Cluster, name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`audit NAME` with that cluster as its master, in a process group with its JVM."""
    run = [sys.executable, "-m", "sidecar", "audit", name, *arguments, "--master", cluster.url, *_CONF]
    with subprocess.Popen(
        run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def output(cluster: Cluster, name: str, *arguments: str) -> str:
    """What the command prints, which ends well."""
    with command(cluster, name, *arguments) as process:
        printed, said = process.communicate(timeout=_DEADLINE)
    assert (process.returncode, said) == (0, "")
    return printed


def fill(spool: Path) -> Sequence[TransitionRecord]:
    """40 segments of records on three dates."""
    records = [transition(n, NOON - timedelta(days=1 + n % 3)) for n in range(4000)]
    for first in range(0, 4000, 100):
        seal(spool, "jm-0", first + 1, records[first : first + 100], lines=[f"garbage {first}".encode()])
    return records


def wait_for_rows(process: "subprocess.Popen[str]", audit: Path) -> None:
    """Until executors write what it ingests."""
    deadline = time.monotonic() + _DEADLINE
    while not any(files_below(audit / "_staging")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_ingest_with_a_dying_worker(cluster: Cluster, spool: str, audit: str, folder: Path) -> None:
    """Kill one worker with -9 as soon as its executor is at work. `folder`: where `audit` is on this disk."""
    with command(cluster, "ingest", "--spool", spool, "--audit", audit) as process:
        cluster.workers[0].logged("Asked to launch executor")
        wait_for_rows(process, folder)
        cluster.workers[0].end()
        printed, said = process.communicate(timeout=_DEADLINE)
    assert (process.returncode, said) == (0, "")
    assert printed == "40 segments: 4000 transitions; 40 lines or files went to quarantine\n"


def check_compaction(cluster: Cluster, audit: str, folder: Path, records: Sequence[TransitionRecord]) -> None:
    """One file a date, materialized, with each id once."""
    # Without a date, the months from then until today would be closed, too.
    printed = output(cluster, "compact", "--audit", audit, "--before", str(NOON.date()))
    assert printed.endswith("materialized: 3 dates\n")
    assert ids_seen_without_spark(folder, "transitions") == ids(records)
    assert len([*(folder / "transitions").rglob("*.parquet")]) == 3


def test_a_cluster_makes_the_same_rows(cluster: Cluster, spool: Path, audit: Path) -> None:
    """Ingest, in which a worker dies; compaction by the one that is left; every id once."""
    records = fill(spool)
    check_ingest_with_a_dying_worker(cluster, str(spool), str(audit), audit)
    assert ids_seen_without_spark(audit, "transitions") == ids(records)
    check_compaction(cluster, str(audit), audit, records)


def test_a_cluster_reads_and_writes_a_bucket(cluster: Cluster, bucket: Path) -> None:
    """Executors have the connector from the driver. A driver that dies, then a worker: a plain reader sees every id once."""
    spool, audit, folder = "s3://bucket/spool", "s3://bucket/audit", bucket / "audit"
    records = fill(bucket / "spool")
    with command(cluster, "ingest", "--spool", spool, "--audit", audit) as process:
        wait_for_rows(process, folder)
        os.killpg(process.pid, signal.SIGKILL)
    assert not (folder / "transitions").exists()
    check_ingest_with_a_dying_worker(cluster, spool, audit, folder)
    assert ids_seen_without_spark(folder, "transitions") == ids(records)
    check_compaction(cluster, audit, folder, records)
    counted = output(
        cluster, "sql", "--audit", audit, "--output", "csv", "SELECT count(DISTINCT id) AS n FROM transitions"
    )
    assert counted == "n\n4000\n"
    assert output(cluster, "verify", "--audit", audit).endswith(": nothing wrong\n")
    assert not (folder / "_staging").exists()
