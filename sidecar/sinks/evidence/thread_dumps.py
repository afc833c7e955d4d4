"""Thread dumps: of a JVM by HotSpot's attach protocol, as `jcmd PID Thread.print` makes them (a JRE has no jcmd); of a Python process by
py-spy, without local variables, which hold secrets.

A file and a SIGQUIT make the JVM listen on a Unix socket in its own /tmp. Mirrors `sun.tools.attach.VirtualMachineImpl` of Linux."""

import errno
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sidecar.core.bounds import STACKS
from sidecar.core.sanitize import clean
from sidecar.host.processes import PROC, FlinkProcess, has_ended, has_option, maps, status
from sidecar.sinks.evidence.evidence_files import ABSENT, ENDED, FAILED, REFUSED, NotCapturedError

_LISTEN_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_STALE_SECONDS: Final = 60.0

# Protocol version 1, the command and its three arguments. Without `-l` (owned locks), for which the JVM walks through its whole heap
# at a safepoint: 0.8 s for 5 GiB, which can cost a slow leader its leadership.
_REQUEST: Final = b"1\0threaddump\0\0\0\0"


def thread_dump(process: FlinkProcess, seconds: float) -> str:
    """The dump as text, within `seconds`. Raises NotCapturedError."""
    deadline = time.monotonic() + seconds
    try:
        if has_ended(process):
            raise NotCapturedError(FAILED, ENDED)
        fields = status(process.pid)
        uid, gid = (int(fields[name].split()[1]) for name in ("Uid", "Gid"))
        _check(fields, uid)
        inner_pid = fields.get("NSpid", str(process.pid)).split()[-1]  # in the process's own container
        attach_socket = PROC / str(process.pid) / f"root/tmp/.java_pid{int(inner_pid)}"
        if not _listens(attach_socket, uid):
            _make_listen(process, attach_socket, (uid, gid), min(deadline, time.monotonic() + _LISTEN_SECONDS))
        return _request(process, attach_socket, (uid, gid), min(deadline, time.monotonic() + STACKS.most_seconds))
    except (NotCapturedError, OSError, ValueError, LookupError) as error:
        if has_ended(process):
            raise NotCapturedError(FAILED, ENDED) from error
        if isinstance(error, NotCapturedError):
            raise
        if isinstance(error, PermissionError):
            problem = "the kernel denies access to the process: the sidecar needs the same user and the same rights"
            raise NotCapturedError(REFUSED, problem) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise NotCapturedError(FAILED, f"could not request a thread dump: {reason}{_state(process)}") from error


def _check(fields: dict[str, str], uid: int) -> None:
    """Raises NotCapturedError if a dump is not permitted, or the JVM cannot answer."""
    state = fields["State"]
    if os.geteuid() not in {0, uid}:
        problem = f"the process runs as user {uid}, the sidecar as {os.geteuid()}: they must be the same"
        raise NotCapturedError(REFUSED, problem)
    if state.startswith(("T", "t")):
        raise NotCapturedError(FAILED, f"the process is stopped (state {clean(state)}) and cannot answer")


def _listens(attach_socket: Path, uid: int) -> bool:
    """True if the JVM's socket exists. Raises NotCapturedError if something else has its path."""
    try:
        socket_status = attach_socket.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(socket_status.st_mode) or socket_status.st_uid != uid:
        raise NotCapturedError(REFUSED, "the file at the path of its attach socket is not the JVM's")
    return True


def _make_listen(process: FlinkProcess, attach_socket: Path, owner: tuple[int, int], deadline: float) -> None:
    # A starting JVM does not catch SIGQUIT yet; one with -Xrs never does (it listens from the start, if attaching is enabled).
    if not int(status(process.pid)["SigCgt"], 16) >> (signal.SIGQUIT - 1) & 1:
        raise NotCapturedError(REFUSED, "the process does not catch SIGQUIT, which would end it")
    if has_option(process.pid, "-XX:+DisableAttachMechanism"):  # SIGQUIT would only write a dump to its own log
        raise NotCapturedError(REFUSED, "attaching is disabled: -XX:+DisableAttachMechanism")
    is_jvm = maps(process.pid, "libjvm.so")
    if is_jvm is False:
        raise NotCapturedError(REFUSED, "not a HotSpot JVM, despite its command line")
    name = attach_socket.name.replace(".java_pid", ".attach_pid")
    with _trigger([PROC / str(process.pid) / "cwd" / name, attach_socket.with_name(name)], owner):
        if is_jvm is None:
            raise NotCapturedError(FAILED, ENDED)
        _quit(process)
        while not _listens(attach_socket, owner[0]):
            if time.monotonic() > deadline:
                raise NotCapturedError(FAILED, f"the JVM did not start to listen in time{_state(process)}")
            if has_ended(process):
                raise NotCapturedError(FAILED, ENDED)
            time.sleep(_POLL_SECONDS)


def _quit(process: FlinkProcess) -> None:
    """SIGQUIT to this process, never to another one that reuses its id. Raises NotCapturedError, OSError."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        pidfd = None  # a kernel before 5.3
    try:
        if has_ended(process):
            raise NotCapturedError(FAILED, ENDED)
        if pidfd is None:
            os.kill(process.pid, signal.SIGQUIT)
        else:
            signal.pidfd_send_signal(pidfd, signal.SIGQUIT)
    finally:
        if pidfd is not None:
            os.close(pidfd)


@contextmanager
def _trigger(files: list[Path], owner: tuple[int, int]) -> Iterator[None]:
    """Create the file that turns SIGQUIT into "listen", at the first path where that is possible."""
    for file in files:
        _remove_stale(file, owner[0])
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:  # another tool is attaching, and removes the file
            yield
            return
        except OSError:
            if file == files[-1]:
                raise
            continue
        try:
            with suppress(PermissionError):  # an old JVM accepts only a file of its own user
                os.fchown(descriptor, *owner)
            os.close(descriptor)
            yield
        finally:
            file.unlink(missing_ok=True)
        return


def _remove_stale(file: Path, uid: int) -> None:
    """Remove a file left behind by a tool that was killed."""
    with suppress(OSError):
        file_status = file.lstat()
        if file_status.st_uid in {uid, os.geteuid()} and time.time() - file_status.st_mtime > _STALE_SECONDS:
            file.unlink()


def _request(process: FlinkProcess, attach_socket: Path, owner: tuple[int, int], deadline: float) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            with _acting_as(*owner):
                connection.connect(str(attach_socket))
            _check_peer(connection, process.pid)
            connection.sendall(_REQUEST)
            answer = _received(connection, deadline)
        except TimeoutError:
            raise NotCapturedError(FAILED, f"the JVM did not answer in time{_state(process)}") from None
        except (BrokenPipeError, ConnectionResetError):
            problem = "the JVM closed the connection: an old JVM accepts only its own user"
            raise NotCapturedError(FAILED, problem) from None
    code, _, text = answer.decode(errors="replace").partition("\n")
    if code != "0":
        reason = f"with error {clean(code, 10)}: {clean(text.strip(), 100)}" if code else "without a reason"
        raise NotCapturedError(FAILED, f"the JVM refused {reason}")
    return text if len(answer) < STACKS.most_bytes else f"{text}\n… cut off after {STACKS.most_bytes >> 20} MiB\n"


def _received(connection: socket.socket, deadline: float) -> bytes:
    """The answer until the JVM closes the connection, bounded. Raises TimeoutError."""
    answer = bytearray()
    while len(answer) < STACKS.most_bytes:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(65536, STACKS.most_bytes - len(answer)))
        if not part:
            break
        answer += part
    return bytes(answer)


def _check_peer(connection: socket.socket, pid: int) -> None:
    """Raises NotCapturedError if another process listens: the socket may be left over, or another container's."""
    peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if peer[0] != pid:
        raise NotCapturedError(REFUSED, "its attach socket belongs to another process")


@contextmanager
def _acting_as(uid: int, gid: int) -> Iterator[None]:
    """Act as this user if we are root and may: a JVM before Java 11 rejects everyone else, even root."""
    if os.geteuid() != 0 or uid == 0:
        yield
        return
    own = os.getegid()
    with suppress(PermissionError):
        os.setegid(gid)
        os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(own)


def _state(process: FlinkProcess) -> str:
    try:
        return f" (state {clean(status(process.pid)['State'])})"
    except (OSError, LookupError):
        return ""


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
