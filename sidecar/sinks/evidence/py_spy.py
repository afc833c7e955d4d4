"""The stacks of a Python process, by py-spy; without local variables, which hold secrets."""

import json
import os
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any, Final

from sidecar.core.bounds import STACKS
from sidecar.core.sanitize import clean
from sidecar.host.processes import FlinkProcess, has_ended
from sidecar.sinks.evidence.evidence_files import ABSENT, ENDED, FAILED, REFUSED, NotCapturedError

_TRIES: Final = 3
_MOST_FRAMES: Final = 1000
"""The most frames of one thread."""
_DENIED: Final = ("permission denied", "operation not permitted")
_EMPTY: Final = "no thread has a stack: the process is starting or ending"
_LATE: Final = "py-spy has not answered in time"


def stacks(process: FlinkProcess, seconds: float) -> tuple[str, int]:
    """The stacks of all threads as text, and the number of threads, within `seconds`. Raises NotCapturedError."""
    program = _program()
    deadline = time.monotonic() + min(seconds, STACKS.most_seconds)
    # The process is not paused, so that what is read may be inconsistent: another try may succeed.
    for _ in range(_TRIES):
        answer, errors = _run(program, process.pid, deadline)
        if has_ended(process):  # an answer may be about another process with its id
            raise NotCapturedError(FAILED, ENDED)
        if answer is not None:
            try:
                threads = json.loads(answer)
                if any(thread["frames"] for thread in threads):
                    return "".join(map(_thread, threads)), len(threads)
                errors = _EMPTY
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise NotCapturedError(FAILED, "py-spy's answer cannot be read") from None
        if any(word in errors.lower() for word in _DENIED):
            reason = "py-spy is not permitted to read it: the container needs the capability SYS_PTRACE"
            raise NotCapturedError(REFUSED, reason)
    first = next((line for line in errors.splitlines() if line.strip()), "no error message")
    raise NotCapturedError(FAILED, f"py-spy: {clean(first.removeprefix('Error: '), 200)}")


def _program() -> Path:
    """py-spy in our own environment; PATH is not searched."""
    program = Path(sys.executable).with_name("py-spy")
    if not program.is_file():
        program = Path(sysconfig.get_path("scripts"), "py-spy")
    if program.is_file():
        return program
    raise NotCapturedError(ABSENT, "py-spy is not installed beside the sidecar")


def _run(program: Path, pid: int, deadline: float) -> tuple[bytes | None, str]:
    """The answer, None if py-spy failed, and its error output. Raises NotCapturedError."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:  # not started: under load it could answer before the timer's thread ends it
        raise NotCapturedError(FAILED, _LATE)
    command = [str(program), "dump", "--json", "--nonblocking", "--pid", str(pid)]
    stderr = os.memfd_create("py-spy")  # in memory: every folder may be read-only
    try:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env={})
        limit = threading.Timer(seconds, run.kill)
        limit.start()
        try:
            with run:
                assert run.stdout  # noqa: S101  it is a pipe
                answer = run.stdout.read(STACKS.most_bytes + 1)
                if len(answer) > STACKS.most_bytes:
                    run.kill()
                    raise NotCapturedError(FAILED, f"py-spy printed more than {STACKS.most_bytes >> 20} MiB")
        finally:
            limit.cancel()
        errors = os.pread(stderr, 65536, 0).decode(errors="replace")
    except OSError as error:
        raise NotCapturedError(FAILED, f"could not start py-spy: {error.strerror or error}") from error
    finally:
        os.close(stderr)
    if run.returncode < 0:
        raise NotCapturedError(FAILED, _LATE)
    return (answer if run.returncode == 0 else None), errors


def _thread(thread: dict[str, Any]) -> str:
    state = "active" if thread["active"] else "idle"
    holds = ", holds the GIL" if thread["owns_gil"] else ""
    head = f'"{clean(thread["thread_name"] or "?", 200)}" os_id={thread["os_thread_id"] or "?"} ({state}{holds})\n'
    frames = thread["frames"][:_MOST_FRAMES]
    return head + "".join(map(_frame, frames)) + "\n"


def _frame(frame: dict[str, Any]) -> str:
    return f"    {clean(frame['name'], 300)} ({clean(frame['filename'], 300)}:{int(frame['line'])})\n"
