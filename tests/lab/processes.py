"""Child processes and servers that end when this process ends."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.lab.lab_error import LabError

_REAP_SECONDS = 10.0
_READY_SECONDS = 120.0
_POLL_SECONDS = 0.05
_TAIL_BYTES = 16_384
_STACK_FRAME = re.compile(r"\s+at |\s*\.\.\. \d+ (more|common frames)")
_PORT_TAKEN = re.compile(r"BindException|Address already in use")
_ATTEMPTS = 3

# Below the range from which Linux takes ports for outgoing connections (32768 and up), so that none of them collides.
_PORTS = range(20_000, 30_000)
_reserved: set[int] = set()
_reserving = threading.Lock()

# Linux sends the signal of PR_SET_PDEATHSIG when the *thread* that started the child ends: this one lasts as long as the interpreter.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-starter")

# Asks the kernel to kill it when its parent ends, then becomes the requested program.
_TRAMPOLINE = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) or os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def start_child(
    command: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, which the kernel kills when this process ends. Raises OSError."""
    trampoline = [sys.executable, "-I", "-S", "-c", _TRAMPOLINE, str(os.getpid()), *command]
    return _starter.submit(
        lambda: subprocess.Popen(
            trampoline, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
    ).result()


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens. Calls on this machine return different ports while their processes live.

    Another program may still take the port before it is used: whatever binds it must be ready to choose again (see `ServerProcess`).
    """
    with _reserving:
        for port in random.sample(_PORTS, len(_PORTS)):
            if port not in _reserved and _reserve(port):
                _reserved.add(port)
                return port
    raise LabError(
        f"no free port of 127.0.0.1 is left between {_PORTS.start} and {_PORTS.stop - 1}: end what listens there"
    )


def _reserve(port: int) -> bool:
    """Reserve `port` for as long as this process lives; False when it is reserved already or in use.

    The reservation is a name in Linux's abstract socket namespace: the kernel gives it to one process at a time, frees it when that process
    ends, and keeps it per network namespace, as it does ports.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reservation, socket.socket() as probe:
        # As servers do: a closed connection does not block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind(f"\0flink-ha-sidecar/port/{port}")
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        reservation.detach()  # stays open until the process ends
    return True


class Process:
    """One child process in a session of its own, its output appended to `log`. The kernel kills it when this process ends.

    It may be restarted after it has ended. Signals to an ended process do nothing.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`environment`: None inherits ours."""
        self.name = name
        self.command = tuple(command)
        self.log = log
        self.paused = False
        self.started_at = 0.0
        """Time of the last start, in seconds since the epoch."""
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start the process, unless it is running."""
        if self.running:
            return
        self.started_at = time.time()
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._log_start = log.tell()
                self._child = start_child(self.command, log, self._environment)
        except OSError as error:
            raise LabError(f"could not start {self.name}, logging to {self.log}: {error.strerror}") from error
        self.paused = False

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended; true while paused."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """The process id, also after the process has ended."""
        if self._child is None:
            raise LabError(f"{self.name} was never started")
        return self._child.pid

    def kill(self) -> None:
        """Send SIGKILL to the process and its children, and wait until it has ended."""
        if self.running:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.killpg(self.pid, signal.SIGKILL)
            self.wait(_REAP_SECONDS)

    def terminate(self) -> None:
        """SIGTERM. A paused process handles it when it is resumed."""
        self._send(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)
        self.paused = self.running

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)
        self.paused = False

    def wait(self, timeout: float) -> int:
        """The exit code (-N: ended by signal N). Raises LabError when the process still runs after `timeout` seconds."""
        if self._child is None:
            raise LabError(f"{self.name} was never started")
        try:
            return self._child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(
                f"{self.name} (pid {self.pid}) has not ended after {timeout:g} s; its log is {self.log}"
            ) from error

    def stop(self, grace: float = 5.0) -> None:
        """End the process in bounded time: SIGTERM, then SIGKILL after `grace` seconds."""
        self.resume()
        self.terminate()
        with suppress(LabError):
            self.wait(grace)
        self.kill()

    def last_words(self) -> str:
        """The last line that this start logged, without blank lines and stack frames."""
        lines = [line for line in self._tail().splitlines() if line.strip() and not _STACK_FRAME.match(line)]
        return lines[-1].strip() if lines else "(nothing)"

    def _tail(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _send(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)


class ServerProcess(Process, ABC):
    """A server process. `start` returns when it serves; its command depends on the ports that `choose_ports` chose."""

    def __init__(self, name: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(name, (), log, environment)
        self._has_served = False

    def start(self) -> None:
        """Start the server and wait until it serves, on free ports the first time and on the same ports later. Raises LabError."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the server without waiting, so that several can start in parallel."""
        if not self.running:
            if not self._has_served:
                self.choose_ports()
            try:
                self.command = tuple(self.build_command())
            except OSError as error:
                raise LabError(f"could not write the configuration of {self.name}: {error}") from error
            super().start()

    def await_ready(self) -> None:
        """Wait until the server serves, on other ports if another process took those chosen first."""
        deadline = time.monotonic() + _READY_SECONDS
        attempts = 1
        while not (self.running and self.is_ready()):
            if not self.running:
                if self._has_served or attempts == _ATTEMPTS or not _PORT_TAKEN.search(self._tail()):
                    code = self.wait(0)
                    raise LabError(
                        f"{self.name} ended with exit code {code} while starting; the end of {self.log}: {self.last_words()}"
                    )
                attempts += 1
                self.launch()
            if time.monotonic() > deadline:
                self.kill()
                raise LabError(
                    f"{self.name} does not serve after {_READY_SECONDS:g} s; the end of {self.log}: {self.last_words()}"
                )
            time.sleep(_POLL_SECONDS)
        self._has_served = True

    @abstractmethod
    def choose_ports(self) -> None:
        """Choose free ports for the first start."""

    @abstractmethod
    def build_command(self) -> Sequence[str]:
        """The command line for the chosen ports; writes the configuration files."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the server serves now. Must return within seconds."""
