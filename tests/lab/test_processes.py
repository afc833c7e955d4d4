"""Child processes do what is asked of them, and never outlive the one that started them."""

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import processes
from tests.lab.lab_error import LabError
from tests.lab.processes import Process, free_port

Alive = Callable[[int], bool]
Eventually = Callable[[Callable[[], bool]], bool]

# A program that starts a child from a thread that ends at once, prints the child's pid, and runs until its input ends.
PARENT = """
import sys, threading
from pathlib import Path
from tests.lab.processes import Process
child = Process("child", ["sleep", "600"], Path(sys.argv[1]))
thread = threading.Thread(target=child.start)
thread.start()
thread.join()
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def sleeper(tmp_path: Path) -> Process:
    """A process that sleeps; not started."""
    return Process("sleeper", ["sleep", "600"], tmp_path / "sleeper.log")


def _state(process: Process) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_free_ports_are_free_and_never_the_same() -> None:
    """Every port given out can be bound, and no two are equal."""
    ports = [free_port() for _ in range(50)]
    for port in ports:
        with socket.create_server(("127.0.0.1", port)) as server:
            assert server.getsockname()[1] == port
    assert len(set(ports)) == 50


def test_processes_side_by_side_are_given_different_ports() -> None:
    """What one process was given, no other is given while the first lives; afterwards it is free again."""
    program = (
        "from tests.lab.processes import free_port; print(*(free_port() for _ in range(200)), flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ports = []
    for process in running:
        assert process.stdout
        ports += process.stdout.readline().split()
    for process in running:
        process.communicate("\n")
    assert len(set(ports)) == len(ports) == 400


def test_a_reserved_port_is_free_again_when_its_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation lasts as long as the process that made it, and needs no clean-up."""
    port = random.randrange(10_000, 20_000)  # below the range from which everybody else takes theirs
    program = f"""
from tests.lab import processes
processes._PORTS = range({port}, {port} + 1)
print(processes.free_port(), flush=True)
input()
"""
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout
    assert other.stdout.readline() == f"{port}\n"
    monkeypatch.setattr(processes, "_PORTS", range(port, port + 1))
    with pytest.raises(LabError, match="no free port"):
        free_port()
    other.communicate("\n")
    assert free_port() == port


def test_a_port_with_a_listener_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a process listens on the last port none is free; afterwards that port is returned."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(processes, "_PORTS", range(port, port + 1))
        with pytest.raises(LabError, match=r"no free port of 127\.0\.0\.1"):
            free_port()
    assert free_port() == port


def test_signals_reach_the_process(sleeper: Process, eventually: Eventually) -> None:
    """A paused process stops, a resumed one runs, a terminated one ends by SIGTERM."""
    sleeper.start()
    sleeper.pause()
    assert eventually(lambda: _state(sleeper) == "T")
    assert (sleeper.running, sleeper.paused) == (True, True)
    sleeper.resume()
    assert eventually(lambda: _state(sleeper) == "S")
    sleeper.terminate()
    assert sleeper.wait(10) == -15
    assert (sleeper.running, sleeper.paused) == (False, False)


def test_it_can_be_started_again_after_kill(sleeper: Process) -> None:
    """kill ends it before it returns, and start gives a new process."""
    sleeper.start()
    first = sleeper.pid
    sleeper.start()
    assert sleeper.pid == first
    sleeper.kill()
    assert (sleeper.running, sleeper.wait(0)) == (False, -9)
    sleeper.start()
    assert sleeper.running
    assert sleeper.pid != first
    sleeper.kill()


def test_signals_to_an_ended_process_do_nothing(sleeper: Process) -> None:
    """Every signal may be sent to what has ended or was never started."""
    for signal in (sleeper.kill, sleeper.terminate, sleeper.pause, sleeper.resume, sleeper.stop):
        signal()
    sleeper.start()
    sleeper.kill()
    for signal in (sleeper.kill, sleeper.terminate, sleeper.pause, sleeper.resume, sleeper.stop):
        signal()
    assert (sleeper.running, sleeper.paused) == (False, False)


def test_stop_ends_a_paused_process_and_one_that_ignores_sigterm(tmp_path: Path, sleeper: Process) -> None:
    """stop is bounded: first the polite signal, then the other one."""
    sleeper.start()
    sleeper.pause()
    sleeper.stop()
    assert sleeper.wait(0) == -15
    stubborn = Process(
        "stubborn", ["sh", "-c", "trap '' TERM; echo ready; sleep 600 & wait; wait"], tmp_path / "stubborn.log"
    )
    stubborn.start()
    while "ready" not in stubborn.log.read_text():
        assert stubborn.running
    stubborn.stop(grace=0.2)
    assert stubborn.wait(0) == -9


def test_kill_takes_the_children_along(tmp_path: Path, alive: Alive, eventually: Eventually) -> None:
    """What the process has started ends with it."""
    shell = Process("shell", ["sh", "-c", "sleep 600 & echo $!; wait"], tmp_path / "shell.log")
    shell.start()
    assert eventually(lambda: shell.log.read_text().endswith("\n"))
    grandchild = int(shell.log.read_text())
    assert alive(grandchild)
    shell.kill()
    assert eventually(lambda: not alive(grandchild))


@pytest.mark.parametrize("end", ["SIGKILL", "exit"])
def test_a_child_dies_with_its_parent(end: str, tmp_path: Path, alive: Alive, eventually: Eventually) -> None:
    """A child outlives the thread that started it, but not the process, whether that is killed or just ends."""
    command = [sys.executable, "-c", PARENT, str(tmp_path / "child.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        if end == "SIGKILL":
            parent.kill()
        else:
            parent.stdin.close()
        assert parent.wait(10) == (-9 if end == "SIGKILL" else 0)
    assert eventually(lambda: not alive(child))


def test_waiting_too_long_names_the_log(sleeper: Process) -> None:
    """A wait that is not over in time is one line with the pid and the log file."""
    sleeper.start()
    with pytest.raises(LabError) as caught:
        sleeper.wait(0.05)
    assert str(caught.value) == f"sleeper (pid {sleeper.pid}) has not ended after 0.05 s; its log is {sleeper.log}"
    sleeper.kill()


def test_last_words_are_those_of_the_last_start(tmp_path: Path) -> None:
    """The last line that is not blank and not a stack frame, and not from an earlier start."""
    log = tmp_path / "it.log"
    log.write_text("an earlier start\n")
    process = Process("it", ["printf", "Caused by: no port\\n\\tat a.b.C(C.java:1)\\n\\t... 3 more\\n\\n"], log)
    process.start()
    assert process.wait(10) == 0
    assert process.last_words() == "Caused by: no port"
    silent = Process("silent", ["true"], log)
    silent.start()
    silent.wait(10)
    assert silent.last_words() == "(nothing)"
