"""Watches one JobManager's process, and opens before its end what is gone afterwards: its entries in /proc, and perhaps its cgroup."""

import os
import re
import time
from collections import deque
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Self

from msgspec.structs import replace

from sidecar.core.first_fault import log_end
from sidecar.core.process_end import Pressure, ProcessEnd, RunningProcess
from sidecar.drivers.processes.held_log import HeldLog
from sidecar.host import processes
from sidecar.host.process_attributes import MemoryCgroup
from sidecar.host.processes import PROC, FlinkProcess, exit_code

_ERROR_FILE: Final = "-XX:ErrorFile="
_TEMPORARY: Final = "-Djava.io.tmpdir="
_LOG: Final = "-Dlog.file="
_GC_LOG: Final = re.compile(r"-Xlog:[^:]*gc[^:]*:(?:file=)?\"?(?P<path>[^:\"]+)\"?(?::.*)?|-Xloggc:(?P<older>.+)")
_NO_FILES: Final = frozenset({"stdout", "stderr"})

_PRINTED: Final = re.compile(
    r"^(?:Terminating|Aborting) due to (java\.lang\.OutOfMemoryError: .{1,100})$", re.MULTILINE
)
_CRASHED: Final = re.compile(r"^#\s+fatal error: OutOfMemory encountered: (.{1,100})$", re.MULTILINE)
_PAUSE: Final = re.compile(r"\bPause\b.{0,200}?(\d{1,9}[.,]\d{1,6})ms\s*$")
_UPTIME: Final = re.compile(r"\[(\d{1,12}[.,]\d{3})s\]")
_TIME: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{3}[+-]\d{4})\]")
_LAST: Final = 60.0
"""Seconds before the end in which a pause counts."""


class JvmFiles(NamedTuple):
    """Absolute paths, or relative to its working directory, as it sees them."""

    temporary: str
    log: str | None
    printed: str | None
    """The file to which Flink's scripts redirect the JVM's output, beside its log."""
    crash_files: tuple[str, ...]
    """The files to which the JVM writes when it crashes: it takes the first one that it can write."""
    gc_log: str | None


def jvm_files(options: Iterable[str], pid: int) -> JvmFiles:
    """`pid`: as the JVM itself sees it."""
    temporary, crash_file, log, gc_log = "/tmp", f"hs_err_pid{pid}.log", None, None  # noqa: S108  HotSpot's, whatever java.io.tmpdir is
    for option in options:
        if option.startswith(_ERROR_FILE):
            crash_file = option.removeprefix(_ERROR_FILE).replace("%p", str(pid))
        elif option.startswith(_TEMPORARY):
            temporary = option.removeprefix(_TEMPORARY)
        elif option.startswith(_LOG):
            log = option.removeprefix(_LOG)
        elif match := _GC_LOG.fullmatch(option):
            gc_log = (match["path"] or match["older"]).replace("%p", str(pid))
    fallback = f"/tmp/hs_err_pid{pid}.log"  # noqa: S108  likewise
    return JvmFiles(
        temporary,
        log,
        str(PurePosixPath(log).with_suffix(".out")) if log and PurePosixPath(log).suffix == ".log" else None,
        (crash_file, fallback),
        None if gc_log in _NO_FILES else gc_log,
    )


def crash_problem(text: str) -> str | None:
    """The line of an `hs_err_pid*.log` that names the problem."""
    head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    return log_end("", head).first_fault


def exhausted(printed: str, crash: str) -> str | None:
    """The error for which a JVM ended itself, by what it printed at its end or by its `hs_err_pid*.log`. None: neither says so."""
    if line := _PRINTED.search(printed):
        return line[1]
    line = _CRASHED.search(crash)
    return f"java.lang.OutOfMemoryError: {line[1]}" if line else None


def longest_pause(text: str, uptime: float, wall: float) -> float | None:
    """Seconds of the longest pause in the last minute of a GC log; both times are of the JVM's end, in seconds. None: there is none, or its
    lines have no time.
    """
    pauses = [
        float(pause[1].replace(",", ".")) / 1000
        for line in text.splitlines()
        if (pause := _PAUSE.search(line)) and _is_late(line, uptime, wall)
    ]
    return max(pauses, default=None)


def _is_late(line: str, uptime: float, wall: float) -> bool:
    if at := _UPTIME.search(line):
        return uptime - float(at[1].replace(",", ".")) <= _LAST
    at = _TIME.search(line)
    try:
        return at is not None and wall - datetime.fromisoformat(at[1].replace(",", ".")).timestamp() <= _LAST
    except ValueError:
        return False


def average(pressure: str) -> float | None:
    """The share (percent) of the last minute in which some task waited, by a file of /proc/pressure."""
    match = re.search(r"^some .*\bavg60=(\d{1,3}\.\d\d)", pressure, re.MULTILINE)
    return float(match[1]) if match else None


_COUNTS: Final = 3
"""The oldest of so many is compared with the one at the end: a process that is killed takes a while to give its memory back."""
_MOST_OF_A_FILE: Final = 64 << 10
_FULL: Final = 1 << 20
"""Bytes: a disk with less is full."""
_COARSE: Final = 0.1
"""Seconds by which the time of a file, or the start of a process, may be too early."""
_SECOND: Final = 1_000_000
_STARTING: Final = 60.0
"""Seconds in which a JobManager opens its ports: until then they are read at each look."""
PORTS_SECONDS: Final = 30.0
"""The time between two reads of the ports after the first: that takes a millisecond."""


class WatchedProcess:
    """Used by one thread. To be closed."""

    def __init__(self, process: FlinkProcess, clusters: tuple[str, ...]) -> None:
        """Raises OSError if it has ended and is gone, or where the kernel has no pidfds, or does not permit them."""
        self.process = process
        self.clusters = clusters
        """The clusters that the process may belong to."""
        self.ended: ProcessEnd | None = None
        self.log: HeldLog | None = None
        self._open = ExitStack()
        self.pidfd = self._held(os.pidfd_open(process.pid))
        if processes.is_another(process):  # if it has just ended, the pidfd says so
            self._open.close()
            raise ProcessLookupError(process.pid)
        self._since = time.time() - processes.age(process.started) - _COARSE
        self._folders: dict[str, int] = {}
        self._cgroup = MemoryCgroup(process.pid)
        self._cgroup_name = _cgroup_name(process)
        self._log_name: str | None = None
        self._crash_files: tuple[str, ...] = ()
        self._gc_log: str | None = None
        self._printed: str | None = None
        self._counts: deque[int | None] = deque(maxlen=_COUNTS)
        self.running = RunningProcess(process.pid, round((self._since + _COARSE) * _SECOND))
        """The process as it was at the last look."""
        self._ports_at = 0.0
        with suppress(OSError, ValueError, LookupError):
            self._hold_folders()  # first: it may end at any moment
        self.look()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all, the log too."""
        self._open.close()
        self._cgroup.close()

    def hold_log(self, place: Path) -> None:
        """Note that the log of the process is this file, or is in this folder."""
        self.log = HeldLog(place, self._log_name)
        self._open.callback(self.log.close)

    def look(self) -> None:
        """Read again what only its difference at the end says something."""
        if self.ended is None:
            name = _cgroup_name(self.process)
            if name != self._cgroup_name and not processes.has_ended(self.process):  # it was moved
                self._cgroup.close()
                self._cgroup, self._cgroup_name = MemoryCgroup(self.process.pid), name
                self._counts.clear()
            self._counts.append(self._cgroup.oom_kills())
            self.running = replace(self.running, ports=self._ports(), is_stopped=processes.is_stopped(self.process))

    def _ports(self) -> tuple[int, ...]:
        """The ports on which the process listens or has ever listened: at its end it has none."""
        now = time.monotonic()
        is_starting = processes.age(self.process.started) < _STARTING
        if now < self._ports_at or processes.has_ended(self.process):
            return self.running.ports
        self._ports_at = now if is_starting else now + PORTS_SECONDS
        return processes.listening_ports(self.process.pid) or self.running.ports

    def end(self, wall: int) -> None:
        """Read everything that is soon gone after the process has ended (wall microseconds). The exit code follows when the parent has
        waited for it."""
        if self.log:
            self.log.mark_end()
        before, kills = self._counts[0], self._cgroup.oom_kills()
        crash, printed = self._crash(), self._content(self._printed, end=True) if self._printed else None
        self.ended = ProcessEnd(
            self.process.pid,
            wall,
            oom_kills=None if before is None or kills is None else max(kills - before, 0),
            limit_bytes=self._cgroup.limit_bytes(),
            pressure=Pressure(*(_pressure(name) for name in ("cpu", "memory", "io"))),
            full_disk=next((name for name, folder in self._folders.items() if _is_full(folder)), None),
            crash_file=crash[0] if crash else None,
            crash_problem=crash_problem(crash[1]) if crash else None,
            exhausted=exhausted(printed or "", crash[1] if crash else ""),
            last_pause=self._last_pause(wall / _SECOND),
            ports=self.running.ports,
        )

    def has_status(self) -> bool:
        """True if its exit code is known by now."""
        code = exit_code(self.pidfd)
        if self.ended and code is not None:
            self.ended = replace(self.ended, exit_code=code)
        return code is not None

    # -- held open -----------------------------------------------------------------------------------------------------

    def _held(self, descriptor: int) -> int:
        self._open.callback(os.close, descriptor)
        return descriptor

    def _hold_folders(self) -> None:
        pid = int(processes.status(self.process.pid)["NSpid"].split()[-1])
        files = jvm_files(processes.jvm_options(self.process), pid)
        self._crash_files, self._gc_log, self._printed = files.crash_files, files.gc_log, files.printed
        self._hold(".")
        self._log_name = PurePosixPath(files.log).name if files.log else None
        self._hold(files.temporary)
        for file in (files.log, *self._crash_files, self._gc_log):
            if file:
                self._hold(str(PurePosixPath(file).parent))

    def _hold(self, folder: str) -> None:
        """Open a folder as the process sees it. The kernel resolves absolute links in it from our root; so no file of it is followed."""
        path = PROC / str(self.process.pid) / (f"root{folder}" if folder.startswith("/") else f"cwd/{folder}")
        if folder not in self._folders:
            with suppress(OSError):
                self._folders[folder] = self._held(os.open(path, os.O_PATH | os.O_DIRECTORY))

    # -- read at the end -----------------------------------------------------------------------------------------------

    def _crash(self) -> tuple[str, str] | None:
        """The name of the file, and its beginning. One that is older than the process is of a process of the same number."""
        for path in self._crash_files:
            if text := self._content(path, end=False):
                return PurePosixPath(path).name, text
        return None

    def _last_pause(self, wall: float) -> float | None:
        text = self._content(self._gc_log, end=True) if self._gc_log else None
        return longest_pause(text, processes.age(self.process.started), wall) if text else None

    def _content(self, path: str, *, end: bool) -> str | None:
        """The beginning of a file that was written by the process, or its end."""
        file = PurePosixPath(path)
        folder = self._folders.get(str(file.parent))
        if folder is None:
            return None
        try:
            descriptor = processes.open_regular(file.name, os.O_NOFOLLOW, folder)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if status.st_mtime < self._since:
                return None
            start = max(status.st_size - _MOST_OF_A_FILE, 0) if end else 0
            return processes.read_open(descriptor, _MOST_OF_A_FILE, start)
        finally:
            os.close(descriptor)


def _cgroup_name(process: FlinkProcess) -> str:
    with suppress(OSError):
        return processes.read(process.pid, "cgroup")
    return ""


def _is_full(folder: int) -> bool:
    with suppress(OSError):
        disk = os.fstatvfs(folder)
        return disk.f_blocks > 0 and (disk.f_bavail * disk.f_frsize < _FULL or (disk.f_files > 0 and not disk.f_favail))
    return False


def _pressure(name: str) -> float | None:
    with suppress(OSError):
        return average((PROC / "pressure" / name).read_text())
    return None
