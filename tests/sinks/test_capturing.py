"""Of Flink's processes is captured what they do: of real JVMs and real Pythons, without harm to any, and without their secrets."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from sidecar.core.evidence import Kind, Outcome, Piece
from sidecar.lab import rest
from sidecar.lab.java import java_command, java_environment
from sidecar.lab.processes import Process, free_port
from sidecar.sinks import attach, capturing, processes, py_spy
from sidecar.sinks.pieces import NotCapturedError
from sidecar.sinks.processes import FlinkProcess

NOBODY = 65534
SECRET = "s3cretInTheCommandLine"
Alive = Callable[[int], bool]
Eventually = Callable[[Callable[[], bool]], bool]
Run = Callable[..., FlinkProcess]


def known(pid: int, *, is_java: bool = True) -> FlinkProcess:
    """A process, as if it were one of Flink."""
    started = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    return FlinkProcess(pid, int(started), is_java, "java" if is_java else "python")


def pause(process: FlinkProcess) -> None:
    """SIGSTOP; it is stopped when this returns."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def kill(process: FlinkProcess) -> None:
    """SIGKILL; it has ended when this returns."""
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def refused(capture: Callable[[], object]) -> tuple[str, str]:
    """Why it is not captured."""
    with pytest.raises(NotCapturedError) as caught:
        capture()
    return caught.value.outcome, str(caught.value)


@pytest.fixture
def jvm(java: Path, tmp_path: Path, eventually: Eventually) -> Iterator[Run]:
    """Starts a small JVM of nobody's, with these flags; `user` may run it. What it does takes no class but Java's own."""
    with ExitStack() as cleanup:

        def start(*flags: str, user: int | None = None) -> FlinkProcess:
            port = free_port()
            command = [str(java), "-XX:+UseSerialGC", "-Xmx16m", *flags, "-m", "java.rmi/sun.rmi.registry.RegistryImpl"]
            child = subprocess.Popen([*command, str(port)], cwd="/", user=user, group=user, stderr=subprocess.DEVNULL)
            cleanup.callback(child.wait, 10)
            cleanup.callback(child.kill)

            def serves() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            assert eventually(serves)
            return known(child.pid)

        yield start


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Run]:
    """Starts a Python with this file and these arguments; it has said "ready" when this returns."""
    with ExitStack() as cleanup:

        def start(code: str, *arguments: str, name: str = "program.py", argv0: str = sys.executable) -> FlinkProcess:
            program = tmp_path / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(code)
            command = [argv0, *(arguments or [str(program)])]
            child = subprocess.Popen(
                command,
                executable=sys.executable,
                cwd=tmp_path,
                env=os.environ | {"PYTHONHOME": sys.base_prefix},  # which it cannot find by another name
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            cleanup.enter_context(child)
            cleanup.callback(os.killpg, child.pid, signal.SIGKILL)
            assert child.stdout
            assert child.stdout.readline() == b"ready\n"
            return known(child.pid, is_java=False)

        yield start


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


def captured(monkeypatch: pytest.MonkeyPatch, folder: Path, *pids: int) -> list[Piece]:
    """The pieces of these processes alone: whatever else of Flink runs on this machine is not disturbed."""
    find = processes.find
    monkeypatch.setattr(processes, "find", lambda ours: [found for found in find(ours) if found.pid in pids])
    return msgspec.convert(capturing.capture("processes", str(folder), "ep/opened", 30.0), list[Piece])


def test_a_jobmanager_is_captured(jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel says of it and what its threads do; nothing of its command line but the main class."""
    began = time.monotonic()
    [kernel, dump] = captured(monkeypatch, tmp_path, jobmanager.pid)
    assert time.monotonic() - began < 5
    subject = f"pid {jobmanager.pid} (StandaloneSessionClusterEntrypoint)"
    assert [(piece.kind, piece.subject, piece.outcome) for piece in (kernel, dump)] == [
        (Kind.PROCESS, subject, Outcome.CAPTURED),
        (Kind.THREAD_DUMP, subject, Outcome.CAPTURED),
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


def test_what_cannot_be_written_is_told_with_what_is_known(
    jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be made, as on a disk that is read-only: the attributes are there all the same."""
    (tmp_path / "file").write_text("")
    [_, dump] = captured(monkeypatch, tmp_path / "file" / "evidence", jobmanager.pid)
    assert (dump.outcome, dump.file, dump.attributes["deadlock"]) == (Outcome.FAILED, None, "no")
    assert dump.detail == (
        f"could not write {tmp_path}/file/evidence/ep/opened-thread_dump-{jobmanager.pid}.txt: Not a directory"
    )


def test_a_full_disk_leaves_no_half_file(jobmanager: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is removed."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    [_, dump] = captured(monkeypatch, tmp_path, jobmanager.pid)
    assert (dump.outcome, (dump.detail or "").rpartition(": ")[2]) == (Outcome.FAILED, "No space left on device")
    assert list((tmp_path / "ep").iterdir()) == []


def test_a_jvm_is_asked_twice_and_no_file_of_ours_stays(jvm: Run) -> None:
    """The second time it listens already."""
    process = jvm()
    for _ in range(2):
        assert '"Reference Handler" #' in attach.thread_dump(process, 10)
    assert not Path(f"/.attach_pid{process.pid}").exists()
    assert not Path(f"/tmp/.attach_pid{process.pid}").exists()  # noqa: S108  where HotSpot looks


def test_a_file_that_was_left_behind_is_no_hindrance(jvm: Run) -> None:
    """Somebody who asked before was killed: an old file is removed, one of this moment is somebody else's."""
    process = jvm()
    left = Path(f"/.attach_pid{process.pid}")
    left.touch()
    os.utime(left, (0, 0))
    attach.thread_dump(process, 10)
    assert not left.exists()


def test_a_jvm_that_does_not_catch_sigquit_lives_on(jvm: Run, alive: Alive) -> None:
    """With -Xrs the signal would end it. It is not sent: most such JVMs listen from the start, and others cannot be asked."""
    assert '"Reference Handler" #' in attach.thread_dump(jvm("-Xrs"), 10)
    process = jvm("-Xrs", "-XX:+DisableAttachMechanism")
    assert refused(lambda: attach.thread_dump(process, 10)) == (
        "refused",
        "it does not catch SIGQUIT: to ask it would be to end it",
    )
    assert alive(process.pid)


def test_a_jvm_that_must_not_listen_is_not_asked_to(jvm: Run, alive: Alive) -> None:
    """It would answer the signal with a dump in its own log, and never listen."""
    process = jvm("-XX:+DisableAttachMechanism")
    assert refused(lambda: attach.thread_dump(process, 5)) == (
        "refused",
        "it must not listen: -XX:+DisableAttachMechanism",
    )
    assert alive(process.pid)
    assert not Path(f"/.attach_pid{process.pid}").exists()


def test_a_stopped_jvm_is_not_waited_for(jvm: Run, alive: Alive) -> None:
    """Its state is the answer."""
    process = jvm()
    attach.thread_dump(process, 10)
    pause(process)
    began = time.monotonic()
    assert refused(lambda: attach.thread_dump(process, 10)) == (
        "failed",
        "it is stopped (state T (stopped)), and answers nobody",
    )
    assert time.monotonic() - began < 1
    assert alive(process.pid)


def test_a_process_that_has_ended_is_told_so(jvm: Run) -> None:
    """Also where its number belongs to another one by now."""
    process = jvm()
    assert refused(lambda: attach.thread_dump(process._replace(started=process.started - 1), 10)) == (
        "failed",
        "it has ended",
    )
    kill(process)
    assert refused(lambda: attach.thread_dump(process, 10)) == ("failed", "it has ended")


@pytest.mark.skipif(os.geteuid() != 0, reason="to run a JVM as somebody else takes root")
def test_root_asks_a_jvm_of_another_user(jvm: Run) -> None:
    """A new one is glad to answer."""
    assert '"Reference Handler" #' in attach.thread_dump(jvm(user=NOBODY), 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else takes root")
def test_root_asks_as_the_user_of_the_jvm(pretender: Callable[..., FlinkProcess]) -> None:
    """An old JVM talks to nobody else; afterwards we are root again."""
    become = (
        f"import ctypes; os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3); ctypes.CDLL(None).prctl(4, 1)"
    )
    process = pretender("b'0\\n%d %d' % struct.unpack('3i', connection.getsockopt(1, 17, 12))[1:]", become)
    assert attach.thread_dump(process, 10) == f"{NOBODY} {NOBODY}"
    assert (os.geteuid(), os.getegid()) == (0, 0)


def as_nobody(module: str, call: str, process: FlinkProcess) -> tuple[str, str]:
    """Why it is not captured, by a process that is another user's. Without root this one is: the process is then that of root, pid 1."""
    if os.geteuid() != 0:
        process = known(1, is_java=process.is_java)
    code = f"""
import json, os
from sidecar.sinks import {module}
from sidecar.sinks.pieces import NotCapturedError
from sidecar.sinks.processes import FlinkProcess
process = FlinkProcess(*{list(process)!r})
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
try:
    {module}.{call}(process, 10)
except NotCapturedError as error:
    print(json.dumps([error.outcome, str(error)]))
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, timeout=30, check=True
    )
    outcome, detail = json.loads(answer.stdout)
    return outcome, detail


def test_a_jvm_of_another_user_is_not_asked(jvm: Run) -> None:
    """One line tells who would have to ask."""
    ours = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert as_nobody("attach", "thread_dump", jvm()) == (
        "refused",
        f"it is of user 0 and we are {ours}: only that user may ask it",
    )


@pytest.fixture
def pretender(python: Run) -> Callable[..., FlinkProcess]:
    """A process that listens where a JVM does, and answers with this expression; something may be done `before`."""

    def start(answer: str, before: str = "") -> FlinkProcess:
        return python(f"""
import os, socket, struct, time
{before}
place = f"/tmp/.java_pid{{os.getpid()}}"
server = socket.socket(socket.AF_UNIX)
server.bind(place)
server.listen()
print("ready", flush=True)
connection, _ = server.accept()
os.unlink(place)
request = connection.recv(100)
try:
    connection.sendall({answer})
except OSError:
    pass
connection.close()
time.sleep(60)
""")

    return start


@pytest.mark.parametrize(
    ("answer", "seconds", "expected"),
    [
        ("b'101\\nBad \\x1b version\\n'", 5.0, "it has refused with error 101: Bad � version"),
        ("b''", 5.0, "it has refused without a word"),
        ("b'0\\n' + time.sleep(60)", 0.5, "it does not answer (state S (sleeping))"),
    ],
)
def test_a_jvm_that_answers_badly_is_told_in_one_line(
    pretender: Callable[..., FlinkProcess], answer: str, seconds: float, expected: str
) -> None:
    """In bounded time."""
    assert refused(lambda: attach.thread_dump(pretender(answer), seconds)) == ("failed", expected)


def test_a_thread_dump_is_bounded(pretender: Callable[..., FlinkProcess]) -> None:
    """What comes after 4 MiB is cut off."""
    text = attach.thread_dump(pretender("b'0\\n' + b'x' * (20 << 20)"), 10)
    assert len(text) < attach.MOST_BYTES + 100
    assert text.endswith("x\n… cut off after 4 MiB\n")


def test_the_request_is_a_thread_dump_without_a_walk_through_the_heap(pretender: Callable[..., FlinkProcess]) -> None:
    """Version, command and three arguments, as HotSpot reads them; `-l` would stop a large JVM for seconds."""
    assert attach.thread_dump(pretender("b'0\\n' + repr(request).encode()"), 5) == repr(b"1\0threaddump\0\0\0\0")


def test_a_socket_of_another_process_is_not_spoken_to(jvm: Run) -> None:
    """In a shared /tmp, the JVM of another container may have the same number."""
    process = jvm()
    place = Path(f"/tmp/.java_pid{process.pid}")  # noqa: S108  where HotSpot has it
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
            server.listen()
            assert refused(lambda: attach.thread_dump(process, 5)) == (
                "refused",
                "another process is behind its socket",
            )
        place.unlink()
        place.symlink_to("/dev/null")
        assert refused(lambda: attach.thread_dump(process, 5))[1] == (
            "what stands at the place of its socket is not its own"
        )
    finally:
        place.unlink()


JAVA_IN_NAME_ONLY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGQUIT, signal.SIG_DFL if "plain" in sys.argv else lambda *_: sys.exit(1))
code = "import time; print('ready', flush=True); time.sleep(60)"
child = subprocess.Popen(["python", "-c", code], executable="/proc/self/exe")
time.sleep(60)
"""


def test_what_is_called_java_and_is_none_gets_no_signal(python: Run, alive: Alive) -> None:
    """It might take it for something else."""
    name = "org.apache.flink.Pretender"
    process = python(JAVA_IN_NAME_ONLY, name, name=name, argv0="java")
    [found] = [found for found in processes.find(set()) if found.pid == process.pid]
    assert (found.is_java, found.subject) == (True, f"pid {process.pid} (Pretender)")
    assert refused(lambda: attach.thread_dump(found, 5)) == (
        "refused",
        "it is no HotSpot JVM, whatever its command line says",
    )
    assert alive(process.pid)


def test_a_python_below_a_jvm_of_flink_is_found(python: Run) -> None:
    """Whatever it runs, it works for Flink."""
    name = "org.apache.flink.Pretender"
    process = python(JAVA_IN_NAME_ONLY, name, name=name, argv0="java")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {found.pid: found for found in processes.find(set())}
    assert [found[int(child)].subject for child in children] == [f"pid {child} (python)" for child in children]
    assert processes.find({process.pid, *map(int, children)}) == [
        other for pid, other in found.items() if str(pid) not in children
    ]


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
    assert (kernel.subject, kernel.outcome) == (f"pid {process.pid} (boot)", Outcome.CAPTURED)
    assert (kernel.attributes["state"], kernel.attributes["program"]) == ("T (stopped)", module)
    assert (stacks.kind, stacks.outcome, stacks.detail) == (Kind.PY_SPY, Outcome.CAPTURED, None)
    assert (stacks.attributes, stacks.file) == ({"threads": "2"}, f"ep/opened-py_spy-{process.pid}.txt")
    text = (tmp_path / str(stacks.file)).read_text()
    assert f"    waits_for_data ({tmp_path}/pyflink/fn_execution/boot.py:6)\n" in text
    assert f'"MainThread" os_id={process.pid} (' in text
    assert "s3cret" not in f"{text}{kernel}{stacks}"


def test_a_python_of_another_user_is_not_read(python: Run) -> None:
    """One line tells what the container would need."""
    assert as_nobody("py_spy", "stacks", python(PYFLINK)) == (
        "refused",
        "py-spy is not permitted to read it: the container needs the capability SYS_PTRACE",
    )


def test_what_py_spy_cannot_read_is_told_in_one_line(jvm: Run, python: Run) -> None:
    """No Python, one that has ended, and no time."""
    outcome, detail = refused(lambda: py_spy.stacks(jvm(), 10))
    assert (outcome, detail.partition(":")[0], "\n" in detail) == ("failed", "py-spy", False)
    process = python(PYFLINK)
    assert refused(lambda: py_spy.stacks(process, 0)) == ("failed", "py-spy has not answered in time")
    kill(process)
    assert refused(lambda: py_spy.stacks(process, 10)) == ("failed", "it has ended")


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
def test_flinks_processes_are_known_by_what_they_run(
    command: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by what else is in a command line."""
    (tmp_path / "17").mkdir()
    (tmp_path / "17" / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command.split()))
    (tmp_path / "17" / "stat").write_text(f"17 (a) b) S 1 {' 0' * 40}")
    monkeypatch.setattr(processes, "PROC", tmp_path)
    assert [found.subject for found in processes.find(set())] == ([f"pid 17 ({name})"] if name else [])


def test_under_cgroup_version_1_the_rest_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no line of version 2, and no number of kills."""
    read = processes._read
    monkeypatch.setattr(processes, "_read", lambda pid, name: "4:memory:/x\n" if name == "cgroup" else read(pid, name))
    found = processes.attributes(known(os.getpid()))
    assert {"state", "threads", "rss_bytes", "uid"} <= found.keys()
    assert "cgroup_oom_kills" not in found


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_what_another_container_has_in_place_of_a_file_is_not_read(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    """Whoever is root there may put there what hangs, or what never ends."""
    make(tmp_path / "memory.events")
    with pytest.raises(OSError):  # noqa: PT011  which one does not matter
        processes._file(tmp_path / "memory.events")


def test_what_a_child_has_started_ends_with_its_parent(alive: Alive, eventually: Eventually) -> None:
    """py-spy hangs, and the sidecar is killed."""
    code = """
import subprocess
from sidecar.answering import answer_once

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


def test_that_nothing_of_flink_is_visible_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual reason is one line in the pod."""
    [piece] = captured(monkeypatch, tmp_path)
    assert (piece.kind, piece.outcome, piece.detail) == (
        Kind.PROCESS,
        Outcome.ABSENT,
        "no process of Flink is visible from here: in a pod, set shareProcessNamespace: true",
    )


def test_of_very_many_processes_the_first_are_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That there are others is told."""
    gone = [FlinkProcess(2**22 + number, 1, True, "org.apache.flink.X") for number in range(13)]
    monkeypatch.setattr(processes, "find", lambda _: gone)
    pieces = msgspec.convert(capturing.capture("processes", str(tmp_path), "ep/opened", 30.0), list[Piece])
    assert [piece.detail for piece in pieces] == [
        *["it has ended"] * 20,
        "3 more processes of Flink are visible, and are not captured: 10 are",
    ]
    assert len({(piece.kind, piece.subject) for piece in pieces}) == 21


def test_the_child_starts_fast() -> None:
    """It loads nothing large: what it looks at is about to end."""
    code = "import sys, sidecar.sinks.capturing; print(len({'msgspec', 'kazoo', 'jinja2', 'logging'} & sys.modules.keys()))"
    answer = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout == "0\n"
