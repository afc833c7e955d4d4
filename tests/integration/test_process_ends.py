"""How the JobManagers beside the sidecar end is observed without any API: real processes, a real JVM, real cgroups."""

import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import pytest

from sidecar.core.observations import EndObservation, ProcessEnded, ProcessSeen
from sidecar.core.process_end import ProcessEnd, RunningProcess
from sidecar.drivers.processes import ProcessWatch, process_watch
from sidecar.drivers.processes.watched_process import WatchedProcess, average, exhausted, jvm_files, longest_pause
from sidecar.host import process_attributes, processes
from sidecar.runtime.clock import Clock
from sidecar.settings import ZooKeeperSettings
from tests.kit.waiting import until
from tests.lab.processes import free_port

MAIN = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
OBEYS = """
import sys
print("ready", flush=True)
command = input()
if command == "full":
    hoard = []
    while True:
        hoard.append(b"x" * (1 << 20))
sys.exit(int(command))
"""
FILLS = b64decode(
    "yv66vgAAADQAIQoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWCQAIAAkHAAoMAAsADAEAEGphdmEvbGFuZy"
    "9TeXN0ZW0BAAJpbgEAFUxqYXZhL2lvL0lucHV0U3RyZWFtOwoADgAPBwAQDAARABIBABNqYXZhL2lvL0lucHV0U3RyZWFtAQAEcmVhZAEAAygp"
    "SQMAAQAABwAVAQACW0oHABcBAAVGaWxscwEABENvZGUBAARtYWluAQAWKFtMamF2YS9sYW5nL1N0cmluZzspVgEADVN0YWNrTWFwVGFibGUHAB"
    "0BAANbW0oBAApFeGNlcHRpb25zBwAgAQATamF2YS9sYW5nL0V4Y2VwdGlvbgAgABYAAgAAAAAAAgAAAAUABgABABgAAAARAAEAAQAAAAUqtwAB"
    "sQAAAAAACQAZABoAAgAYAAAANwADAAMAAAAcsgAHtgANVxITvQAUTAM9KxwSE7wLU4QCAaf/9gAAAAEAGwAAAAkAAf0ADwcAHAEAHgAAAAQAAQ"
    "AfAAA="
)
"""`class Fills`, for any JVM: it reads a byte, then it fills its heap with arrays."""
NOBODY = 65534
FALLBACK = "/tmp/hs_err_pid7.log"  # noqa: S108  HotSpot's
CLUSTER = ZooKeeperSettings("zk-of-this-test:2181", "/flink/orders", "orders", 60.0, 15.0, False)
Eventually = Callable[[Callable[[], bool]], bool]
Flink = Callable[..., subprocess.Popen[str]]


class Ends:
    """What the watch observes."""

    def __init__(self, *clusters: ZooKeeperSettings, log: Path | None = None) -> None:
        self.observed: Queue[EndObservation] = Queue()
        self.running: list[RunningProcess] = []
        self.watch = ProcessWatch(clusters, Clock(), log)

    def observe(self, observation: EndObservation) -> None:
        """What runs is kept apart: it is reported again and again."""
        if isinstance(observation, ProcessSeen):
            self.running.append(observation.process)
        else:
            self.observed.put(observation)

    def see(self, process: subprocess.Popen[str], eventually: Eventually) -> subprocess.Popen[str]:
        """Wait until it is watched, and its files are held open."""
        assert eventually(lambda: process.pid in {running.pid for running in self.running})
        return process

    def of(self, process: subprocess.Popen[str]) -> ProcessEnd:
        """How it ended: the next observation is of this process."""
        process.wait(60)
        observed = self.observed.get(timeout=60)
        assert isinstance(observed, ProcessEnded)
        assert (observed.end.pid, observed.cluster_id) == (process.pid, "orders")
        return observed.end


def status(code: int) -> int | None:
    """The exit code: where the kernel shows it, from 6.15 on."""
    release = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
    return code if release >= (6, 15) else None


@pytest.fixture(autouse=True)
def own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at often, and no others: a JobManager of another test may be alone and of an unknown cluster."""
    find = processes.find

    def own(ours: Collection[int]) -> list[processes.FlinkProcess]:
        return [process for process in find(ours) if is_child(process.pid)]

    monkeypatch.setattr(process_watch, "LOOK_SECONDS", 0.4)
    monkeypatch.setattr(processes, "find", own)


def is_child(pid: int) -> bool:
    try:
        return int(processes.status(pid)["PPid"]) == os.getpid()
    except OSError:
        return False


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A running watch for one cluster."""
    ends = Ends(CLUSTER)
    ends.watch.start(ends.observe)
    yield ends
    ends.watch.stop()
    assert not watched(os.getpid())


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[Flink]:
    """Starts what looks like a JVM of Flink, of the cluster `orders` unless another one is named. It has begun when this returns."""
    with ExitStack() as cleanup:

        def start(
            main: str = MAIN, *options: str, cluster: str = "orders", java: Path | None = None, out: Path | None = None
        ) -> subprocess.Popen[str]:
            conf = tmp_path / f"conf-{cluster}"
            conf.mkdir(exist_ok=True)
            (conf / "config.yaml").write_text(
                "high-availability.type: zookeeper\nhigh-availability.zookeeper.quorum: zk-of-this-test:2181\n"
                f"high-availability.cluster-id: /{cluster}\n"
            )
            tail = [main, "--configDir", str(conf)]
            if java:  # Java's own class runs; what /proc shows is Flink's command line
                port = free_port()
                runs = f"java.rmi/sun.rmi.registry.RegistryImpl {port}"
                (tmp_path / "Fills.class").write_bytes(FILLS)
                (tmp_path / "arguments").write_text(f"-cp {tmp_path} Fills" if out else f"-m {runs}")
                command = [str(java), "-XX:+UseSerialGC", "-Xmx16m", *options, "@arguments", *tail]
            else:
                (tmp_path / main).write_text(OBEYS)
                command = ["java", *tail]
            process = subprocess.Popen(
                command,
                executable=str(java or sys.executable),
                cwd=tmp_path,
                env=os.environ | {"PYTHONHOME": sys.base_prefix},
                stdin=subprocess.PIPE,
                stdout=cleanup.enter_context(out.open("w")) if out else subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            cleanup.enter_context(process)
            cleanup.callback(process.kill)
            if java and not out:
                assert until(lambda: answers(port), 60)
            elif not out:
                assert process.stdout
                assert process.stdout.readline() == "ready\n"
            return process

        yield start


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def watched(of: int) -> set[int]:
    """The processes of which a process holds a pidfd."""
    pids = set()
    for info in Path(f"/proc/{of}/fdinfo").iterdir():
        try:
            pids |= {int(line.split()[1]) for line in info.read_text().splitlines() if line.startswith("Pid:")}
        except FileNotFoundError:
            continue
    return pids


def holds(folder: Path) -> bool:
    """Whether this process has the folder, or a file of it, open."""
    files = (os.path.realpath(file) for file in Path("/proc/self/fd").iterdir())
    return any(f"{file}/".startswith(f"{folder}/") for file in files)


def obey(process: subprocess.Popen[str], command: str) -> None:
    assert process.stdin
    process.stdin.write(f"{command}\n")
    process.stdin.flush()


def test_kill_9_is_observed_at_once(ends: Ends, flink: Flink, eventually: Eventually) -> None:
    """Without a kill of the kernel's."""
    process = ends.see(flink(), eventually)
    before = time.time_ns() // 1000
    process.kill()
    end = ends.of(process)
    assert (end.exit_code, end.oom_kills) == (status(137), 0)
    assert before <= end.ended_at <= before + 1_000_000
    assert (end.full_disk, end.crash_file, end.last_pause) == (None, None, None)


def test_a_process_that_ends_while_it_is_found_is_observed(
    flink: Flink, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It is gone when the watch has just begun to hold it."""
    process, open_pidfd = flink(), os.pidfd_open

    def ends_meanwhile(pid: int) -> int:
        descriptor = open_pidfd(pid)
        process.kill()
        process.wait(60)
        return descriptor

    monkeypatch.setattr(os, "pidfd_open", ends_meanwhile)
    ends: Ends = request.getfixturevalue("ends")
    assert ends.of(process).exit_code == status(137)


def test_an_exit_code_is_observed(ends: Ends, flink: Flink, eventually: Eventually) -> None:
    """Here the one of ExitOnOutOfMemoryError."""
    process = ends.see(flink(), eventually)
    obey(process, "3")
    end = ends.of(process)
    assert end.exit_code == status(3)


def test_a_jvm_that_gets_sigterm_ends_with_143(
    ends: Ends, flink: Flink, java: Path, eventually: Eventually, tmp_path: Path
) -> None:
    """Its own exit code: it runs its shutdown hooks. The GC log that its options name says how long it paused."""
    process = ends.see(flink(MAIN, "-Xmn1m", "-Xlog:gc*:file=gc.log:time,uptime", java=java), eventually)
    assert eventually(lambda: "Pause" in (tmp_path / "gc.log").read_text())
    process.terminate()
    end = ends.of(process)
    assert end.exit_code == status(143)
    assert end.last_pause
    assert 0 < end.last_pause < 5


@pytest.mark.parametrize(
    ("option", "code"), [("-XX:+ExitOnOutOfMemoryError", 3), ("-XX:+CrashOnOutOfMemoryError", 134)]
)
def test_a_jvm_that_ends_itself_for_its_heap_says_so(
    option: str, code: int, ends: Ends, flink: Flink, java: Path, eventually: Eventually, tmp_path: Path
) -> None:
    """In the file beside its log, to which Flink's scripts let it print: its log has nothing."""
    process = ends.see(
        flink(MAIN, f"-Dlog.file={tmp_path}/a.log", option, java=java, out=tmp_path / "a.out"), eventually
    )
    obey(process, "fill")
    end = ends.of(process)
    assert (end.exit_code, end.exhausted) == (status(code), "java.lang.OutOfMemoryError: Java heap space")


def test_a_jvm_that_crashed_for_its_heap_says_so_in_its_file() -> None:
    """Where nothing was printed to a file; another crash is none of the heap."""
    crash = "#\n# A fatal error has been detected by the Java Runtime Environment:\n#\n#  fatal error: {}\n"
    heap = crash.format("OutOfMemory encountered: Java heap space")
    assert exhausted("", heap) == exhausted("Terminating due to java.lang.OutOfMemoryError: Java heap space\n", "")
    assert exhausted("I said: Terminating due to java.lang.OutOfMemoryError: x\n", crash.format("x")) is None


def test_the_ports_of_a_jobmanager_and_that_it_is_stopped_are_observed(
    ends: Ends, flink: Flink, java: Path, eventually: Eventually
) -> None:
    """By its port a leader's address is its own. SIGSTOP is no end; it is said when it goes on."""
    process = ends.see(flink(java=java), eventually)
    assert eventually(lambda: any(running.ports for running in ends.running))
    (port,) = ends.running[-1].ports
    assert answers(port)
    process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: ends.running[-1].is_stopped)
    process.send_signal(signal.SIGCONT)
    assert eventually(lambda: not ends.running[-1].is_stopped)
    assert ends.observed.empty()
    process.kill()
    assert ends.of(process).ports == (port,)


def test_a_jvm_that_crashes_leaves_its_problem(ends: Ends, flink: Flink, java: Path, eventually: Eventually) -> None:
    """The file that HotSpot writes, by name, and its line about the problem."""
    process = ends.see(flink(java=java), eventually)
    process.send_signal(signal.SIGSEGV)
    end = ends.of(process)
    assert end.exit_code == status(134)
    assert end.crash_file == f"hs_err_pid{process.pid}.log"
    assert end.crash_problem
    assert end.crash_problem.startswith("SIGSEGV (0xb) at pc=")


def test_a_crash_file_of_before_is_not_this_process_s(
    ends: Ends, flink: Flink, eventually: Eventually, tmp_path: Path
) -> None:
    """In a container the number is always the same; a link is not followed either."""
    process = flink()
    (tmp_path / f"hs_err_pid{process.pid}.log").write_text(
        "#\n# A fatal error has been detected by the Java Runtime\n# x\n"
    )
    os.utime(tmp_path / f"hs_err_pid{process.pid}.log", (0, 0))
    ends.see(process, eventually).kill()
    assert ends.of(process).crash_file is None


def test_the_oom_killer_is_counted(ends: Ends, flink: Flink, eventually: Eventually, cgroup: Path) -> None:
    """The counter of its cgroup rose when it ended, and the limit is the one in force."""
    process = ends.see(flink(), eventually)
    (cgroup / "cgroup.procs").write_text(str(process.pid))  # and that it was moved is noticed
    assert eventually(lambda: holds(cgroup))
    obey(process, "full")
    end = ends.of(process)
    assert end.exit_code == status(137)
    assert (end.oom_kills, end.limit_bytes) == (1, 48 << 20)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of the memory controller with a limit of 48 MiB."""
    if os.geteuid() != 0:
        pytest.skip("to make a cgroup takes root")
    base = Path("/sys/fs/cgroup")
    is_first = (base / "memory").is_dir()
    folder = base / ("memory" if is_first else "") / f"ends-{os.getpid()}"
    folder.mkdir()
    (folder / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(48 << 20))
    yield folder
    for _ in range(100):
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; nothing holds it open at the end."""
    if os.geteuid() != 0:
        pytest.skip("to mount a small disk takes root")
    folder = tmp_path / "logs"
    folder.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["/bin/umount", folder], check=True)


def test_a_full_disk_is_named(ends: Ends, flink: Flink, eventually: Eventually, java: Path, small_disk: Path) -> None:
    """The folder of its log, as its options name it."""
    process = ends.see(flink(MAIN, f"-Dlog.file={small_disk}/flink.log", java=java), eventually)
    assert eventually(lambda: holds(small_disk))
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(bytes(3 << 20))
    process.kill()
    assert ends.of(process).full_disk == str(small_disk)
    assert eventually(lambda: not holds(small_disk))  # its end is reported before its folders are closed


def test_others_processes_are_not_observed(ends: Ends, flink: Flink, eventually: Eventually) -> None:
    """Neither another cluster's JobManager, nor our own TaskManager."""
    others = [flink(cluster="billing"), flink(TASK_MANAGER)]
    ours = ends.see(flink(), eventually)
    assert not watched(os.getpid()) & {process.pid for process in others}
    for process in (*others, ours):
        process.kill()
    ends.of(ours)
    assert ends.observed.empty()


def test_of_two_jobmanagers_of_unknown_clusters_none_is_observed(
    flink: Flink,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
    tmp_path: Path,
) -> None:
    """One alone can only be ours, as in a pod; with a second one that would be a guess."""
    mine = {each.pid: each for each in (flink(), flink())}
    find = processes.find
    monkeypatch.setattr(processes, "find", lambda ours: [process for process in find(ours) if process.pid in mine])
    for conf in tmp_path.glob("conf-*/config.yaml"):
        conf.write_text("high-availability.type: zookeeper\n")
    ends = Ends(CLUSTER)
    ends.watch.start(ends.observe)
    assert eventually(lambda: "their cluster is not known" in caplog.text)
    assert not watched(os.getpid())
    first, second = mine.values()
    first.kill()
    first.wait()
    assert eventually(lambda: watched(os.getpid()) == {second.pid})
    second.kill()
    assert ends.of(second).exit_code == status(137)
    ends.watch.stop()


def test_a_number_that_is_another_process_s_by_now_is_not_watched(flink: Flink) -> None:
    """And nothing stays open."""
    process = flink()
    [found] = [each for each in processes.find(()) if each.pid == process.pid]
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(ProcessLookupError):
        WatchedProcess(found._replace(started=found.started - 1), ("orders",))
    assert len([*Path("/proc/self/fd").iterdir()]) == before


AS_ANOTHER = """
import sys
from queue import Queue
from sidecar.runtime.clock import Clock
from sidecar.drivers.processes import ProcessWatch
from sidecar.host import processes
from tests.integration.test_process_ends import CLUSTER, watched
find, pid = processes.find, int(sys.argv[1])
processes.find = lambda ours: [each for each in find(ours) if each.pid == pid]
observed = Queue()
watch = ProcessWatch([CLUSTER], Clock())
watch.start(observed.put)
while pid not in watched("self"):
    pass
print("watching", flush=True)
while not hasattr(observation := observed.get(timeout=30), "end"):
    pass
end = observation.end
print(end.exit_code, end.full_disk)
"""


def test_another_user_s_jobmanager_is_observed_all_the_same(flink: Flink) -> None:
    """Its exit code needs no right; what does is not known. Without root this test's own user watches."""
    process = flink()
    keep = ("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override")  # to read this Python, wherever it is
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *keep] if os.geteuid() == 0 else []
    command = [*become, sys.executable, "-c", AS_ANOTHER, str(process.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        assert watching.stdout.readline() == "watching\n"
        obey(process, "7")
        process.wait()
        assert watching.stdout.readline() == f"{status(7)} None\n"


@pytest.mark.parametrize(
    ("main", "is_one"),
    [
        ("org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint", True),
        ("org.apache.flink.kubernetes.entrypoint.KubernetesSessionClusterEntrypoint", True),
        ("org.apache.flink.yarn.entrypoint.YarnJobClusterEntrypoint", True),
        ("org.apache.flink.kubernetes.taskmanager.KubernetesTaskExecutorRunner", False),
        ("org.apache.flink.client.cli.CliFrontend", False),
        ("org.apache.flink.table.gateway.SqlGateway", False),
    ],
)
def test_a_jobmanager_is_known_by_its_main_class(main: str, is_one: bool) -> None:
    """On every platform. A command line's client is none."""
    assert bool(process_watch.JOB_MANAGER.search(main)) is is_one


def test_the_folders_of_a_jvm_are_those_of_its_options() -> None:
    """HotSpot's own defaults else; what goes to the console is no file."""
    files = jvm_files(["-Xmx1g", "-Djava.io.tmpdir=/data/tmp", "-Dlog.file=/logs/a.log", "-XX:ErrorFile=/e/%p.log"], 7)
    assert files == ("/data/tmp", "/logs/a.log", "/logs/a.out", ("/e/7.log", FALLBACK), None)
    assert jvm_files([], 7) == (str(Path(FALLBACK).parent), None, None, ("hs_err_pid7.log", FALLBACK), None)
    assert jvm_files(["-Xlog:gc*,safepoint=info:file=/logs/gc-%p.log:time:filecount=5"], 7).gc_log == "/logs/gc-7.log"
    assert jvm_files(["-Xlog:gc:/logs/gc.log"], 7).gc_log == "/logs/gc.log"
    assert jvm_files(["-Xlog:gc:stdout"], 7).gc_log is None


def test_only_pauses_of_the_last_minute_count() -> None:
    """By either of the times that a line may have; a line without one is of any time."""
    lines = [
        "[10.000s][info][gc] GC(0) Pause Full (System.gc()) 9M->1M(15M) 9000.000ms",
        "[950.000s][info][gc] GC(1) Pause Young (Allocation Failure) 9M->1M(15M) 12.500ms",
        "[2026-11-26T10:00:00.000+0000][info][gc] GC(2) Pause Young (Normal) 9M->1M(15M) 700.000ms",
        "GC(3) Pause Full (System.gc()) 9M->1M(15M) 8000.000ms",
        "[951.000s][info][gc] GC(4) Concurrent Mark Cycle 5000.000ms",
    ]
    at = 1_795_687_230.0  # 10:00:30
    assert longest_pause("\n".join(lines), 1000.0, at) == 0.7
    assert longest_pause("\n".join(lines), 1000.0, at + 600) == 0.0125
    assert longest_pause("", 1000.0, at) is None
    assert (
        average("some avg10=3.22 avg60=0.64 avg300=0.13 total=1\nfull avg10=0.00 avg60=0.10 avg300=0.00 total=1")
        == 0.64
    )
    assert average("") is None


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
    monkeypatch.setattr(process_attributes, "_folders", lambda _pid: [(tmp_path, counters, limit)])
    cgroup = process_attributes.MemoryCgroup(1)
    assert cgroup.oom_kills() == after[0]
    (tmp_path / counters).write_text(before.format(after[1]))
    assert cgroup.oom_kills() == after[1]
    assert cgroup.limit_bytes() == (67108864 if limited == "67108864" else None)
    cgroup.close()
    assert cgroup.oom_kills() is None
