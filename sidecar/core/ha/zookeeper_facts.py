"""The facts of a ZooKeeper ensemble and of Flink's data in it, read at one moment. A fact that could not be read is `Unknown`."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from sidecar.core.ha.finding import Unknown


class Mode(StrEnum):
    """The role of a server, in ZooKeeper's words."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    STANDALONE = "standalone"


class ServerReport(Struct, frozen=True):
    """A server's answer to the four-letter word `srvr`."""

    mode: Mode
    average_latency: float
    """Milliseconds, since the server was started."""
    outstanding: int
    """Requests that wait."""
    version: str = ""


class Server(Struct, frozen=True):
    """A server of the connection string."""

    address: str
    timeout: float | Unknown
    """The session timeout that it granted when Flink's was requested, in seconds. Unknown: it opened no session."""
    report: ServerReport | Unknown
    asked: bool = True
    """False: there was no time for it."""


class Member(Struct, frozen=True):
    """A server of the ensemble's configuration."""

    number: int
    host: str
    votes: bool
    """False: an observer."""


class Leftover(Struct, frozen=True):
    """Data of Flink's that no leader uses."""

    path: str
    name: str
    changed_at: int | Unknown
    """When the data was last written (wall microseconds, by the ensemble's clock). Unknown: whether it is used is not known either."""


class ZooKeeperFacts(Struct, frozen=True, kw_only=True):
    """Everything about the ensemble and one cluster in it."""

    namespace: str
    """Flink's root and cluster id, joined: `/flink/default`."""
    read_at: int
    """Wall microseconds."""
    requested_timeout: float
    """The session timeout that was asked for, in seconds."""
    is_flinks_timeout: bool
    """Whether that is Flink's own: its configuration was read."""
    servers: tuple[Server, ...]
    """All of the connection string."""
    members: tuple[Member, ...] | Unknown
    """The members of the ensemble, as `/zookeeper/config` lists them. Empty: the server stands alone."""
    contenders: int | Unknown
    """JobManagers in the latch of all components."""
    zxid: int | Unknown
    """The newest transaction."""
    writable_by_all: Mapping[str, bool] | Unknown
    """Whether anyone may change it or its descendants, for each of Flink's znodes that were checked."""
    left_clusters: tuple[Leftover, ...] | Unknown
    """Other clusters below the root that have no leader, and no contender."""
    left_jobs: tuple[Leftover, ...] | Unknown
    """Checkpoints of jobs that Flink would not recover."""
    rest_address: str | Unknown = Unknown("it was not read")
    """The published address of the leading REST server. Empty: there is no leader."""
