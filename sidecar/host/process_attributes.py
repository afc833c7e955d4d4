"""The attributes of a process as /proc shows them, and its memory cgroup: whose files are held open, because they are gone soon after it.

In version 1 a held file can be read for a moment after the container's end, in version 2 as long as the cgroup exists.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from sidecar.host import processes
from sidecar.host.processes import TICKS, age, fields, read, status

_MOST_BYTES: Final = 4096
_UNLIMITED: Final = 1 << 60
"""Version 1 has a number near 2^63 where there is no limit."""
_VERSIONS: Final = (
    ("memory", "memory", "memory.oom_control", "memory.limit_in_bytes"),
    ("", "", "memory.events", "memory.max"),
)
"""Controller, folder of the hierarchy, file of the counters, file of the limit."""


class MemoryCgroup:
    """Held open until `close`. Whatever cannot be read is None."""

    def __init__(self, pid: int) -> None:
        opened = (files for folder in _folders(pid) if (files := _opened(*folder)))
        self._counters: int | None
        self._limit: int | None
        self._counters, self._limit = next(opened, (None, None))

    def oom_kills(self) -> int | None:
        """The number of processes in it that the kernel has killed for memory."""
        for line in processes.read_open(self._counters, _MOST_BYTES).splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
        return None

    def limit_bytes(self) -> int | None:
        """None: no limit, or not known."""
        text = processes.read_open(self._limit, _MOST_BYTES).strip()
        return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None

    def close(self) -> None:
        for file in (self._counters, self._limit):
            if file is not None:
                os.close(file)
        self._counters = self._limit = None


def _folders(pid: int) -> list[tuple[Path, str, str]]:
    """The folders where the cgroup's files may be, as this mount namespace and as the process's own show them."""
    folders: list[tuple[Path, str, str]] = []
    with suppress(OSError):
        lines = [line.split(":", 2) for line in processes.read(pid, "cgroup").splitlines()]
        paths = {line[1]: line[2] for line in lines if len(line) == 3}
        for controller, hierarchy, counters, limit in _VERSIONS:
            if (path := paths.get(controller)) is None:
                continue
            root = Path("/sys/fs/cgroup", hierarchy)
            if ".." not in path:
                folders.append((root / path.lstrip("/"), counters, limit))
            if processes.is_in_a_container(pid):  # else that is the root's
                folders.append((processes.PROC / str(pid) / "root" / root.relative_to("/"), counters, limit))
    return folders


def _opened(folder: Path, counters: str, limit: str) -> tuple[int, int | None] | None:
    try:
        held = processes.open_regular(folder / counters, os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return held, processes.open_regular(folder / limit, os.O_NOFOLLOW)
    except OSError:
        return held, None


def attributes(pid: int) -> dict[str, str]:
    """The attributes that we may read, by name."""
    readable = {}
    for name, attribute in _ATTRIBUTES.items():
        with suppress(OSError, ValueError, LookupError):
            readable[name] = attribute(pid)
    return {name: value for name, value in readable.items() if value is not None}


def _cpu(pid: int) -> str:
    stat = fields(pid)
    return f"{(int(stat[11]) + int(stat[12])) / TICKS:.1f}"


def _oom_kills(pid: int) -> str | None:
    """The number of processes in the cgroup of `pid` that the OOM killer ended."""
    with closing(MemoryCgroup(pid)) as cgroup:
        kills = cgroup.oom_kills()
    return None if kills is None else str(kills)


_ATTRIBUTES: Final[Mapping[str, Callable[[int], str | None]]] = {
    "state": lambda pid: status(pid)["State"],
    "threads": lambda pid: str(int(status(pid)["Threads"])),
    "rss_bytes": lambda pid: str(int(status(pid)["VmRSS"].removesuffix(" kB")) * 1024),
    "cpu_seconds": _cpu,
    "started_seconds_ago": lambda pid: f"{age(int(fields(pid)[19])):.0f}",
    "oom_score": lambda pid: str(int(read(pid, "oom_score"))),
    "cgroup_oom_kills": _oom_kills,
    "uid": lambda pid: str(int(status(pid)["Uid"].split()[1])),
}
