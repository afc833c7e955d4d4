"""A JVM is asked for a thread dump as jcmd does it: real ones answer, and none is harmed."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.core.bounds import STACKS
from sidecar.host.processes import FlinkProcess
from sidecar.sinks.evidence import thread_dumps
from tests.sinks.running import NOBODY, Alive, Run, as_nobody, kill, pause, refused


def test_a_jvm_is_asked_twice_and_no_file_of_ours_stays(jvm: Run) -> None:
    """The second time it listens already."""
    process = jvm()
    for _ in range(2):
        assert '"Reference Handler" #' in thread_dumps.thread_dump(process, 10)
    assert not Path(f"/.attach_pid{process.pid}").exists()
    assert not Path(f"/tmp/.attach_pid{process.pid}").exists()  # noqa: S108  where HotSpot looks


def test_a_file_that_was_left_behind_is_no_hindrance(jvm: Run) -> None:
    """An old trigger file was left by a killed tool and is removed; a new one belongs to another tool and stays."""
    process = jvm()
    left = Path(f"/proc/{process.pid}/cwd/.attach_pid{process.pid}")
    left.touch()
    os.utime(left, (0, 0))
    thread_dumps.thread_dump(process, 10)
    assert not left.exists()


def test_a_jvm_that_does_not_catch_sigquit_lives_on(jvm: Run, alive: Alive) -> None:
    """With -Xrs the signal would end it. It is not sent: most such JVMs listen from the start, and others cannot be asked."""
    assert '"Reference Handler" #' in thread_dumps.thread_dump(jvm("-Xrs"), 10)
    process = jvm("-Xrs", "-XX:+DisableAttachMechanism")
    assert refused(lambda: thread_dumps.thread_dump(process, 10)) == (
        "refused",
        "the process does not catch SIGQUIT, which would end it",
    )
    assert alive(process.pid)


def test_a_jvm_that_must_not_listen_is_not_asked_to(jvm: Run, alive: Alive) -> None:
    """It would answer the signal with a dump in its own log, and never listen."""
    process = jvm("-XX:+DisableAttachMechanism")
    assert refused(lambda: thread_dumps.thread_dump(process, 5)) == (
        "refused",
        "attaching is disabled: -XX:+DisableAttachMechanism",
    )
    assert alive(process.pid)
    assert not Path(f"/.attach_pid{process.pid}").exists()


@pytest.mark.timing
def test_a_stopped_jvm_is_not_waited_for(jvm: Run, alive: Alive) -> None:
    """Its state is the answer."""
    process = jvm()
    thread_dumps.thread_dump(process, 10)
    pause(process)
    began = time.monotonic()
    assert refused(lambda: thread_dumps.thread_dump(process, 10)) == (
        "failed",
        "the process is stopped (state T (stopped)) and cannot answer",
    )
    assert time.monotonic() - began < 1
    assert alive(process.pid)


def test_an_ended_process_is_reported(jvm: Run) -> None:
    """Also where its number belongs to another one by now."""
    process = jvm()
    assert refused(lambda: thread_dumps.thread_dump(process._replace(started=process.started - 1), 10)) == (
        "failed",
        "the process has ended",
    )
    kill(process)
    assert refused(lambda: thread_dumps.thread_dump(process, 10)) == ("failed", "the process has ended")


@pytest.mark.skipif(os.geteuid() != 0, reason="to run a JVM as somebody else takes root")
def test_root_asks_a_jvm_of_another_user(jvm: Run) -> None:
    """A new one is glad to answer."""
    assert '"Reference Handler" #' in thread_dumps.thread_dump(jvm(user=NOBODY), 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="to be somebody else takes root")
def test_root_asks_as_the_user_of_the_jvm(pretender: Callable[..., FlinkProcess]) -> None:
    """An old JVM accepts only its own user; afterwards the sidecar is root again."""
    become = (
        f"import ctypes; os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3); ctypes.CDLL(None).prctl(4, 1)"
    )
    process = pretender("b'0\\n%d %d' % struct.unpack('3i', connection.getsockopt(1, 17, 12))[1:]", become)
    assert thread_dumps.thread_dump(process, 10) == f"{NOBODY} {NOBODY}"
    assert (os.geteuid(), os.getegid()) == (0, 0)


def test_a_jvm_of_another_user_is_not_asked(jvm: Run) -> None:
    """One line names both users."""
    ours = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert as_nobody("thread_dumps", "thread_dump", jvm()) == (
        "refused",
        f"the process runs as user 0, the sidecar as {ours}: they must be the same",
    )


@pytest.fixture
def pretender(python: Run) -> Callable[..., FlinkProcess]:
    """A process that listens where a JVM does, and answers with this expression; something may be done `before`."""

    def start(answer: str, before: str = "") -> FlinkProcess:
        return python(f"""
import os, socket, struct, time
{before}
place = f"/tmp/.java_pid{{os.getpid()}}"
if os.path.exists(place):  # a JVM of this number was killed here, long ago
    os.unlink(place)
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
        ("b'101\\nBad \\x1b version\\n'", 5.0, "the JVM refused with error 101: Bad � version"),
        ("b''", 5.0, "the JVM refused without a reason"),
        ("b'0\\n' + time.sleep(60)", 0.5, "the JVM did not answer in time (state S (sleeping))"),
    ],
)
def test_a_bad_answer_of_a_jvm_is_one_line(
    pretender: Callable[..., FlinkProcess], answer: str, seconds: float, expected: str
) -> None:
    """In bounded time."""
    assert refused(lambda: thread_dumps.thread_dump(pretender(answer), seconds)) == ("failed", expected)


def test_a_thread_dump_is_bounded(pretender: Callable[..., FlinkProcess]) -> None:
    """What comes after 4 MiB is cut off."""
    text = thread_dumps.thread_dump(pretender("b'0\\n' + b'x' * (20 << 20)"), 10)
    assert len(text) < STACKS.most_bytes + 100
    assert text.endswith("x\n… cut off after 4 MiB\n")


def test_the_request_is_a_thread_dump_without_a_walk_through_the_heap(pretender: Callable[..., FlinkProcess]) -> None:
    """Version, command and three arguments, as HotSpot reads them; `-l` would stop a large JVM for seconds."""
    assert thread_dumps.thread_dump(pretender("b'0\\n' + repr(request).encode()"), 5) == repr(b"1\0threaddump\0\0\0\0")


def test_a_socket_of_another_process_is_not_spoken_to(jvm: Run) -> None:
    """In a shared /tmp, the JVM of another container may have the same number."""
    process = jvm()
    place = Path(f"/tmp/.java_pid{process.pid}")  # noqa: S108  where HotSpot has it
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
            server.listen()
            assert refused(lambda: thread_dumps.thread_dump(process, 5)) == (
                "refused",
                "its attach socket belongs to another process",
            )
        place.unlink()
        place.symlink_to("/dev/null")
        assert refused(lambda: thread_dumps.thread_dump(process, 5))[1] == (
            "the file at the path of its attach socket is not the JVM's"
        )
    finally:
        place.unlink()
