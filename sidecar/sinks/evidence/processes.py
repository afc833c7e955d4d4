"""Flink's processes, as far as /proc shows them, and what the kernel says of them.

Never a command line or an environment: they hold secrets.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")

_MOST_BYTES: Final = 1 << 20
"""Of a file of /proc: a class path may be long."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")

_FLINK: Final = re.compile(r"org\.apache\.flink\.(?!shaded\.)[\w$.]{1,200}", re.ASCII)
_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,20}", re.ASCII)
_PYFLINK: Final = re.compile(r"\bpyflink\b")
_OURS: Final = re.compile(r"sidecar(\..*)?|(.*/)?flink-ha-sidecar")
_PYTHON: Final = re.compile(r"(.*/)?(python|pypy)[0-9.]*")

# Java's options whose value is an argument of its own.
_WITH_VALUE: Final = frozenset({
    *("-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules", "--limit-modules"),
    *("--add-exports", "--add-opens", "--add-reads", "--patch-module", "--enable-native-access", "--source"),
})  # fmt: skip


class FlinkProcess(NamedTuple):
    """One process of Flink: a JVM, or a Python that works for one."""

    pid: int
    started: int
    """In clock ticks since the machine started: with `pid`, which process it is."""
    is_java: bool
    name: str
    """Its main class or its module, where that has the form of one; else `java` or `python`."""
    works_for: int | None = None
    """The JVM that started it, itself or by others."""

    @property
    def subject(self) -> str:
        """What to call it: `pid 17 (StandaloneSessionClusterEntrypoint)`."""
        return f"pid {self.pid} ({self.name.rpartition('.')[2]})"


class _Seen(NamedTuple):
    parent: int
    started: int
    command: list[str]


def find(ours: Collection[int]) -> list[FlinkProcess]:
    """Those that can be seen, JVMs first; neither `ours` nor another process of a sidecar."""
    seen = dict(_all())
    java = {pid: name for pid, process in seen.items() if (name := _main_class(process.command))}

    def jvm_above(pid: int) -> int | None:
        for _ in range(len(seen)):  # an end, also where ids were given anew while we looked
            if pid in java:
                return pid
            if pid not in seen:
                return None
            pid = seen[pid].parent
        return None

    found = [FlinkProcess(pid, seen[pid].started, True, name) for pid, name in sorted(java.items())]
    for pid, process in sorted(seen.items()):
        script = _script(process.command)
        if script is None or _OURS.fullmatch(script) or pid in ours:
            continue
        master = jvm_above(process.parent)
        if _PYFLINK.search(script) or master is not None:
            name = script if _MODULE.fullmatch(script) else "python"
            found.append(FlinkProcess(pid, process.started, False, name, master))
    return found


def read(pid: int, name: str) -> str:
    """What a regular file of that name below /proc/PID holds: of secrets too. Raises OSError."""
    return _read(pid, name)


def status(pid: int) -> dict[str, str]:
    """The lines of its /proc/PID/status by name. Raises OSError."""
    lines = (line.partition(":") for line in _read(pid, "status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def has_option(pid: int, option: str) -> bool:
    """Whether it was started with that. Raises OSError."""
    return option in _read(pid, "cmdline").split("\0")


def has_ended(process: FlinkProcess) -> bool:
    """Whether this very process does not run any more."""
    try:
        return _stat(process.pid).started != process.started or status(process.pid)["State"].startswith(("Z", "X"))
    except (OSError, ValueError, LookupError):
        return True


def attributes(process: FlinkProcess) -> dict[str, str]:
    """What the kernel says of it, as far as we may read it."""
    return {name: value for name, read in _ATTRIBUTES.items() if (value := _attempt(read, process.pid)) is not None}


def _attempt(read: Callable[[int], str | None], pid: int) -> str | None:
    try:
        return read(pid)
    except (OSError, ValueError, LookupError):
        return None


def _fields(pid: int) -> list[str]:
    """Those of /proc/PID/stat behind its name, which may hold anything: the first is the state (number 3 in proc_pid_stat(5))."""
    return _read(pid, "stat").rpartition(")")[2].split()


def _age(pid: int) -> str:
    uptime = float((PROC / "uptime").read_text().split()[0])
    return f"{max(uptime - int(_fields(pid)[19]) / _TICKS, 0):.0f}"


def _cpu(pid: int) -> str:
    fields = _fields(pid)
    return f"{(int(fields[11]) + int(fields[12])) / _TICKS:.1f}"


def _resident(pid: int) -> str:
    return str(int(status(pid)["VmRSS"].removesuffix(" kB")) * 1024)


def _oom_kills(pid: int) -> str | None:
    """How often the kernel has killed in its cgroup (version 2) for want of memory."""
    path = next((line[3:] for line in _read(pid, "cgroup").splitlines() if line.startswith("0::")), None)
    if path is None:  # it is under cgroup version 1 alone
        return None
    places = [PROC / str(pid) / "root/sys/fs/cgroup/memory.events"]  # what its own container has there
    if path != "/" and ".." not in path:
        places.insert(0, Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events")
    for place in places:
        try:
            events: Mapping[str, str] = dict(line.split() for line in _file(place).splitlines())
        except (OSError, ValueError):
            continue
        return str(int(events["oom_kill"]))
    return None


_ATTRIBUTES: Final[Mapping[str, Callable[[int], str | None]]] = {
    "state": lambda pid: status(pid)["State"],
    "threads": lambda pid: str(int(status(pid)["Threads"])),
    "rss_bytes": _resident,
    "cpu_seconds": _cpu,
    "started_seconds_ago": _age,
    "oom_score": lambda pid: str(int(_read(pid, "oom_score"))),
    "cgroup_oom_kills": _oom_kills,
    "uid": lambda pid: str(int(status(pid)["Uid"].split()[1])),
}


def _all() -> Iterator[tuple[int, _Seen]]:
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            pid = int(entry.name)
            try:
                command = _read(pid, "cmdline").split("\0")[:-1]
                yield pid, _stat(pid)._replace(command=command)
            except (OSError, ValueError, LookupError):  # it has ended in between, or is none of our business
                continue


def _stat(pid: int) -> _Seen:
    fields = _fields(pid)
    return _Seen(int(fields[1]), int(fields[19]), [])


def _read(pid: int, name: str) -> str:
    return _file(PROC / str(pid) / name)


def _file(path: Path) -> str:
    """What a regular file holds, and no more than there is room for. Another container's root may have anything at any name."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        return file.read(_MOST_BYTES).decode(errors="replace")


def maps(pid: int, library: str) -> bool | None:
    """Whether the library is mapped into the process; None: nothing is any more, it ends. Raises OSError."""
    mapped = None
    with (PROC / str(pid) / "maps").open(errors="replace") as lines:
        for line in lines:
            if library in line:
                return True
            mapped = False
    return mapped


def _main_class(command: list[str]) -> str | None:
    """Flink's class that a JVM runs; None of any other command line."""
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
    """What a Python runs: a module, a file, or a text; None of any other command line."""
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
