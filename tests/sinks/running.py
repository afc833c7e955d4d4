"""Real processes to capture, and the reasons why they are not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from sidecar.host.processes import FlinkProcess
from sidecar.sinks.evidence.evidence_files import NotCapturedError

NOBODY = 65534
Alive = Callable[[int], bool]
Eventually = Callable[[Callable[[], bool]], bool]
Run = Callable[..., FlinkProcess]


def flink_process(pid: int, *, is_java: bool = True) -> FlinkProcess:
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


_KEEP: Final = ("--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override")
AS_NOBODY: Final = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *_KEEP)
"""Of root's capabilities it keeps the one over files: it may enter the folder that this Python and py-spy are in, wherever it is."""


def as_nobody(module: str, call: str, process: FlinkProcess) -> tuple[str, str]:
    """Why it is not captured, by a process that is another user's. Without root this one is: the process is then that of root, pid 1."""
    if os.geteuid() == 0:
        return outcome_as(AS_NOBODY, module, call, process)
    return outcome_as((), module, call, flink_process(1, is_java=process.is_java))


def outcome_as(become: Sequence[str], module: str, call: str, process: FlinkProcess) -> tuple[str, str]:
    """The outcome and its detail, by a process that the command `become` starts."""
    code = f"""
import json
from sidecar.sinks.evidence import {module}
from sidecar.sinks.evidence.evidence_files import NotCapturedError
from sidecar.host.processes import FlinkProcess
try:
    {module}.{call}(FlinkProcess(*{list(process)!r}), 10)
    print(json.dumps(["captured", ""]))
except NotCapturedError as error:
    print(json.dumps([error.outcome, str(error)]))
"""
    command = [*become, sys.executable, "-c", code]
    answer = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=30, check=True)
    outcome, detail = json.loads(answer.stdout)
    return outcome, detail
