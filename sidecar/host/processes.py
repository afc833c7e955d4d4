"""Flink's processes, as far as /proc shows them.

Command lines and environments hold secrets and are never part of the result.
"""

import errno
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.core.bounds import MOST_PORTS

PROC: Final = Path("/proc")

_MOST_BYTES: Final = 1 << 20
"""The most bytes read of a file below /proc: a class path may be long."""
TICKS: Final = os.sysconf("SC_CLK_TCK")
_MOST_DESCRIPTORS: Final = 4_096
"""The most file descriptors read of one process: listening ones are among its first."""
_LISTENS: Final = "0A"
"""The state of a socket in /proc/net/tcp."""

_FLINK: Final = re.compile(r"org\.apache\.flink\.(?!shaded\.)[\w$.]{1,200}", re.ASCII)
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,20}", re.ASCII)
_PYFLINK: Final = re.compile(r"\bpyflink\b")
_OURS: Final = re.compile(r"sidecar(\..*)?|(.*/)?flink-ha-sidecar")
_PYTHON: Final = re.compile(r"(.*/)?(python|pypy)[0-9.]*")

# Java options whose value is the next argument.
_WITH_VALUE: Final = frozenset({
    *("-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules", "--limit-modules"),
    *("--add-exports", "--add-opens", "--add-reads", "--patch-module", "--enable-native-access", "--source"),
})  # fmt: skip


class FlinkProcess(NamedTuple):
    """A Flink process: a JVM, or a Python process that works for one."""

    pid: int
    started: int
    """The start in clock ticks since boot. Identifies the process together with `pid`, which may be reused."""
    is_java: bool
    name: str
    """Main class or module, if valid; else `python`."""
    works_for: int | None = None
    """The JVM that started it."""

    @property
    def subject(self) -> str:
        """The name of the process in messages: `pid 17 (StandaloneSessionClusterEntrypoint)`."""
        return f"pid {self.pid} ({self.name.rpartition('.')[2]})"


class _Running(NamedTuple):
    parent: int
    group: int
    started: int
    command: list[str]


def find(ours: Collection[int]) -> list[FlinkProcess]:
    """All visible Flink processes, JVMs first; without `ours` and other sidecars'."""
    running = dict(_all())
    java = {pid: name for pid, process in running.items() if (name := _main_class(process.command))}
    processes = [FlinkProcess(pid, running[pid].started, True, name) for pid, name in sorted(java.items())]
    for pid, process in sorted(running.items()):
        script = _script(process.command)
        if script is None or _OURS.fullmatch(script) or pid in ours:
            continue
        # A TaskManager ends the shell between itself and its Python, which may live on: it stays in the group.
        master = _jvm_above(process.parent, running, java) or (process.group if process.group in java else None)
        if _PYFLINK.search(script) or master is not None:
            name = script if _MODULE.fullmatch(script) else "python"
            processes.append(FlinkProcess(pid, process.started, False, name, master))
    return processes


def _jvm_above(pid: int, running: Mapping[int, _Running], java: Container[int]) -> int | None:
    for _ in running:  # bounded: reused ids could form a cycle
        if pid in java or pid not in running:
            break
        pid = running[pid].parent
    return pid if pid in java else None


def read(pid: int, name: str) -> str:
    """The content of the regular file /proc/PID/`name`, bounded; may hold secrets. Raises OSError."""
    # In another container's root any name may be a device or a pipe.
    with open(PROC / str(pid) / name, "rb", opener=lambda path, _: open_regular(path)) as file:
        return file.read(_MOST_BYTES).decode(errors="replace")


def status(pid: int) -> dict[str, str]:
    """The lines of /proc/PID/status by name. Raises OSError."""
    lines = (line.partition(":") for line in read(pid, "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def age(started: int) -> float:
    """Seconds since a process was started, or would have been if it still ran. `started`: in clock ticks since the machine was."""
    return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started / TICKS, 0.0)


def jvm_options(process: FlinkProcess) -> list[str]:
    """The options before a JVM's main class; may hold secrets. Raises OSError."""
    command = read(process.pid, "cmdline").split("\0")
    return command[1 : command.index(process.name)] if process.name in command else []


def has_option(pid: int, option: str) -> bool:
    """True if the process was started with this option. Raises OSError."""
    return option in read(pid, "cmdline").split("\0")


def has_ended(process: FlinkProcess) -> bool:
    """True if the process has ended, even if its id is in use again."""
    try:
        state, *others = fields(process.pid)
        return int(others[18]) != process.started or state in {"Z", "X"}
    except (OSError, ValueError, LookupError):
        return True


def is_another(process: FlinkProcess) -> bool:
    """True if its id is in use again."""
    try:
        return int(fields(process.pid)[19]) != process.started
    except (OSError, ValueError, LookupError):
        return False


def is_stopped(process: FlinkProcess) -> bool:
    """True if it does nothing until it is continued: after SIGSTOP, or while a debugger holds it."""
    try:
        return fields(process.pid)[0] in {"T", "t"} and not has_ended(process)
    except (OSError, LookupError):
        return False


def listening_ports(pid: int) -> tuple[int, ...]:
    """The TCP ports on which the process listens, in order; the first MOST_PORTS. Empty where its descriptors cannot be read."""
    try:
        with os.scandir(PROC / str(pid) / "fd") as descriptors:
            links = [link for entry in islice(descriptors, _MOST_DESCRIPTORS) if (link := _link(Path(entry.path)))]
        sockets = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
        tables = [read(pid, f"net/{table}") for table in ("tcp", "tcp6")] if sockets else []
    except OSError:
        return ()
    ports = {int(row[1].rpartition(":")[2], 16) for row in _listening("".join(tables)) if row[9] in sockets}
    return tuple(sorted(ports)[:MOST_PORTS])


def _listening(tables: str) -> Iterator[list[str]]:
    """The rows of listening sockets: they come before the connections."""
    for line in tables.splitlines():
        row = line.split()
        if len(row) > 9 and row[3] == _LISTENS:
            yield row


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything: [0] is number 3 in proc_pid_stat(5), the state."""
    return read(pid, "stat").rpartition(")")[2].split()


def _all() -> Iterator[tuple[int, _Running]]:
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            pid = int(entry.name)
            with suppress(OSError, ValueError, LookupError):  # it has just ended, or we may not read it
                command = read(pid, "cmdline").split("\0")[:-1]
                stat = fields(pid)
                yield pid, _Running(int(stat[1]), int(stat[2]), int(stat[19]), command)


def open_regular(path: str | Path, flags: int = 0, folder: int | None = None) -> int:
    """A descriptor of a regular file, to be read. Raises OSError; never waits for what only has such a name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def read_open(descriptor: int | None, most: int, start: int = 0) -> str:
    """The text of an open file, so many bytes of it. Empty: there is none, or it cannot be read any more, as of a cgroup that is gone."""
    with suppress(OSError):
        return os.pread(descriptor, most, start).decode(errors="replace") if descriptor is not None else ""
    return ""


def is_in_a_container(pid: int) -> bool:
    """True if it sees other mounts than we do."""
    try:
        return (PROC / str(pid) / "ns/mnt").readlink() != (PROC / "self/ns/mnt").readlink()
    except OSError:  # then we may not see what it sees either
        return False


def maps(pid: int, library: str) -> bool | None:
    """True if the library is mapped into the process; None: nothing is mapped, the process is ending. Raises OSError."""
    mapped = None
    with (PROC / str(pid) / "maps").open(errors="replace") as lines:
        for line in lines:
            if library in line:
                return True
            mapped = False
    return mapped


def _main_class(command: list[str]) -> str | None:
    """The Flink class that a JVM runs; None for any other command line."""
    if not command or command[0].rpartition("/")[2] != "java":
        return None
    arguments = iter(command[1:])
    for argument in arguments:
        if argument in _WITH_VALUE:
            next(arguments, None)
        elif argument == "-jar":
            return None
        elif argument in {"-m", "--module"}:
            return _flink(next(arguments, "").rpartition("/")[2])
        elif not argument.startswith(("-", "@")):
            return _flink(argument)
    return None


def _flink(name: str) -> str | None:
    return name if _FLINK.fullmatch(name) else None


def _script(command: list[str]) -> str | None:
    """The module, file or code that a Python process runs; None for any other command line."""
    if not command or not _PYTHON.fullmatch(command[0]):
        return None
    arguments = iter(command[1:])
    for argument in arguments:
        if argument in {"-m", "-c"}:
            return next(arguments, "")
        if argument in {"-W", "-X"}:
            next(arguments, None)
        elif not argument.startswith("-"):
            return argument
    return ""


_INFO: Final = struct.Struct("=QQ11Ii")
"""`struct pidfd_info` in its first version: mask, cgroup id, three process ids, eight user and group ids, exit code."""
_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
"""`PIDFD_GET_INFO`, _IOWR(0xFF, 11, struct pidfd_info)."""
_EXIT: Final = 1 << 3
"""`PIDFD_INFO_EXIT`: answered once the parent has reaped the process."""


def exit_code(pidfd: int) -> int | None:
    """The exit code as a shell has it: 128 and the number of the signal, if one killed the process. None: it is not reaped yet, or this
    kernel does not say: Linux does from 6.15, of any visible process, without any right and whoever its parent is."""
    asked = bytearray(_INFO.size)
    _INFO.pack_into(asked, 0, _EXIT, *[0] * 13)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, asked)
    except OSError:
        return None
    mask, *_, status = _INFO.unpack(asked)
    if not mask & _EXIT:
        return None
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)
