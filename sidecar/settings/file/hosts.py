"""Hosts in addresses and URLs."""

from ipaddress import ip_address


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
