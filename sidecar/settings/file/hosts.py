"""Hosts, in addresses and URLs, and the places that URLs name."""

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote

from sidecar.settings.file.setting import Setting

_OBJECT_STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})|\*")


def is_host(text: str) -> bool:
    """Whether `text` can be a host: what ends in a number is an IP address, or a mistake (RFC 1123), like 300.1.1.1."""
    bare = text.removeprefix("[").removesuffix("]")
    if not bare.rpartition(".")[2].isdigit() and ":" not in bare:
        return bool(bare)
    try:
        ip_address(bare)
    except ValueError:
        return False
    return True


def spool_place(url: Setting) -> Path | str:
    """The folder that a path or a `file://` URL names, or the URL of a place in an object store."""
    if "://" not in url.text:
        return url.path()
    parts = url.url()
    if parts.scheme in _OBJECT_STORES:
        return _object_url(url, parts)
    if parts.scheme != "file":
        raise url.error(
            f"must be a folder on this machine, file:///…, or begin with one of {', '.join(_OBJECT_STORES)} and ://"
        )
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise url.error("must be like file:///var/spool/flink-ha-sidecar, with three slashes")
    return Path(unquote(parts.path))


def _object_url(url: Setting, parts: SplitResult) -> str:
    """The URL, which holds no secret. In Azure's `abfss://container@account…` the part before the host is not a user."""
    if "@" in parts.netloc and (":" in parts.netloc or not parts.scheme.startswith("abfs")):
        raise url.error("must hold no user and no password: credentials come from the environment")
    if "?" in url.text or "#" in url.text:
        raise url.error("must end with its path, without ? and #: credentials and options come from the environment")
    if not parts.netloc:
        raise url.error(f"names no bucket: give one like {parts.scheme}://bucket/prefix")
    return url.text


def listening_host(setting: Setting) -> str:
    if not is_host(setting.not_empty()):
        raise setting.invalid("is no IP address, and no host name")
    return setting.text.removeprefix("[").removesuffix("]")


def public_url(setting: Setting) -> str:
    parts = setting.url()
    extra = "@" in parts.netloc or parts.query or parts.fragment
    if parts.scheme not in {"http", "https"} or not is_host(parts.hostname or "") or extra:
        raise setting.error("must be like https://host/path, without a user, ? and #: messages show it")
    return setting.text.rstrip("/")


def host_name(setting: Setting) -> str:
    """The name of a host in lower case, or `*`."""
    return setting.matching(_HOST_NAME, "a host name without a port, or *").lower().removesuffix(".")
