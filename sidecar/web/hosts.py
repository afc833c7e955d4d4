"""By which names this server may be asked.

A page of somebody else may have its own name resolve to our address, and then read our answers in a visitor's browser (DNS rebinding):
the browser says that name in the Host header. An address, or a name that nobody outside can register, cannot be used so.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

ANY: Final = "*"
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
_PRIVATE: Final = (".svc", ".cluster.local", ".localhost")
"""Endings that are in no public DNS: Kubernetes' services."""


def is_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """Whether that Host header is one of ours: an address, a name without a dot, a service of Kubernetes, or one of `allowed`.

    Without the header it was no browser that asked.
    """
    if host is None or ANY in allowed:
        return True
    match = _HOST.fullmatch(host.strip())
    if match is None:
        return False
    name = match[1].lower().removesuffix(".")
    return _is_address(name) or "." not in name or name.endswith(_PRIVATE) or name in allowed


def _is_address(name: str) -> bool:
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
