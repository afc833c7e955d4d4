"""Which Host headers are accepted, as a protection from DNS rebinding.

A foreign page can point its own host name at our address and then read our answers in a visitor's browser, which sends that name in the
Host header. This is impossible with an address, or with a name that cannot be registered publicly.
"""

import re
from collections.abc import Collection
from typing import Final

from sidecar.core.pods import canonical, is_address

ANY: Final = "*"
_HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
_PRIVATE: Final = (".svc", ".cluster.local", ".localhost")
"""Suffixes that are in no public DNS, among them Kubernetes' services."""


def is_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """Whether the Host header is accepted: an address, a name without a dot, a Kubernetes service, or one of `allowed`.

    Browsers always send the header: a request without it is accepted.
    """
    if host is None or ANY in allowed:
        return True
    match = _HOST.fullmatch(host.strip())
    if match is None:
        return False
    name = match[1].lower().removesuffix(".")
    return is_address(canonical(name)) or "." not in name or name.endswith(_PRIVATE) or name in allowed
