"""How a JobManager's process ended is observed by the kernel's own word, for processes of our cluster alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue

import pytest

from sidecar.clock import Clock
from sidecar.core.observations import ProcessEnded
from sidecar.core.process_end import ProcessEnd
from sidecar.drivers.processes import ProcessEnds, process_ends
from sidecar.host import memory_cgroup
from sidecar.settings import ZooKeeperSettings

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
ORDERS = ZooKeeperSettings("zk-1:2181", "/flink/orders", "orders", 60.0, 15.0, False)
LIVES = "import sys; print('ready', flush=True); code = sys.stdin.readline(); sys.exit(int(code or 0))"

Child = subprocess.Popen[str]
Launch = Callable[..., Child]


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[Launch]:
    """Starts what looks like a JVM of Flink; it ends with the code that it reads."""
    with ExitStack() as cleanup:

        def start(cluster: str = "/orders", main: str = JOB_MANAGER, code: str = LIVES) -> Child:
            conf = tmp_path / cluster.strip("/")
            conf.mkdir(exist_ok=True)
            store = "high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: zk-1:2181\n"
            (conf / "config.yaml").write_text(f"{store}high-availability.cluster-id: {cluster}\n")
            (tmp_path / main).write_text(code)
            child = subprocess.Popen(
                ["java", main, "--configDir", str(conf)],  # noqa: S607  it is this Python, by another name
                executable=sys.executable,
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            cleanup.enter_context(child)
            cleanup.callback(child.kill)
            assert child.stdout
            assert child.stdout.readline() == "ready\n"
            return child

        yield start


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[ProcessEnded]]:
    """Of the JobManagers of the cluster `orders`."""
    monkeypatch.setattr(process_ends, "LOOK_SECONDS", 0.05)
    observed: Queue[ProcessEnded] = Queue()
    driver = ProcessEnds([ORDERS], Clock(), observed.put)
    driver.start()
    yield observed
    driver.stop()


def held(pid: int) -> bool:
    """Whether we hold a pidfd of it."""
    files = []
    for file in Path("/proc/self/fdinfo").iterdir():
        try:
            files.append(file.read_text())
        except OSError:
            continue
    return any(f"\nPid:\t{pid}\n" in text for text in files)


@pytest.fixture
def watched(
    caplog: pytest.LogCaptureFixture, eventually: Callable[[Callable[[], bool]], bool]
) -> Callable[[Child], int]:
    """Waits until the driver watches a process; its id."""
    caplog.set_level("DEBUG", "sidecar.drivers.processes")

    def wait(child: Child) -> int:
        assert eventually(lambda: f"watching pid {child.pid} " in caplog.text)
        assert held(child.pid)
        return child.pid

    return wait


def end_of(child: Child, ends: Queue[ProcessEnded]) -> ProcessEnd:
    child.wait(10)
    observed = ends.get(timeout=10)
    assert (observed.cluster_id, observed.end.pid) == ("orders", child.pid)
    assert abs(observed.end.ended_at / 1e6 - time.time()) < 10
    return observed.end


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal(
    number: signal.Signals, flink: Launch, ends: Queue[ProcessEnded], watched: Callable[[Child], int]
) -> None:
    """As a shell has it, on a kernel that says it; nothing is claimed on another."""
    child = flink()
    os.kill(watched(child), number)
    end = end_of(child, ends)
    assert (end.exit_code, end.signal) in {(128 + number, number), (None, None)}
    assert end.oom_kills in {0, None}
    assert not held(child.pid)


def test_an_exit_code(flink: Launch, ends: Queue[ProcessEnded], watched: Callable[[Child], int]) -> None:
    """Of a process that ended by itself."""
    child = flink()
    watched(child)
    child.communicate("3")
    end = end_of(child, ends)
    assert (end.exit_code, end.signal) in {(3, None), (None, None)}


def test_only_jobmanagers_of_our_cluster(
    flink: Launch, ends: Queue[ProcessEnded], watched: Callable[[Child], int]
) -> None:
    """A TaskManager's end, and that of another cluster's JobManager, is nothing that is observed."""
    other, task_manager, ours = flink("/billing"), flink(main=TASK_MANAGER), flink()
    watched(ours)
    assert not held(other.pid)
    assert not held(task_manager.pid)
    for child in (other, task_manager):
        child.kill()
        child.wait(10)
    ours.kill()
    end_of(ours, ends)
    with pytest.raises(Empty):
        ends.get_nowait()


@pytest.mark.parametrize(
    ("counters", "limit", "before", "after", "limited"),
    [
        ("memory.events", "memory.max", "low 0\noom 1\noom_kill {}\noom_group_kill 0\n", (3, 4), "67108864"),
        ("memory.oom_control", "memory.limit_in_bytes", "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n", (0, 1), "67108864"),
        ("memory.events", "memory.max", "low 0\noom_kill {}\n", (0, 0), "max"),
        ("memory.oom_control", "memory.limit_in_bytes", "oom_kill {}\n", (0, 0), "9223372036854771712"),
    ],
)  # fmt: skip
def test_files_of_both_versions_of_cgroups(
    counters: str, limit: str, before: str, after: tuple[int, int], limited: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As a kernel of each version writes them; a held file shows what is written later."""
    (tmp_path / counters).write_text(before.format(after[0]))
    (tmp_path / limit).write_text(f"{limited}\n")
    monkeypatch.setattr(memory_cgroup, "_folders", lambda _pid: [(tmp_path, counters, limit)])
    cgroup = memory_cgroup.MemoryCgroup(1)
    assert cgroup.oom_kills() == after[0]
    (tmp_path / counters).write_text(before.format(after[1]))
    assert cgroup.oom_kills() == after[1]
    assert cgroup.limit_bytes() == (67108864 if limited == "67108864" else None)
    cgroup.close()
    assert cgroup.oom_kills() is None
