"""Components, their leaders, and the three states of a leadership: unknown, vacant, held."""

from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit
from uuid import UUID

from msgspec import Meta, Struct

from sidecar.core.counted import Number

LOCAL_NAMES: Final = frozenset({"localhost", "ip6-localhost", "localhost4", "localhost6"})
"""First labels of names that every machine has."""


class Component(StrEnum):
    """The components that Flink elects leaders for. One spelling for both stores."""

    RESOURCE_MANAGER = "resource_manager"
    DISPATCHER = "dispatcher"
    REST_SERVER = "rest_server"
    JOB = "job"


JobId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class ComponentId(Struct, frozen=True, order=True, cache_hash=True):
    """One leadership: a cluster component, or one job's JobMaster."""

    component: Component
    job_id: JobId | None = None

    def __str__(self) -> str:
        return f"{self.component} {self.job_id}" if self.job_id else str(self.component)


CLUSTER_COMPONENTS = (
    ComponentId(Component.RESOURCE_MANAGER),
    ComponentId(Component.DISPATCHER),
    ComponentId(Component.REST_SERVER),
)
"""The components of every Flink cluster, whether or not anything is written for them yet."""


LONGEST_ADDRESS: Final = 1024
"""Bytes of a leader's address. A host name has at most 253 characters, the rest of Flink's addresses less than 100."""


class LeaderInformation(Struct, frozen=True, gc=False):
    """A leader as it published itself. Mirrors `org.apache.flink.runtime.leaderelection.LeaderInformation`."""

    address: str
    session_id: UUID


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


class ZNodePosition(Struct, frozen=True, tag="znode"):
    """Where in ZooKeeper's history a value was observed (`org.apache.zookeeper.data.Stat`). `mtime` is milliseconds since the epoch."""

    path: str
    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    mtime: int
    returned: str | None = None
    """Set if the store went back in time (a restored snapshot) and shows this write again: differs for each return."""

    @property
    def epoch(self) -> int:
        """The number of leader elections of the ensemble before this write."""
        return self.mzxid >> 32


class ConfigMapPosition(Struct, frozen=True, tag="config_map"):
    """Where in Kubernetes a value was observed, and the lease's holder then. `key`: in the ConfigMap's data."""

    name: str
    key: str
    uid: str
    resource_version: str
    holder_identity: str
    acquire_time: str
    returned: str | None = None
    """The resource version at which a previous leader returned with its old session id."""

    @property
    def path(self) -> str:
        return f"{self.name}/{self.key}"

    def is_in(self, other: "Position") -> bool:
        """Whether both are the same key in the same term, whatever was renewed since."""
        return isinstance(other, ConfigMapPosition) and _term_and_place(self) == _term_and_place(other)


def _term_and_place(position: ConfigMapPosition) -> tuple[str, ...]:
    return position.name, position.key, position.uid, position.holder_identity, position.acquire_time


Position = ZNodePosition | ConfigMapPosition
"""Where in its store's history a value was observed."""


class Births(Struct, frozen=True):
    """How many children of a znode were created since it exists (`parent_czxid`), counted by ZooKeeper.

    Flink keeps one child there, the leader's node, which each new leader creates anew: these are elections.
    """

    parent_czxid: Number
    count: Number


class Blindness(StrEnum):
    """Why a leadership is unknown."""

    UNSEEN = "unseen"
    """The component was not read yet since the start or the last reconnect."""
    VIEW_LOST = "view_lost"
    """The store could not be read for longer than the trust window."""
    UNREADABLE = "unreadable"
    """The bytes are not Flink's, or may not be read."""


class Unknown(Struct, frozen=True, tag="unknown"):
    """The leader is not known. Never reported as "there is no leader"."""

    reason: Blindness = Blindness.UNSEEN
    path: str | None = None
    """The path of the bytes, if UNREADABLE."""


class Vacant(Struct, frozen=True, tag="vacant"):
    """The store was read, and there is no leader."""


class Held(Struct, frozen=True, gc=False, tag="held"):
    """There is a leader."""

    leader: LeaderInformation
    position: Position


Leadership = Unknown | Vacant | Held
