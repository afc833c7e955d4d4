"""A thread dump of a JVM by HotSpot's attach protocol, as `jcmd PID Thread.print` does it: a JRE has no jcmd.

The JVM is asked to listen by a file and a SIGQUIT; then it answers at a Unix socket in its own /tmp. Mirrors
`sun.tools.attach.VirtualMachineImpl` of Linux.
"""

import errno
import os
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sidecar.core.sanitize import clean
from sidecar.sinks.evidence.evidence_files import FAILED, REFUSED, NotCapturedError
from sidecar.sinks.evidence.processes import PROC, FlinkProcess, has_ended, has_option, maps, status

MOST_BYTES: Final = 4 << 20
"""Of an answer: what comes after them is cut off. A thread takes 1 kB."""

_LISTEN_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05
_STALE_SECONDS: Final = 60.0

# Version 1 of the protocol, the command and its three arguments. Not `-l` (which locks are owned): for that the JVM walks through its
# whole heap while all its threads stand still, 0.8 s for 5 GiB, and a leader that is short of time would lose its leadership by it.
_REQUEST: Final = b"1\0threaddump\0\0\0\0"


def thread_dump(process: FlinkProcess, seconds: float) -> str:
    """Takes `seconds` at most. Raises NotCapturedError."""
    deadline = time.monotonic() + seconds
    try:
        if has_ended(process):
            raise NotCapturedError(FAILED, "it has ended")
        known = status(process.pid)
        uid, gid = (int(known[name].split()[1]) for name in ("Uid", "Gid"))
        _check(known, uid)
        file = Path(f"root/tmp/.java_pid{_inner_pid(known, process.pid)}")
        if not _listens(process, file, uid):
            _ask_to_listen(process, file, (uid, gid), min(deadline, time.monotonic() + _LISTEN_SECONDS))
        return _ask(process, file, (uid, gid), min(deadline, time.monotonic() + _ANSWER_SECONDS))
    except (NotCapturedError, OSError, ValueError, LookupError) as error:
        if has_ended(process):
            raise NotCapturedError(FAILED, "it has ended") from error
        if isinstance(error, NotCapturedError):
            raise
        if isinstance(error, PermissionError):
            problem = "the kernel does not let us reach into it: we must be the same user, with the same rights"
            raise NotCapturedError(REFUSED, problem) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise NotCapturedError(FAILED, f"it could not be asked: {reason}{_state(process)}") from error


def _check(known: dict[str, str], uid: int) -> None:
    """Raises NotCapturedError where it would be in vain to ask, or not allowed."""
    state = known["State"]
    if os.geteuid() not in {0, uid}:
        raise NotCapturedError(REFUSED, f"it is of user {uid} and we are {os.geteuid()}: only that user may ask it")
    if state.startswith(("T", "t")):
        raise NotCapturedError(FAILED, f"it is stopped (state {clean(state)}), and answers nobody")


def _inner_pid(known: dict[str, str], pid: int) -> int:
    """Its number in its own container: the last one."""
    return int(known.get("NSpid", str(pid)).split()[-1])


def _place(process: FlinkProcess, file: Path) -> Path:
    return PROC / str(process.pid) / file


def _listens(process: FlinkProcess, file: Path, uid: int) -> bool:
    """Whether its socket is there. Raises NotCapturedError when what is there is none of its own."""
    try:
        found = _place(process, file).lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != uid:
        raise NotCapturedError(REFUSED, "what stands at the place of its socket is not its own")
    return True


def _ask_to_listen(process: FlinkProcess, file: Path, owner: tuple[int, int], deadline: float) -> None:
    # A JVM that only starts does not, nor does one with -Xrs (which listens from the start, if it may at all).
    if not int(status(process.pid)["SigCgt"], 16) >> (signal.SIGQUIT - 1) & 1:
        raise NotCapturedError(REFUSED, "it does not catch SIGQUIT: to ask it would be to end it")
    if has_option(process.pid, "-XX:+DisableAttachMechanism"):  # it would write a dump into its own log, each time
        raise NotCapturedError(REFUSED, "it must not listen: -XX:+DisableAttachMechanism")
    is_jvm = maps(process.pid, "libjvm.so")
    if is_jvm is False:
        raise NotCapturedError(REFUSED, "it is no HotSpot JVM, whatever its command line says")
    name = file.name.replace(".java_pid", ".attach_pid")
    with _trigger([_place(process, Path("cwd") / name), _place(process, file.with_name(name))], owner):
        if is_jvm is None:
            raise NotCapturedError(FAILED, "it has ended")
        _quit(process)
        while not _listens(process, file, owner[0]):
            if time.monotonic() > deadline:
                raise NotCapturedError(FAILED, f"it does not begin to listen{_state(process)}")
            if has_ended(process):
                raise NotCapturedError(FAILED, "it has ended")
            time.sleep(_POLL_SECONDS)


def _quit(process: FlinkProcess) -> None:
    """SIGQUIT, to this process and no other that was given its number. Raises NotCapturedError, OSError."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        pidfd = None  # a kernel before 5.3
    try:
        if has_ended(process):
            raise NotCapturedError(FAILED, "it has ended")
        if pidfd is None:
            os.kill(process.pid, signal.SIGQUIT)
        else:
            signal.pidfd_send_signal(pidfd, signal.SIGQUIT)
    finally:
        if pidfd is not None:
            os.close(pidfd)


@contextmanager
def _trigger(places: list[Path], owner: tuple[int, int]) -> Iterator[None]:
    """The file by which a SIGQUIT means "listen", at the first place where it can be made."""
    for place in places:
        _remove_stale(place, owner[0])
        try:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:  # somebody else asks it at this moment, and removes that file
            yield
            return
        except OSError:
            if place == places[-1]:
                raise
            continue
        try:
            with suppress(PermissionError):  # an old JVM obeys only its own user
                os.fchown(descriptor, *owner)
            os.close(descriptor)
            yield
        finally:
            place.unlink(missing_ok=True)
        return


def _remove_stale(place: Path, uid: int) -> None:
    """One that was left behind: whoever asked was killed."""
    with suppress(OSError):
        found = place.lstat()
        if found.st_uid in {uid, os.geteuid()} and time.time() - found.st_mtime > _STALE_SECONDS:
            place.unlink()


def _ask(process: FlinkProcess, file: Path, owner: tuple[int, int], deadline: float) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            with _acting_as(*owner):
                connection.connect(str(_place(process, file)))
            _check_peer(connection, process.pid)
            connection.sendall(_REQUEST)
            answer = _received(connection, deadline)
        except TimeoutError:
            raise NotCapturedError(FAILED, f"it does not answer{_state(process)}") from None
        except (BrokenPipeError, ConnectionResetError):
            raise NotCapturedError(FAILED, "it has hung up on us: to an old JVM, we must be the same user") from None
    code, _, text = answer.decode(errors="replace").partition("\n")
    if code != "0":
        reason = f"with error {clean(code, 10)}: {clean(text.strip(), 100)}" if code else "without a word"
        raise NotCapturedError(FAILED, f"it has refused {reason}")
    return text if len(answer) < MOST_BYTES else f"{text}\n… cut off after {MOST_BYTES >> 20} MiB\n"


def _received(connection: socket.socket, deadline: float) -> bytes:
    """What comes until it hangs up, and no more than there is room for. Raises TimeoutError."""
    answer = bytearray()
    while len(answer) < MOST_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(65536, MOST_BYTES - len(answer)))
        if not part:
            break
        answer += part
    return bytes(answer)


def _check_peer(connection: socket.socket, pid: int) -> None:
    """A socket can be left over, or shared with another container: what is behind it must be that very process."""
    peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if peer[0] != pid:
        raise NotCapturedError(REFUSED, "another process is behind its socket")


@contextmanager
def _acting_as(uid: int, gid: int) -> Iterator[None]:
    """As that user, where we are root and may: a JVM before Java 11 talks to nobody else, not even to root."""
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
