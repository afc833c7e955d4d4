"""Where this sidecar runs: which leader is the JobManager beside it, and where others reach it."""

import re
import socket
from contextlib import suppress
from ipaddress import ip_address
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


def own_address(pod: OwnPod | None, host: str, port: int) -> str:
    """The URL of our HTTP server, which listens at `host`, as others may reach it."""
    host = host.strip("[]")
    with suppress(ValueError):
        if ip_address(host).is_unspecified:
            host = pod.address if pod else socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
