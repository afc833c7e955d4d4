"""The hosts in leaders' addresses, and the pods there. A pod's name is for texts: nothing is decided by it."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from sidecar.core.moment import Wall
from sidecar.core.sanitize import clean

LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost", "localhost4", "localhost6"})
"""First labels of names that every machine has."""
MOST_PODS: Final = 16
"""Remembered per cluster, the latest ones."""
MOST_PROCESS: Final = 60
"""Characters of a JobManager's name in a sentence."""
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LONGEST_NAME: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UID: Final = re.compile(r"[-A-Za-z0-9]{1,64}")


KubernetesName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,253}\Z")]
Address = Annotated[str, Meta(pattern=r"^[!-~]{0,1000}\Z")]
"""Without blanks: in a message it says little else. Empty: not known."""


class Pod(Struct, frozen=True):
    """A pod at one address."""

    name: KubernetesName
    uid: KubernetesName | None = None
    """None: not known."""
    named_at: Wall = 0
    """When the pod was found to have that address (wall). An address may belong to another pod later."""


Pods = Mapping[str, Pod]
"""Pods by host, as `canonical` has it."""


def canonical(host: str) -> str:
    """The host without brackets; of an IP address the short form, as in a pod's status."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(bare))
    except ValueError:
        return bare


def host_port(address: str) -> str:
    """`host:port` in a leader's address, else the whole address: `pekko.tcp://flink@jm-0:6123/user/…` → `jm-0:6123`."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2] or address
    except ValueError:
        return address


def is_own_host(address: str, *, in_kubernetes: bool) -> bool:
    """Whether the host in a leader's address can only be one machine or pod: neither localhost nor the name of a Service.

    With the leaders in Kubernetes every name may be that of a Service; elsewhere `….svc` is one.
    """
    host = host_port(address).rpartition(":")[0].strip("[]").lower().removesuffix(".")
    try:
        ip = ip_address(host)
    except ValueError:
        return not in_kubernetes and host.partition(".")[0] not in LOCAL_NAMES and ".svc" not in host
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    return not ip.is_loopback and not ip.is_unspecified


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def host_of(place: str) -> str:
    """The host in a leader's address or in `host:port`."""
    return canonical(_without_port(host_port(place)))


def is_at(place: str, hosts: Iterable[str]) -> bool:
    """Whether a leader's address, or `host:port`, is of one of these hosts."""
    host = host_of(place)
    short = "" if is_address(host) else host.partition(".")[0]
    return any(host == other or (short and short == other.partition(".")[0]) for other in hosts)


def is_pod_at(place: str, address: str, name: str) -> bool:
    """Whether a pod of this address or name is the one in a leader's address."""
    host = host_of(place)
    return address == host or (not is_address(host) and name == host.partition(".")[0])


def pod_at(pods: Pods, place: str | None) -> Pod | None:
    """The pod in a leader's address or `host:port`: of that address, or of a host name that begins with its name."""
    if not pods:
        return None
    host = host_of(place or "")
    if pod := pods.get(host):
        return pod
    first = "" if is_address(host) else host.partition(".")[0]
    return next((pod for pod in pods.values() if pod.name == first), None)


def name_at(pods: Pods, place: str | None) -> str | None:
    """The name of the pod there; None: not known."""
    pod = pod_at(pods, place) if pods else None
    return pod.name if pod else None


def with_pod(pods: Pods, host: str, pod: Pod | None) -> Pods:
    """The pods when `pod` has the address `host`; None: it is not known which one has. The same object if nothing changes."""
    host = canonical(host)
    before = pods.get(host)
    if pod is None:
        return pods if before is None else {key: other for key, other in pods.items() if key != host}
    if not _is_valid(host, pod):
        return pods
    if before and ((before.name, before.uid) == (pod.name, pod.uid) or before.named_at > pod.named_at):
        return pods
    latest = sorted({**pods, host: pod}.items(), key=lambda item: item[1].named_at)
    return dict(latest[-MOST_PODS:])


def merged(pods: Pods, others: Pods) -> Pods:
    """The pods that either knows. `others` may come from another sidecar."""
    for host, pod in others.items():
        pods = with_pod(pods, host, pod)
    return pods


def process(address: str | None, name: str | None = None) -> str:
    """The name of a JobManager in a sentence: its pod, or the host in its address; with the port where all are on this machine."""
    place = host_port(address or "")
    host = _without_port(place) or "?"
    return clean(name or (place if host in _THIS_MACHINE else host), MOST_PROCESS)


def spelled(place: str | None, name: str | None) -> str:
    """A leader's address, or `host:port`, as `pod, host:port`; without the pod if it is not known, or its name is in the host name."""
    place = host_port(place or "")
    return place if name is None or _without_port(place).partition(".")[0] == name else f"{name}, {place}"


def ip_addresses(addresses: Iterable[str]) -> tuple[str, ...]:
    """The IP addresses among the hosts of these leaders' addresses, each once."""
    return tuple(dict.fromkeys(host for address in addresses if is_address(host := host_of(address))))


def _without_port(place: str) -> str:
    return place.rpartition(":")[0] or place


def _is_valid(host: str, pod: Pod) -> bool:
    """Whether the names are those of Kubernetes: others can write them."""
    is_name_valid = (
        len(pod.name) <= _LONGEST_NAME and _NAME.fullmatch(pod.name) and (not pod.uid or _UID.fullmatch(pod.uid))
    )
    return bool(is_name_valid) and 0 < len(host) <= _LONGEST_NAME
