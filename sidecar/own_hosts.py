"""Where this sidecar runs, in the words of a leader's address: which leader is the JobManager beside it."""

import re
import socket
from pathlib import Path
from typing import Final

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
