"""The facts of a ZooKeeper ensemble and of Flink's data in it, and THE table of the checks over them, by name, in the order shown.

The facts are read at one moment; one that could not be read is `Unknown`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.counted import counted, listed
from sidecar.core.ha.finding import Finding, UnknownFact, passes, risk, unknown
from sidecar.core.moment import SECOND, age
from sidecar.core.sanitize import clean


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
    timeout: float | UnknownFact
    """The session timeout that it granted when Flink's was requested, in seconds. Unknown: it opened no session."""
    report: ServerReport | UnknownFact
    asked: bool = True
    """False: there was no time for it."""


class EnsembleMember(Struct, frozen=True):
    """A server of the ensemble's configuration."""

    number: int
    host: str
    votes: bool
    """False: an observer."""


class Leftover(Struct, frozen=True):
    """Data of Flink's that no leader uses."""

    path: str
    name: str
    changed_at: int | UnknownFact
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
    members: tuple[EnsembleMember, ...] | UnknownFact
    """The members of the ensemble, as `/zookeeper/config` lists them. Empty: the server stands alone."""
    contenders: int | UnknownFact
    """JobManagers in the latch of all components."""
    zxid: int | UnknownFact
    """The newest transaction."""
    writable_by_all: Mapping[str, bool] | UnknownFact
    """Whether anyone may change it or its descendants, for each of Flink's znodes that were checked."""
    left_clusters: tuple[Leftover, ...] | UnknownFact
    """Other clusters below the root that have no leader, and no contender."""
    left_jobs: tuple[Leftover, ...] | UnknownFact
    """Checkpoints of jobs that Flink would not recover."""
    rest_address: str | UnknownFact = UnknownFact("it was not read")
    """The published address of the leading REST server. Empty: there is no leader."""


_MOST_NAMED: Final = 5
_EPOCH: Final = (1 << 32) - 1
_NEAR_END: Final = 0.9
"""The share of an epoch's transactions after which its end counts as near."""
_SLOW_MILLIS: Final = 100.0
_MANY_OUTSTANDING: Final = 100
_LEFT: Final = 86_400 * SECOND
"""How long data must not have been written to count as left behind."""
_PLAIN: Final = re.compile(r"/[A-Za-z0-9_./:@=+-]{1,120}")
"""A path that zkCli.sh takes as it is, five of which fit into one line. Others are in no command."""


def standby(facts: ZooKeeperFacts) -> Finding:
    """Whether another JobManager waits to take over."""
    match facts.contenders:
        case UnknownFact(reason=reason):
            return unknown(reason)
        case 0:
            return unknown("no JobManager contends for leadership: the cluster does not run")
        case 1:
            return risk(
                "one JobManager contends for leadership",
                "start a second JobManager: without a standby a failover takes as long as a new process, and jobs wait for it",
            )
    return passes(f"{facts.contenders} JobManagers contend for leadership")


def servers(facts: ZooKeeperFacts) -> Finding:
    """Whether each server of the connection string serves."""
    count = counted(len(facts.servers), "server")
    silent = [
        f"{clean(server.address)} ({clean(server.timeout.reason)})"
        for server in facts.servers
        if isinstance(server.timeout, UnknownFact)
    ]
    if len(silent) == len(facts.servers):
        return unknown(f"no server opened a session for this sidecar: {_listed(silent)}")
    if any(server.asked and isinstance(server.timeout, UnknownFact) for server in facts.servers):
        return risk(
            f"{len(silent)} of {count} opened no session: {_listed(silent)}",
            "start them, or correct high-availability.zookeeper.quorum: without them fewer servers may fail",
        )
    if silent:
        return unknown(f"{len(silent)} of {count} were not asked: {_listed(silent)}")
    return passes(f"{len(facts.servers)} of {count} opened a session")


def ensemble_size(facts: ZooKeeperFacts) -> Finding:
    """Whether the ensemble survives the loss of a server, and has no server that adds nothing."""
    if any(report.mode is Mode.STANDALONE for report in _reports(facts)):
        return risk("ZooKeeper is one server, without an ensemble", _THREE)
    if isinstance(facts.members, UnknownFact):
        return unknown(facts.members.reason)
    voting = sum(member.votes for member in facts.members)
    if voting < 3:
        text = (
            f"the ensemble has {counted(voting, 'voting server')}"
            if voting
            else "ZooKeeper is one server, without an ensemble"
        )
        return risk(text, _THREE)
    if voting % 2 == 0:
        return risk(
            f"the ensemble has {voting} voting servers, and survives the loss of {_tolerated(voting)}, as one with {voting - 1}",
            "use an odd number of voting servers: an even one adds a server that may fail, and no tolerance",
        )
    return passes(f"the ensemble has {voting} voting servers, and survives the loss of {_tolerated(voting)}")


_THREE: Final = (
    "run an ensemble of three or five servers: when this one is away, no leader can be elected, and leaders step down"
)


def failure_tolerance(facts: ZooKeeperFacts) -> Finding:
    """How many of the servers that serve now may still fail."""
    if isinstance(facts.members, UnknownFact):
        return unknown(facts.members.reason)
    voting = [member for member in facts.members if member.votes]
    if len(voting) < 3:
        return unknown("the ensemble is too small to survive the loss of a server: see ensemble_size")
    modes = [server.report.mode for server in facts.servers if isinstance(server.report, ServerReport)]
    serving = sum(mode in {Mode.LEADER, Mode.FOLLOWER} for mode in modes)
    spare = serving - (len(voting) // 2 + 1)
    text = f"{serving} of {len(voting)} voting servers serve: {max(0, spare)} may still fail"
    if spare >= 1:
        return passes(text)
    is_partial = spare < 0  # the ensemble serves: its members were read
    if is_partial or len(facts.servers) < len(voting) or any(_may_serve(server) for server in facts.servers):
        return unknown(f"only {serving} of {len(voting)} voting servers are known to serve: {_why_not(facts)}")
    return risk(text, "bring the other servers back: the next one that fails takes every leader with it")


def _may_serve(server: Server) -> bool:
    """Whether what it is was not read, though it opened a session or was not asked."""
    return isinstance(server.report, UnknownFact) and not (server.asked and isinstance(server.timeout, UnknownFact))


def _why_not(facts: ZooKeeperFacts) -> str:
    reasons = (server.report.reason for server in facts.servers if isinstance(server.report, UnknownFact))
    return clean(next(reasons, "the connection string does not name all servers of the ensemble"))


def connection_string(facts: ZooKeeperFacts) -> Finding:
    """Whether clients know enough servers, and one that votes."""
    reports = _reports(facts)
    if len(reports) == len(facts.servers) and all(report.mode is Mode.OBSERVER for report in reports):
        return risk(
            "all servers of the connection string are observers",
            "name voting servers too (high-availability.zookeeper.quorum): observers serve nobody without them",
        )
    if isinstance(facts.members, UnknownFact):
        return unknown(facts.members.reason)
    if len(facts.servers) == 1 and len(facts.members) > 1:
        return risk(
            f"the connection string names 1 of {len(facts.members)} servers: {clean(facts.servers[0].address)}",
            "name all servers in high-availability.zookeeper.quorum, unless this name stands for all of them",
        )
    return passes(f"the connection string names {counted(len(facts.servers), 'server')}")


def session_timeout(facts: ZooKeeperFacts) -> Finding:
    """Whether the servers grant the session timeout that Flink asks for."""
    granted = {
        clean(server.address): server.timeout for server in facts.servers if not isinstance(server.timeout, UnknownFact)
    }
    if not granted:
        return unknown("no server opened a session")
    address, shortest = min(granted.items(), key=lambda item: item[1])
    other, longest = max(granted.items(), key=lambda item: item[1])
    if not facts.is_flinks_timeout:
        return unknown(
            f"Flink's configuration was not read; {address} grants sessions of up to {shortest:g} s, Flink's default is 60 s"
        )
    if shortest < facts.requested_timeout:
        return risk(
            f"Flink asks for sessions of {facts.requested_timeout:g} s and gets {shortest:g} s from {address}",
            "raise maxSessionTimeout of the servers: a pause that is longer than what they grant costs the leader its session, "
            "whatever high-availability.zookeeper.client.session-timeout says",
        )
    if longest > facts.requested_timeout:
        return risk(
            f"Flink asks for sessions of {facts.requested_timeout:g} s and gets {longest:g} s from {other}",
            "lower minSessionTimeout of the servers (by default two ticks): for so long a dead leader stays published",
        )
    return passes(f"Flink's session timeout of {shortest:g} s is granted")


def zxid_headroom(facts: ZooKeeperFacts) -> Finding:
    """Whether ZooKeeper will have to elect a leader of its own soon."""
    if isinstance(facts.zxid, UnknownFact):
        return unknown(facts.zxid.reason)
    used = facts.zxid & _EPOCH
    text = f"{used / _EPOCH:.0%} of the transactions of this epoch are used"
    if used > _NEAR_END * _EPOCH:
        return risk(text, "restart ZooKeeper's leader at a quiet time: at the end of the epoch it steps down by itself")
    return passes(text)


def server_load(facts: ZooKeeperFacts) -> Finding:
    """Whether servers answer in time."""
    loaded = [
        f"{clean(server.address)} ({report.average_latency:g} ms on average, {report.outstanding} outstanding)"
        for server in facts.servers
        if isinstance(report := server.report, ServerReport)
        and (report.average_latency > _SLOW_MILLIS or report.outstanding > _MANY_OUTSTANDING)
    ]
    if loaded:
        return risk(
            f"slow: {_listed(loaded)}",
            "look at the disk of ZooKeeper's transaction log and at its garbage collection: sessions of healthy JobManagers expire",
        )
    if silent := [server for server in facts.servers if isinstance(server.report, UnknownFact)]:
        return unknown(f"{len(silent)} of {counted(len(facts.servers), 'server')} did not report it: {_why_not(facts)}")
    return passes("latency and outstanding requests are low")


def open_acls(facts: ZooKeeperFacts) -> Finding:
    """Whether anybody who reaches ZooKeeper may change Flink's leaders and jobs."""
    if isinstance(facts.writable_by_all, UnknownFact):
        return unknown(facts.writable_by_all.reason)
    if not facts.writable_by_all:
        return unknown("none of Flink's znodes exists")
    if exposed := [path for path, is_open in facts.writable_by_all.items() if is_open]:
        return risk(
            f"anybody may change {_listed(map(clean, exposed))}",
            "set high-availability.zookeeper.client.acl: creator, with SASL or mutual TLS, or let only Flink reach ZooKeeper: "
            "one write takes leaders or jobs away",
        )
    return passes("only known identities may change Flink's znodes")


def shared_cluster_id(facts: ZooKeeperFacts) -> Finding:
    """Whether another cluster could be in the same place by mistake."""
    if facts.namespace.rpartition("/")[2] == "default":
        return unknown(
            f"this cluster has Flink's default id, {clean(facts.namespace)}: another one with the same root that sets no "
            "high-availability.cluster-id would share leaders and jobs with it"
        )
    return passes(f"the cluster has a place of its own: {clean(facts.namespace)}")


def leftover_clusters(facts: ZooKeeperFacts) -> Finding:
    """Whether dead clusters left their data."""
    return _leftovers(
        facts,
        facts.left_clusters,
        "cluster that nobody leads",
        "if they are not meant to come back, remove them: with their data a new cluster of the same id recovers their jobs",
    )


def leftover_jobs(facts: ZooKeeperFacts) -> Finding:
    """Whether ended jobs left checkpoints."""
    return _leftovers(
        facts,
        facts.left_jobs,
        "job with checkpoints that Flink would not recover",
        "if nobody restores from them, remove them, and their files below high-availability.storageDir",
    )


def _leftovers(facts: ZooKeeperFacts, leftovers: tuple[Leftover, ...] | UnknownFact, noun: str, advice: str) -> Finding:
    if isinstance(leftovers, UnknownFact):
        return unknown(leftovers.reason)
    dated = [(node.changed_at, node) for node in leftovers if not isinstance(node.changed_at, UnknownFact)]
    old = sorted((item for item in dated if facts.read_at - item[0] > _LEFT), key=lambda item: item[0])
    if not old:
        hidden = [
            f"{clean(node.path)}: {node.changed_at.reason}"
            for node in leftovers
            if isinstance(node.changed_at, UnknownFact)
        ]
        return unknown(_listed(hidden)) if hidden else passes(f"no {noun}")
    kind, _, rest = noun.partition(" ")
    texts = (f"{clean(node.name)} (last written {age(facts.read_at - changed_at)} ago)" for changed_at, node in old)
    commands = "; ".join(f"deleteall {node.path}" for _, node in old[:_MOST_NAMED] if _PLAIN.fullmatch(node.path))
    in_shell = f". In zkCli.sh: {commands}" if commands else ""
    return risk(f"{counted(len(old), kind)} {rest}: {_listed(texts)}", f"{advice}{in_shell}")


def _listed(texts: Iterable[str]) -> str:
    return listed([*texts], _MOST_NAMED)


def _reports(facts: ZooKeeperFacts) -> Sequence[ServerReport]:
    return [server.report for server in facts.servers if isinstance(server.report, ServerReport)]


def _tolerated(voting: int) -> str:
    return counted((voting - 1) // 2, "server")


ZOOKEEPER_CHECKS: Final[Mapping[str, Callable[[ZooKeeperFacts], Finding]]] = {
    "standby": standby,
    "zookeeper_servers": servers,
    "ensemble_size": ensemble_size,
    "failure_tolerance": failure_tolerance,
    "connection_string": connection_string,
    "session_timeout": session_timeout,
    "zxid_headroom": zxid_headroom,
    "server_load": server_load,
    "open_acls": open_acls,
    "shared_cluster_id": shared_cluster_id,
    "leftover_clusters": leftover_clusters,
    "leftover_jobs": leftover_jobs,
}
"""Each judges the facts of one moment."""
