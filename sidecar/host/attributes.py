"""The attributes of a process, as far as /proc shows them."""

from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Final

from sidecar.host.memory_cgroup import MemoryCgroup
from sidecar.host.processes import TICKS, age, fields, read, status


def attributes(pid: int) -> dict[str, str]:
    """The attributes that we may read, by name."""
    readable = {}
    for name, attribute in _ATTRIBUTES.items():
        with suppress(OSError, ValueError, LookupError):
            readable[name] = attribute(pid)
    return {name: value for name, value in readable.items() if value is not None}


def _age(pid: int) -> str:
    return f"{age(int(fields(pid)[19])):.0f}"


def _cpu(pid: int) -> str:
    stat = fields(pid)
    return f"{(int(stat[11]) + int(stat[12])) / TICKS:.1f}"


def _resident(pid: int) -> str:
    return str(int(status(pid)["VmRSS"].removesuffix(" kB")) * 1024)


def _oom_kills(pid: int) -> str | None:
    """How many processes in the cgroup of `pid` the OOM killer ended."""
    with closing(MemoryCgroup(pid)) as cgroup:
        kills = cgroup.oom_kills()
    return None if kills is None else str(kills)


_ATTRIBUTES: Final[Mapping[str, Callable[[int], str | None]]] = {
    "state": lambda pid: status(pid)["State"],
    "threads": lambda pid: str(int(status(pid)["Threads"])),
    "rss_bytes": _resident,
    "cpu_seconds": _cpu,
    "started_seconds_ago": _age,
    "oom_score": lambda pid: str(int(read(pid, "oom_score"))),
    "cgroup_oom_kills": _oom_kills,
    "uid": lambda pid: str(int(status(pid)["Uid"].split()[1])),
}
