"""The files of a JVM, from its options, and their contents. The JVM's owner controls them: they are untrusted."""

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from sidecar.core.first_fault import log_end

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
