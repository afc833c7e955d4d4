"""The driver alone in a process, so that nobody disturbs its figures: `python -m tests.bench.alone QUORUM CLUSTER_ID`.

What the driver reports is counted, not kept. Each line on stdin is a command, answered with one line of JSON; it ends with its stdin.
"""

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from msgspec import Struct, field, json

from sidecar.core.observations import ClusterObservation, NodeObserved, SnapshotCompleted
from sidecar.drivers.zookeeper import ZooKeeperDriver
from sidecar.runtime.clock import Clock
from tests.bench.stage import ROOT
from tests.kit.waiting import until

_GRACE_SECONDS = 10.0
_ASK_SECONDS = 0.2
"""Between two questions: an answer costs the process what is to be measured."""


class Report(Struct):
    """What was reported until now, and what it cost."""

    snapshots: int = 0
    attach_seconds: float = 0.0
    """From `start` to the first SnapshotCompleted."""
    nodes: int = 0
    """How many NodeObserved."""
    writes: int = 0
    """The sum of their `writes`."""
    uncounted: int = 0
    """Those whose `writes` nobody could count."""
    last_report_at: int = 0
    """When the last of them was reported: monotonic nanoseconds."""
    threads: list[str] = field(default_factory=list)
    rss_kib: int = 0
    peak_kib: int = 0
    cpu_seconds: float = 0.0


class Counter:
    """The observer. Its figures are right when the driver has nothing left to report."""

    def __init__(self) -> None:
        self.report = Report()
        self.values: dict[str, bytes] | None = None
        self._began = time.monotonic()

    def __call__(self, observation: ClusterObservation) -> None:
        report = self.report
        match observation:
            case NodeObserved(path=path, data=data, writes=writes):
                report.nodes += 1
                report.writes += writes or 0
                report.uncounted += writes is None
                report.last_report_at = time.monotonic_ns()
                if self.values is not None:
                    self.values[path] = data
            case SnapshotCompleted():
                report.snapshots += 1
                report.attach_seconds = report.attach_seconds or time.monotonic() - self._began

    def now(self) -> Report:
        """With the cost filled in."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        self.report.threads = [thread.name for thread in threading.enumerate()]
        self.report.rss_kib, self.report.peak_kib = (int(status[key].split()[0]) for key in ("VmRSS", "VmHWM"))
        self.report.cpu_seconds = time.process_time()
        return self.report


def digest(values: Mapping[str, bytes]) -> str:
    """Of all paths with their values."""
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()


def main(quorum: str, cluster_id: str) -> None:
    """Commands: `report`, `keep` (the values reported from now on), `digest` (of those), `reset` (the peak of the memory)."""
    driver = ZooKeeperDriver(quorum, f"{ROOT}/{cluster_id}", cluster_id, Clock())
    counter = Counter()
    driver.start(counter)
    for command in sys.stdin:
        answer: object = None
        match command.strip():
            case "report":
                answer = counter.now()
            case "keep":
                counter.values = {}
            case "digest":
                answer = digest(counter.values or {})
            case "reset":
                Path("/proc/self/clear_refs").write_text("5")
        print(json.encode(answer).decode(), flush=True)
    driver.stop()


class Alone:
    """Such a process, which has seen everything when it is entered."""

    def __init__(self, quorum: str, cluster_id: str) -> None:
        command = [sys.executable, "-m", "tests.bench.alone", quorum, cluster_id]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        self.wait_complete()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, command: str) -> bytes:
        """The answer to one command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def report(self) -> Report:
        return json.decode(self.ask("report"), type=Report)

    def digest(self) -> str:
        return json.decode(self.ask("digest"), type=str)

    def wait_complete(self, snapshots: int = 1, seconds: float = 120.0) -> Report:
        """What was reported when everything has been read for the n-th time."""
        assert until(lambda: self.report().snapshots >= snapshots, seconds, _ASK_SECONDS), (
            "the driver has not seen everything"
        )
        return self.report()

    def wait_writes(self, writes: int, quiet: float, seconds: float = 120.0) -> Report:
        """What was reported when these writes are accounted for and nothing was reported for `quiet` seconds, or when the time is up."""

        def settled() -> bool:
            report = self.report()
            return report.writes >= writes and time.monotonic_ns() - report.last_report_at >= quiet * 1e9

        until(settled, seconds, _ASK_SECONDS)
        return self.report()

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_GRACE_SECONDS)
        self._process.stdout.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
