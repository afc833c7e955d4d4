"""What is captured of PyFlink's workers, and what it costs them: `python -m tests.bench.pyflink [FAILOVERS [DUMPS]]`, five minutes.

Real Flink on a real ZooKeeper, a job with a Python UDF in process mode, two workers. PyFlink is no dependency of the project: it is
installed once, into an environment of its own in the user's cache (1 GB, a minute). The UDF ticks every millisecond and writes down how
long each tick was; the dumps take turns with as much time without one, so that what else happens on the machine happens to all alike.
Then the leader is killed with -9, again and again, beside a `run` that captures processes.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from sidecar.host import processes
from sidecar.host.processes import FlinkProcess
from sidecar.runtime.user_folders import cache_folder
from sidecar.sinks.evidence import py_spy
from tests.bench.cause_scene import epoch_seconds
from tests.bench.stage import FLINK, Table
from tests.kit.sidecar_process import Sidecar
from tests.kit.waiting import wait_for
from tests.lab.flink import Lab
from tests.lab.java import java_environment
from tests.sinks.running import AS_NOBODY, WITHOUT_PTRACE, outcome_as

FAILOVERS: Final = 3
DUMPS: Final = 30
"""Of each kind."""
_WORKERS: Final = 2
_DUMP_SECONDS: Final = 10.0
_WINDOW_SECONDS: Final = 0.1
_FAILOVER_SECONDS: Final = 180.0
_SETTLE_SECONDS: Final = 3.0
_CALL_SECONDS: Final = 2
"""Of the UDF: between two calls Beam pauses for 0.2 s."""
_UDF: Final = "ticks_in_the_udf"
_HANGS: Final = "hangs_in_the_udf"
_LETTERS: Final = 28
"""Of a pattern that backtracks: 14 s, in which no other thread of the worker runs. One that sleeps is ended at once."""

_JOB: Final = f"""
import os
import re
import time

from pyflink.common import Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


class Ticks(MapFunction):
    def open(self, context):
        self.ticks = open(f"FOLDER/{{os.getpid()}}.ticks", "a", buffering=1)

    def map(self, value):
        while os.path.exists("FOLDER/hang"):
            {_HANGS}()
        {_UDF}(self.ticks)
        return value


def {_HANGS}():
    re.match("(a+)+$", "a" * {_LETTERS} + "b")


def {_UDF}(ticks):
    last = time.monotonic_ns()
    end = last + {_CALL_SECONDS} * 10**9
    while last < end:
        time.sleep(0.001)
        now = time.monotonic_ns()
        ticks.write(f"{{last}} {{now - last}}\\n")
        last = now


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism({_WORKERS})
env.enable_checkpointing(2000)
numbers = env.from_source(NumberSequenceSource(0, 2**40), WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(Ticks(), Types.LONG()).print()
env.execute("pyflink")
"""


class Job:
    """The PyFlink job on the lab."""

    def __init__(self, lab: Lab, folder: Path, python: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._python = python
        self.id = ""

    def submit(self) -> None:
        """By Flink's own client; then it runs and its workers call the UDF."""
        script = self._folder / "job.py"
        script.write_text(_JOB.replace("FOLDER", str(self._folder)))
        (home,) = self._python.parent.parent.glob("lib/python*/site-packages/pyflink")
        # Java 17 lets Flink's client in where it lets the servers in; memory for workers is managed memory, of which the lab has none.
        opened = (option for option in self._lab.taskmanager.command if option.startswith("--add-"))
        environment = java_environment() | {
            "FLINK_CONF_DIR": str(self._lab.conf_dir),
            "FLINK_HOME": str(home),
            "JVM_ARGS": " ".join(opened),
            "PATH": f"{self._python.parent}:{os.environ['PATH']}",
        }
        options = ("-Dpython.fn-execution.memory.managed=false", "-Dpython.fn-execution.bundle.size=1")
        pythons = ("-pyexec", str(self._python), "-pyclientexec", str(self._python))
        command = [str(home / "bin/flink"), "run", "-d", "-t", "remote", *options, *pythons, "-py", str(script)]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stderr[-2000:]
        self.id = run.stdout.rpartition("JobID ")[2].strip()
        self.wait()

    def wait(self) -> list[FlinkProcess]:
        """The workers, once each of them has called the UDF."""
        self._lab.wait_for_job(self.id)
        workers: list[FlinkProcess] = []

        def tick() -> bool:
            workers[:] = [worker for worker in self.workers() if self._ticks(worker).exists()]
            return len(workers) == _WORKERS

        wait_for("the workers of PyFlink", tick, _FAILOVER_SECONDS)
        return workers

    def hang(self, *, hangs: bool) -> None:
        """From now on the UDF hangs in every worker, until it does no more."""
        hang = self._folder / "hang"
        if hangs:
            hang.touch()
        else:
            hang.unlink(missing_ok=True)

    def workers(self) -> list[FlinkProcess]:
        """What the sidecar finds below the TaskManager."""
        return [process for process in processes.find(()) if process.works_for == self._lab.taskmanager.pid]

    def longest_tick(self, worker: FlinkProcess, began: int, ended: int) -> float:
        """The UDF's longest tick between two `time.monotonic_ns`, in ms."""
        ticks = [tuple(map(int, line.split())) for line in self._ticks(worker).read_text().splitlines()]
        return max((length / 1e6 for at, length in ticks if at < ended and at + length > began), default=0.0)

    def _ticks(self, worker: FlinkProcess) -> Path:
        return self._folder / f"{worker.pid}.ticks"


def main(failovers: int = FAILOVERS, dumps: int = DUMPS) -> None:
    """Four tables."""
    python = _pyflink()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lab = stack.enter_context(Lab(folder / "lab", FLINK))
        lab.start()
        job = Job(lab, folder, python)
        job.submit()
        time.sleep(_SETTLE_SECONDS)
        workers = job.wait()
        _print_stacks(workers)
        _print_rights(workers[0])
        _print_pauses(job, workers, dumps)
        place = f"flink_conf_dir: {lab.conf_dir}\nledger: {{mode: local}}"
        sidecar = Sidecar(folder / "sidecar", f"{place}\nevidence: {{capture: [processes]}}", [])
        sidecar.start()
        stack.callback(sidecar.stop)
        sidecar.wait_ready()
        _print_failovers(lab, job, sidecar, failovers)


def _pyflink() -> Path:
    """The Python of an environment with this version of PyFlink."""
    home = cache_folder() / f"pyflink-{FLINK}"
    python, complete = home / "bin/python", home / "complete"
    if not complete.exists():
        venv.create(home, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"apache-flink=={FLINK}"], check=True)
        complete.touch()
    return python


# -- one dump ----------------------------------------------------------------------------------------------------------


def _print_stacks(workers: list[FlinkProcess]) -> None:
    table = Table("worker", "module", "threads", "UDF in its stacks", "ms")
    for number, worker in enumerate(workers, 1):
        began = time.monotonic()
        text, threads = py_spy.stacks(worker, _DUMP_SECONDS)
        table.row(number, worker.name, threads, _UDF in text, f"{(time.monotonic() - began) * 1000:.0f}")
    table.end()


def _print_rights(worker: FlinkProcess) -> None:
    table = Table("the sidecar runs as", "outcome", "detail")
    for who, become in {
        "another user": AS_NOBODY,
        "root without SYS_PTRACE, the worker with it": WITHOUT_PTRACE,
    }.items():
        table.row(who, *outcome_as(become, "py_spy", "stacks", worker))
    table.end()


# -- pauses ------------------------------------------------------------------------------------------------------------


def _print_pauses(job: Job, workers: list[FlinkProcess], dumps: int) -> None:
    ways: Mapping[str, Callable[[FlinkProcess], object]] = {
        "nothing": lambda _: None,
        "the sidecar's dump (`--nonblocking`)": lambda worker: py_spy.stacks(worker, _DUMP_SECONDS),
        "`py-spy dump`, which pauses": _blocking,
    }
    windows: dict[str, list[tuple[FlinkProcess, int, int]]] = {way: [] for way in ways}
    for number in range(dumps):
        for way, dump in ways.items():
            worker = workers[number % len(workers)]
            began = time.monotonic_ns()
            dump(worker)
            ended = time.monotonic_ns()
            windows[way].append((worker, began, max(ended, began + int(_WINDOW_SECONDS * 1e9))))
            time.sleep(max(0.0, _WINDOW_SECONDS - (ended - began) / 1e9))
    table = Table("in a tenth of a second with", "of", "longest tick of the UDF (1 ms), p50 ms", "p90 ms", "max ms")
    for way, found in windows.items():
        pauses = sorted(job.longest_tick(*window) for window in found)
        p90 = pauses[int(len(pauses) * 0.9)]
        table.row(way, len(pauses), f"{median(pauses):.1f}", f"{p90:.1f}", f"{pauses[-1]:.1f}")
    table.end()


def _blocking(worker: FlinkProcess) -> None:
    command = [str(py_spy._program()), "dump", "--json", "--pid", str(worker.pid)]
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_DUMP_SECONDS, check=True)


# -- failovers ---------------------------------------------------------------------------------------------------------


def _print_failovers(lab: Lab, job: Job, sidecar: Sidecar, failovers: int) -> None:
    table = Table(
        "failover",
        "UDF",
        "workers before",
        "found",
        "captured",
        "UDF in their stacks",
        "recorded after, s",
        "not captured",
    )
    for number in range(1, 2 * failovers + 1):
        hangs = number % 2 == 0
        if sum(jobmanager.running for jobmanager in lab.jobmanagers) < 2:
            lab.add_jobmanager()
        before = {worker.subject for worker in job.wait()}
        job.hang(hangs=hangs)
        time.sleep(_SETTLE_SECONDS)
        lab.wait_for_leader().kill()
        wait_for(f"the end of failover {number}", partial(_has_ended, sidecar, number), _FAILOVER_SECONDS)
        job.hang(hangs=False)
        episode = _of(sidecar, "episode")[-1]["id"]
        evidence = [record for record in _of(sidecar, "evidence") if record["episode_id"] == episode]
        attempts = [record for record in evidence if record["kind"] == "py_spy" and record["subject"] in before]
        captured = [record for record in attempts if record["outcome"] == "captured"]
        texts = [(sidecar.state / "evidence" / record["file"]).read_text() for record in captured]
        late = max(epoch_seconds(record["observed_at"]) - epoch_seconds(record["asked_at"]) for record in evidence)
        reasons = {record["detail"] for record in attempts if record["outcome"] != "captured"}
        with_udf = sum((_HANGS if hangs else _UDF) in text for text in texts)
        counts = (len(before), len(attempts), len(captured), with_udf)
        table.row(
            number,
            "hangs in a regular expression" if hangs else "runs",
            *counts,
            f"{late:.2f}",
            "; ".join(reasons) or "-",
        )
    table.end()


def _has_ended(sidecar: Sidecar, number: int) -> bool:
    time.sleep(0.5)
    return len(_of(sidecar, "episode")) >= number


def _of(sidecar: Sidecar, kind: str) -> list[dict[str, Any]]:
    return [record for record in sidecar.records() if record["type"] == kind]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
