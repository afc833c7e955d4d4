"""The servers of a ZooKeeper ensemble, read as ZooKeeper's Java client reads them, which is Flink's."""

import re
from typing import Final

from sidecar.settings.file.hosts import is_host
from sidecar.settings.file.setting import Setting

_LIKE: Final = "is not a list of ZooKeeper servers: "
_EXAMPLE: Final = "write it like zk-1:2181,zk-2:2181"
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]")
_PORT = re.compile(r"\+?[0-9]{1,9}", re.ASCII)


def read_quorum(setting: Setting) -> str:
    """`h1:2181,h2:2181[/chroot]`, without blanks around them, empty parts and colons without a port; IPv6 addresses in brackets.

    Raises SettingsError.
    """
    if "://" in setting.text:
        raise setting.invalid(f"{_LIKE}it is no URL: {_EXAMPLE}")
    servers, slash, chroot = setting.text.strip().partition("/")
    addresses = [_server(setting, part.strip()) for part in servers.split(",") if part.strip()]
    if not addresses:
        raise setting.invalid(f"{_LIKE}{_EXAMPLE}")
    if not slash or not chroot:
        return ",".join(addresses)
    if "," in chroot:
        raise setting.invalid(
            f"{_LIKE}ZooKeeper's client takes everything after the first slash for the chroot: "
            "give the chroot once, after the last server, like zk-1:2181,zk-2:2181/chroot"
        )
    check_path(setting, chroot)
    return f"{','.join(addresses)}/{chroot}"


def check_path(setting: Setting, path: str) -> None:
    """Raise SettingsError if `path`, without its outer slashes, breaks ZooKeeper's rules."""
    if path and any(part in {"", ".", ".."} for part in path.split("/")):
        raise setting.invalid("is not a ZooKeeper path: it has an empty part, or one that is . or ..")


def _server(setting: Setting, part: str) -> str:
    """Mirrors the loop of `ConnectStringParser`: the port follows the last colon, in an IPv6 address without brackets too."""
    host, colon, port = (part, "", "") if part.endswith("]") or ":" not in part else part.rpartition(":")
    port_is_missing = bool(colon) and not port and host.endswith("]")
    port_is_wrong = bool(port) and not (_PORT.fullmatch(port) and 0 < int(port) < 1 << 16)
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    if port_is_missing or port_is_wrong or not _HOST.fullmatch(bracketed):
        raise setting.invalid(f"{_LIKE}{_EXAMPLE}")
    if not is_host(bracketed):
        hint = (
            "write an IPv6 address in brackets, like [2001:db8::1]:2181"
            if is_host(part)
            else f"{host} is no IP address"
        )
        raise setting.invalid(f"{_LIKE}{hint}")
    return f"{bracketed}:{int(port)}" if port else bracketed
