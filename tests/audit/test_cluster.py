"""Where one machine is not enough: the same commands on a Spark cluster make the same rows, also when a worker dies at work."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest

from sidecar.audit.spark import class_archive
from tests.audit.spooling import NOON, ids, ids_seen_without_spark, seal, transition
from tests.kit.files import files_below

pytestmark = pytest.mark.spark

_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_DEADLINE = 200
_BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *class_archive.options())
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
        environment = os.environ | spark | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder)}
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Ends with all that it started."""
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


@contextmanager
def command(cluster: Cluster, name: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`audit NAME` with that cluster as its master."""
    run = [sys.executable, "-m", "sidecar", "audit", name, *arguments, "--master", cluster.url, *_CONF]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_cluster_makes_the_same_rows(cluster: Cluster, spool: Path, audit: Path) -> None:
    """Ingest with one worker killed with -9 as soon as its executor is at work; compaction by the one that is left; every id once."""
    records = [transition(n, NOON - timedelta(days=1 + n % 3)) for n in range(4000)]
    for first in range(0, 4000, 100):
        seal(spool, "jm-0", first + 1, records[first : first + 100], lines=[f"garbage {first}".encode()])
    with command(cluster, "ingest", "--spool", str(spool), "--audit", str(audit)) as process:
        cluster.workers[0].logged("Asked to launch executor")
        deadline = time.monotonic() + _DEADLINE
        while not any(files_below(audit / "_staging")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        cluster.workers[0].process.kill()
        printed, said = process.communicate(timeout=_DEADLINE)
    assert (process.returncode, said) == (0, "")
    assert printed == "40 segments: 4000 transitions; 40 lines or files went to quarantine\n"
    assert ids_seen_without_spark(audit, "transitions") == ids(records)
    # Without a date, the months from then until today would be closed, too.
    with command(cluster, "compact", "--audit", str(audit), "--before", str(NOON.date())) as process:
        printed, said = process.communicate(timeout=_DEADLINE)
    assert (process.returncode, said) == (0, "")
    assert printed.endswith("materialized: 3 dates\n")
    assert ids_seen_without_spark(audit, "transitions") == ids(records)
    assert len([*(audit / "transitions").rglob("*.parquet")]) == 3
