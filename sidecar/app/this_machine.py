"""The place where this sidecar runs: which leader is the JobManager beside it, where others reach it, and whether this machine was
started anew since the sidecar last ran on it.
"""

import logging
import re
import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from sidecar.core.moment import SECOND, Moment
from sidecar.runtime.folders import write_durably
from sidecar.settings.model import OwnPod

_ROUTES: Final = Path("/proc/net/fib_trie")
_LOCAL: Final = re.compile(r"-- (\d+\.\d+\.\d+\.\d+)\n\s+/32 host LOCAL")


def own_hosts(pod: OwnPod | None) -> frozenset[str]:
    """The name and the address of our own pod, else the names and IPv4 addresses of this machine."""
    if pod:
        return frozenset({pod.name, pod.address})
    try:
        routes = _ROUTES.read_text(encoding="ascii")
    except (OSError, ValueError):
        routes = ""
    return frozenset({"localhost", socket.gethostname(), *_LOCAL.findall(routes)})


def own_address(pod: OwnPod | None, host: str, port: int) -> str:
    """The URL of our HTTP server, which listens at `host`, as others may reach it."""
    host = host.strip("[]")
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            host = pod.address if pod else socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


BOOT_FILE: Final = "boot_id"
"""The file in the state folder that names the machine on which the sidecar ran last, and that machine's boot."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID: Final = Path("/etc/machine-id")
_CLOCKS: Final = 60 * SECOND
"""The largest error expected of a machine's clock before it has been synchronised."""

_log = logging.getLogger("sidecar")


def restarted_at(folder: Path, pod: OwnPod | None, alive: Moment | None, now: Moment) -> int | None:
    """The time at which the machine was started again (wall microseconds) after the last sidecar on this folder, which last ran at `alive`.

    None: it was not, or nothing says so: the folder may have come from another machine.
    """
    file = folder / BOOT_FILE
    try:
        place = (pod.uid or "") if pod else _MACHINE_ID.read_text().strip()  # a pod stays on its machine
        lines = [place, _BOOT_ID.read_text().strip()]
        before = file.read_text().splitlines() if file.exists() else []
        if lines != before:
            write_durably(file, "".join(f"{line}\n" for line in lines).encode(), 0o600, ".tmp")
    except (OSError, ValueError) as error:
        _log.info("whether this machine was started again is not known: %s", error)
        return None
    if not place or lines == before or lines[:1] != before[:1] or alive is None:
        return None
    booted_at = now.wall - round(time.clock_gettime(time.CLOCK_BOOTTIME) * SECOND)
    return booted_at if booted_at > alive.wall - _CLOCKS else None
