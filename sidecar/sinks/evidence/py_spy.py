"""The stacks of a Python process, by py-spy. Never with its local variables: they hold secrets."""

import json
import os
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any, Final

from sidecar.core.sanitize import clean
from sidecar.sinks.evidence.evidence_files import ABSENT, FAILED, REFUSED, NotCapturedError
from sidecar.sinks.evidence.processes import FlinkProcess, has_ended

MOST_BYTES: Final = 4 << 20
"""Of what py-spy says."""

_SECONDS: Final = 10.0
_TRIES: Final = 3
_MOST_FRAMES: Final = 1000
"""Of one thread."""
_DENIED: Final = ("permission denied", "operation not permitted")


def stacks(process: FlinkProcess, seconds: float) -> tuple[str, int]:
    """Of all its threads, as text for people, and how many they are. Takes `seconds` at most. Raises NotCapturedError."""
    program = _program()
    deadline = time.monotonic() + min(seconds, _SECONDS)
    for left in reversed(range(_TRIES)):
        answer, said = _run(program, process.pid, deadline)
        if answer is not None:
            if has_ended(process):  # its number may be another's by now
                raise NotCapturedError(FAILED, "it has ended")
            try:
                threads = json.loads(answer)
                return "".join(map(_thread, threads)), len(threads)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise NotCapturedError(FAILED, "py-spy's answer cannot be read") from None
        if any(word in said.lower() for word in _DENIED):
            reason = "py-spy is not permitted to read it: the container needs the capability SYS_PTRACE"
            raise NotCapturedError(REFUSED, reason)
        if has_ended(process):
            raise NotCapturedError(FAILED, "it has ended")
        if not left:  # without a pause of the process, what is read may contradict itself, and be better the next time
            break
    raise NotCapturedError(FAILED, f"py-spy: {_first_line(said)}")


def _program() -> Path:
    """Its place in our own environment: nothing that stands in a PATH is run."""
    program = Path(sys.executable).with_name("py-spy")
    if not program.is_file():
        program = Path(sysconfig.get_path("scripts"), "py-spy")
    if program.is_file():
        return program
    raise NotCapturedError(ABSENT, "py-spy is not installed beside the sidecar")


def _run(program: Path, pid: int, deadline: float) -> tuple[bytes | None, str]:
    """What it answers, or None, and what it complains of. Raises NotCapturedError."""
    command = [str(program), "dump", "--json", "--nonblocking", "--pid", str(pid)]
    complaints = os.memfd_create("py-spy")  # a file without a folder: ours may be read-only
    try:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, env={})
        limit = threading.Timer(max(deadline - time.monotonic(), 0), run.kill)
        limit.start()
        try:
            with run:
                assert run.stdout  # noqa: S101  it is a pipe
                answer = run.stdout.read(MOST_BYTES + 1)
                if len(answer) > MOST_BYTES:
                    run.kill()
                    raise NotCapturedError(FAILED, f"py-spy says more than {MOST_BYTES >> 20} MiB")
        finally:
            limit.cancel()
        said = os.pread(complaints, 65536, 0).decode(errors="replace")
    except OSError as error:
        raise NotCapturedError(FAILED, f"could not start py-spy: {error.strerror or error}") from error
    finally:
        os.close(complaints)
    if run.returncode < 0:
        raise NotCapturedError(FAILED, "py-spy has not answered in time")
    return (answer if run.returncode == 0 else None), said


def _first_line(said: str) -> str:
    line = next((line for line in said.splitlines() if line.strip()), "it has failed without a word")
    return clean(line.removeprefix("Error: "), 200)


def _thread(thread: dict[str, Any]) -> str:
    state = "active" if thread["active"] else "idle"
    holds = ", holds the GIL" if thread["owns_gil"] else ""
    head = f'"{clean(thread["thread_name"] or "?", 200)}" os_id={thread["os_thread_id"] or "?"} ({state}{holds})\n'
    frames = thread["frames"][:_MOST_FRAMES]
    return head + "".join(map(_frame, frames)) + "\n"


def _frame(frame: dict[str, Any]) -> str:
    return f"    {clean(frame['name'], 300)} ({clean(frame['filename'], 300)}:{int(frame['line'])})\n"
