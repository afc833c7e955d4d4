"""Of Flink's processes is captured what they do: of real JVMs and real Pythons, without harm to any, and without their secrets."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from sidecar.core.captures import CaptureOutcome, EvidenceItem, EvidenceKind
from sidecar.host import processes
from sidecar.host.process_attributes import attributes
from sidecar.host.processes import FlinkProcess
from sidecar.sinks.evidence import evidence_child, thread_dumps
from tests.lab import rest
from tests.lab.java import java_command, java_environment
from tests.lab.processes import Process, free_port
from tests.sinks.running import Alive, Eventually, Run, as_nobody, kill, pause, refused

SECRET = "s3cretInTheCommandLine"


@pytest.fixture(scope="module")
def jobmanager(tmp_path_factory: pytest.TempPathFactory, java: Path, flink_2_home: Path) -> Iterator[Process]:
    """A real JobManager, alone."""
    folder = tmp_path_factory.mktemp("jobmanager")
    (folder / "config.yaml").write_text("")
    port = free_port()
    settings = {
        "rest.port": port,
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": free_port(),
        "some.password": SECRET,
    }
    main = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
    options = ("--configDir", str(folder), *(f"-D{key}={value}" for key, value in settings.items()))
    log = folder / "jobmanager.log"
    command = java_command(java, flink_2_home, folder, 256, main, *options, log=log)
    process = Process("jobmanager", command, log, java_environment())
    process.start()
    deadline = time.monotonic() + 60
    while True:
        try:
            rest.call(f"http://127.0.0.1:{port}", "GET", "/config")
            break
        except rest.RestError:
            assert process.running, process.last_words()
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield process
    process.kill()


def captured(monkeypatch: pytest.MonkeyPatch, folder: Path, *pids: int) -> list[EvidenceItem]:
    """The items of these processes only: other Flink processes of this machine are not disturbed."""
    find = processes.find
    monkeypatch.setattr(processes, "find", lambda ours: [found for found in find(ours) if found.pid in pids])
    return msgspec.convert(evidence_child.capture("processes", str(folder), "ep/opened", 30.0), list[EvidenceItem])


@pytest.mark.timing
def test_a_jobmanager_is_captured(jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attributes and its thread dump; nothing of its command line except the main class."""
    began = time.monotonic()
    [kernel, dump] = captured(monkeypatch, tmp_path, jobmanager.pid)
    assert time.monotonic() - began < 5
    subject = f"pid {jobmanager.pid} (StandaloneSessionClusterEntrypoint)"
    assert [(item.kind, item.subject, item.outcome) for item in (kernel, dump)] == [
        (EvidenceKind.PROCESS, subject, CaptureOutcome.CAPTURED),
        (EvidenceKind.THREAD_DUMP, subject, CaptureOutcome.CAPTURED),
    ]
    assert {
        "state",
        "threads",
        "rss_bytes",
        "cpu_seconds",
        "started_seconds_ago",
        "oom_score",
    } <= kernel.attributes.keys()
    assert int(kernel.attributes["started_seconds_ago"]) < 600
    assert 50e6 < int(kernel.attributes["rss_bytes"]) < 2e9
    assert dump.file == f"ep/opened-thread_dump-{jobmanager.pid}.txt"
    text = (tmp_path / dump.file).read_text()
    assert '"flink-pekko.actor.default-dispatcher-' in text
    assert (int(dump.attributes["threads"]) > 20, dump.attributes["deadlock"]) == (True, "no")
    assert (dump.size_bytes, (tmp_path / dump.file).stat().st_mode & 0o777) == (len(text.encode()), 0o600)
    assert SECRET not in f"{kernel}{dump}{text}"
    assert jobmanager.running


def test_a_file_that_cannot_be_written_keeps_its_attributes(
    jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be made, as on a disk that is read-only: the attributes are there all the same."""
    (tmp_path / "file").write_text("")
    [_, dump] = captured(monkeypatch, tmp_path / "file" / "evidence", jobmanager.pid)
    assert (dump.outcome, dump.file, dump.attributes["deadlock"]) == (CaptureOutcome.FAILED, None, "no")
    assert dump.detail == (
        f"could not write {tmp_path}/file/evidence/ep/opened-thread_dump-{jobmanager.pid}.txt: Not a directory"
    )


def test_a_full_disk_leaves_no_half_file(jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is removed."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    [_, dump] = captured(monkeypatch, tmp_path, jobmanager.pid)
    assert (dump.outcome, (dump.detail or "").rpartition(": ")[2]) == (CaptureOutcome.FAILED, "No space left on device")
    assert list((tmp_path / "ep").iterdir()) == []


JAVA_IN_NAME_ONLY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGQUIT, signal.SIG_DFL if "plain" in sys.argv else lambda *_: sys.exit(1))
code = "import time; print('ready', flush=True); time.sleep(60)"
child = subprocess.Popen(["python", "-c", code], executable="/proc/self/exe")
time.sleep(60)
"""


def test_a_process_named_java_that_is_no_jvm_gets_no_signal(python: Run, alive: Alive) -> None:
    """It might react to SIGQUIT in any way."""
    name = "org.apache.flink.Pretender"
    process = python(JAVA_IN_NAME_ONLY, name, name=name, argv0="java")
    Path(f"/tmp/.java_pid{process.pid}").unlink(missing_ok=True)  # noqa: S108  of a killed JVM that had the same id
    [found] = [found for found in processes.find(set()) if found.pid == process.pid]
    assert (found.is_java, found.subject) == (True, f"pid {process.pid} (Pretender)")
    assert refused(lambda: thread_dumps.thread_dump(found, 5)) == (
        "refused",
        "not a HotSpot JVM, despite its command line",
    )
    assert alive(process.pid)


def test_a_python_below_a_jvm_of_flink_is_found(python: Run) -> None:
    """Whatever it runs."""
    name = "org.apache.flink.Pretender"
    process = python(JAVA_IN_NAME_ONLY, name, name=name, argv0="java")
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]

    def subjects(ours: set[int]) -> list[str]:
        """Of these: other tests start and end JVMs of Flink meanwhile."""
        return [subjects.subject for subjects in processes.find(ours) if subjects.pid in {process.pid, *children}]

    jvm = f"pid {process.pid} (Pretender)"
    assert subjects(set()) == [jvm, *(f"pid {child} (python)" for child in children)]
    assert subjects({process.pid, *children}) == [jvm]


SHELL_HAS_ENDED = """
import os, time
if not os.fork():
    if not os.fork():
        os.execv("/proc/self/exe", ["python", "-c", "import time; print('ready', flush=True); time.sleep(60)"])
    os._exit(0)
os.wait()
time.sleep(60)
"""


def test_a_python_whose_shell_has_ended_is_still_found_as_the_jvms(python: Run) -> None:
    """A TaskManager that cancels a job ends the shell that runs the worker; a worker that hangs lives on, as nobody's child."""
    name = "org.apache.flink.Pretender"
    jvm = python(SHELL_HAS_ENDED, name, name=name, argv0="java")
    [worker] = [found for found in processes.find(set()) if found.works_for == jvm.pid]
    assert int(processes.status(worker.pid)["PPid"]) != jvm.pid


def test_python_comes_before_jvms(python: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TaskManager ends its Python within a fraction of a second after its job has lost its leader."""
    name = "org.apache.flink.Pretender"
    jvm = python(SHELL_HAS_ENDED, name, name=name, argv0="java")
    pids = [found.pid for found in processes.find(set()) if jvm.pid in {found.pid, found.works_for}]
    items = captured(monkeypatch, tmp_path, *pids)
    assert [item.kind for item in items[2:]] == [EvidenceKind.PY_SPY, EvidenceKind.THREAD_DUMP]


PYFLINK = """
import threading, time

def waits_for_data(password):
    while True:
        time.sleep(0.01)

threading.Thread(target=waits_for_data, args=["s3cretInAVariable"], name="worker\\x1b-7", daemon=True).start()
print("ready", flush=True)
waits_for_data("s3cretInAVariable")
"""


def test_a_python_of_pyflink_is_captured(python: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stacks of all its threads, without what is in their variables; also while it is stopped."""
    module = "pyflink.fn_execution.boot"
    process = python(PYFLINK, "-u", "-m", module, "--token", SECRET, name=f"{module.replace('.', '/')}.py")
    pause(process)
    [kernel, stacks] = captured(monkeypatch, tmp_path, process.pid)
    assert (kernel.subject, kernel.outcome) == (f"pid {process.pid} (boot)", CaptureOutcome.CAPTURED)
    assert (kernel.attributes["state"], kernel.attributes["program"]) == ("T (stopped)", module)
    assert (stacks.kind, stacks.outcome, stacks.detail) == (EvidenceKind.PY_SPY, CaptureOutcome.CAPTURED, None)
    assert (stacks.attributes, stacks.file) == ({"threads": "2"}, f"ep/opened-py_spy-{process.pid}.txt")
    text = (tmp_path / str(stacks.file)).read_text()
    assert f"    waits_for_data ({tmp_path}/pyflink/fn_execution/boot.py:6)\n" in text
    assert f'"MainThread" os_id={process.pid} (' in text
    assert "s3cret" not in f"{text}{kernel}{stacks}"


def test_a_python_of_another_user_is_not_read(python: Run) -> None:
    """One line names the missing right."""
    assert as_nobody("thread_dumps", "stacks", python(PYFLINK)) == (
        "refused",
        "py-spy is not permitted to read it: the container needs the capability SYS_PTRACE",
    )


def test_a_failure_of_py_spy_is_one_line(jvm: Run, python: Run) -> None:
    """No Python, no time left, and one that has ended."""
    outcome, detail = refused(lambda: thread_dumps.stacks(jvm(), 10))
    assert (outcome, detail.partition(":")[0], "\n" in detail) == ("failed", "py-spy", False)
    process = python(PYFLINK)
    assert refused(lambda: thread_dumps.stacks(process, 0)) == ("failed", "py-spy has not answered in time")
    kill(process)
    assert refused(lambda: thread_dumps.stacks(process, 10)) == ("failed", "the process has ended")


def test_a_py_spy_that_does_not_answer_is_ended(python: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script stands for it: py-spy itself always answers."""
    hangs = tmp_path / "py-spy"
    hangs.write_text(f"#!{sys.executable} -S\nimport time\n\ntime.sleep(600)\n")
    hangs.chmod(0o700)
    monkeypatch.setattr(thread_dumps, "_program", lambda: hangs)
    assert refused(lambda: thread_dumps.stacks(python(PYFLINK), 1)) == ("failed", "py-spy has not answered in time")


def test_stacks_without_a_frame_are_no_evidence(python: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What py-spy prints of a Python that is ending: one thread, which has no name and no stack."""
    thread = '{"active": true, "owns_gil": true, "thread_name": null, "os_thread_id": 7, "frames": []}'
    program = tmp_path / "py-spy"
    program.write_text(f"#!{sys.executable} -S\nprint('[{thread}]')\n")
    program.chmod(0o700)
    monkeypatch.setattr(thread_dumps, "_program", lambda: program)
    assert refused(lambda: thread_dumps.stacks(python(PYFLINK), 30)) == (
        "failed",
        "py-spy: no thread has a stack: the process is starting or ending",
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (
            "java -cp a.jar:b.jar -Dx=y org.apache.flink.runtime.taskexecutor.TaskManagerRunner -D p=q",
            "TaskManagerRunner",
        ),
        ("/opt/java/bin/java --add-opens java.base/java.net=ALL-UNNAMED org.apache.flink.kubernetes.Main$1", "Main$1"),
        ("java -cp org.apache.flink.X:a.jar com.example.Main org.apache.flink.Y", None),
        ("java org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg", None),
        ("java -jar org.apache.flink.jar", None),
        ("sh -c java org.apache.flink.X", None),
        ("python3.11 -u -m pyflink.fn_execution.beam.beam_boot --id=1", "beam_boot"),
        ("python /opt/venv/lib/pyflink/examples/word_count.py", "python"),
        ("/usr/bin/python -m sidecar run --config /etc/pyflink/sidecar.yaml", None),
        ("/venv/bin/python /opt/pyflink/bin/flink-ha-sidecar run", None),
        ("python job.py --module pyflink", None),
        ("python", None),
        ("", None),
    ],
)
def test_flink_processes_are_identified_by_their_main_class_or_module(
    command: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by what else is in a command line."""
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command.split()))
    (tmp_path / "17" / "stat").write_text(f"17 (a) b) S 1 {' 0' * 40}")
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert [found.subject for found in processes.find(set())] == ([f"pid 17 ({name})"] if name else [])


def test_without_the_files_of_its_cgroup_the_rest_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no number of kills."""
    read = processes.read
    monkeypatch.setattr(processes, "read", lambda pid, name: "4:memory:/x\n" if name == "cgroup" else read(pid, name))
    found = attributes(os.getpid())
    assert {"state", "threads", "rss_bytes", "uid"} <= found.keys()
    assert "cgroup_oom_kills" not in found


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_only_regular_files_of_another_container_are_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Root of that container can create devices and pipes that hang or never end."""
    make(tmp_path / "memory.events")
    with pytest.raises(OSError):  # noqa: PT011  which one does not matter
        processes.read(1, str(tmp_path / "memory.events"))


def test_processes_started_by_a_child_end_with_its_parent(alive: Alive, eventually: Eventually) -> None:
    """py-spy hangs, and the sidecar is killed."""
    code = """
import subprocess
from sidecar.runtime.answering import answer_once

answer_once(lambda: subprocess.run(["sh", "-c", "echo $$ >&2; exec sleep 600"]))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    with child:
        assert child.stdin
        assert child.stderr
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        started = int(child.stderr.readline())
        assert alive(started)
        child.stdin.close()  # as when the parent is gone
        assert eventually(lambda: not alive(started))


def test_no_visible_flink_process_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual reason is one line in the pod."""
    [item] = captured(monkeypatch, tmp_path)
    assert (item.kind, item.outcome, item.detail) == (
        EvidenceKind.PROCESS,
        CaptureOutcome.ABSENT,
        "no Flink process is visible: in a pod, set shareProcessNamespace: true",
    )


def test_of_very_many_processes_the_first_are_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of the others is reported."""
    gone = [FlinkProcess(2**22 + number, 1, True, "org.apache.flink.X") for number in range(13)]
    monkeypatch.setattr(processes, "find", lambda _: gone)
    items = msgspec.convert(evidence_child.capture("processes", str(tmp_path), "ep/opened", 30.0), list[EvidenceItem])
    assert [item.detail for item in items] == [
        *["the process has ended"] * 20,
        "3 more Flink processes are visible and not captured: the limit is 10",
    ]
    assert len({(item.kind, item.subject) for item in items}) == 21


def test_the_child_starts_fast() -> None:
    """It loads nothing large: what it looks at is about to end."""
    code = "import sys, sidecar.sinks.evidence.evidence_child; print(len({'msgspec', 'kazoo', 'jinja2', 'logging'} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout == "0\n"
