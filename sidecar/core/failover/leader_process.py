"""Identifies the process and the container of a lost leader: by its pod, or by the port of its address, which no other process of its
machine has. So the end of another JobManager is never taken for its end, and a process that still runs has not ended.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.failover import ends
from sidecar.core.failover.ends import Beside, ContainerEnded, Ends, KnownPod, KnownProcess, KnownProcessEnd
from sidecar.core.failover.episodes import Episode
from sidecar.core.flink.leadership import host_port, is_own_host
from sidecar.core.moment import SECOND, Moment, seconds
from sidecar.core.policy.policy import Store
from sidecar.core.sanitize import clean

BEFORE: Final = 180 * SECOND
"""How long before the loss of its leadership a JobManager may have ended: Flink's session timeout, or its lease."""
AFTER: Final = 60 * SECOND
"""How long after the loss of leadership a JobManager may still end: it shuts down, or its node does not report for a while."""
ROUNDED: Final = 5 * SECOND
"""The largest difference between the kubelet's and the kernel's time of one end."""
_T = TypeVar("_T", bound=Beside | ContainerEnded)


class Lost(NamedTuple):
    """A leader that was lost, and when (steady) it may have ended."""

    address: str
    opened: Moment
    since: int
    until: int
    is_own_place: bool
    """Whether only one machine or pod can have its host name."""

    def has(self, at: Moment) -> bool:
        """Whether it may have ended then."""
        return self.since <= at.steady <= self.until


class LeaderProcess(NamedTuple):
    """The process of a leader that was lost, as far as it is known."""

    end: KnownProcessEnd | None = None
    running: KnownProcess | None = None
    """The process, if it has not ended."""
    is_identified: bool = False
    """Whether its port identifies the process. False: it may be another JobManager of the machine."""


def lost_leader(cluster: ClusterState, episode: Episode, after: int) -> Lost:
    """The leader that a failover left. `after`: how long after the loss (microseconds) its end may have come."""
    since, last = episode.opened_at.steady - BEFORE, cluster.last_episode
    if last and last.id != episode.id:  # what ended before this leader led is not its end
        since = max(since, last.moved_at.steady)
    in_kubernetes = episode.facts.store is Store.KUBERNETES
    is_own_place = is_own_host(episode.before.address, in_kubernetes=in_kubernetes)
    until = episode.opened_at.steady + after
    return Lost(episode.before.address, episode.opened_at, since, until, is_own_place)


def process_of(known: Ends, lost: Lost) -> LeaderProcess:
    """The process of this leader, ended or running."""
    port = port_of(lost.address)
    ended = [end for end in known.processes if lost.has(end.at) and ends.is_at(lost.address, end.hosts)]
    if own := nearest((end for end in ended if port in end.end.ports), lost.opened):
        return LeaderProcess(own, is_identified=True)
    since = lost.opened.wall - (lost.opened.steady - lost.since)
    for other in known.running:  # one that has started since may have taken its port
        was_there = other.process.started_at <= since and ends.is_at(lost.address, other.hosts)
        if was_there and port in other.process.ports:
            return LeaderProcess(running=other, is_identified=True)
    # Its address may be another one than that on which it listens.
    possible = (end for end in ended if lost.is_own_place or not end.end.ports)
    return LeaderProcess(nearest(possible, lost.opened))


def ended_since(known: Ends, address: str, since: int) -> KnownProcessEnd | None:
    """The end of the process that listened at this address, since then (steady). None: not observed, or another one listened there."""
    own = (end for end in known.processes if _listened_at(address, end.end.ports, end.hosts))
    last = max((end for end in own if end.at.steady >= since), key=lambda end: end.at.steady, default=None)
    # One that has started in its place has published nothing yet.
    others = (other for other in known.running if _listened_at(address, other.process.ports, other.hosts))
    return None if last and any(other.process.started_at <= last.at.wall for other in others) else last


def _listened_at(address: str, ports: Container[int | None], hosts: Iterable[str]) -> bool:
    """Whether a process with these ports, on these hosts, is that of the leader at this address."""
    return port_of(address) in ports and ends.is_at(address, hosts)


def failed_successors(known: Ends, episode: Episode) -> Iterator[str]:
    """JobManagers that took over in this failover and have ended since, a sentence each."""
    said: set[int] = set()
    for followed in episode.successors:
        for end in known.processes:
            is_its_own = _listened_at(followed.address, end.end.ports, end.hosts)
            if not is_its_own or end.at < followed.at or end.end.pid in said:
                continue
            said.add(end.end.pid)
            code = "" if end.end.exit_code is None else f" with exit code {end.end.exit_code}"
            faults = (log.fault.text for log in known.logs if log.pid == end.end.pid and log.fault.text)
            fault = next((f": {clean(text).rstrip('.')}" for text in faults), "")
            waited = seconds(end.at.steady - followed.at.steady)
            yield f"JobManager {clean(host_port(followed.address))} took over and ended {waited} later{code}{fault}."


def end_of_pod(known: Ends, lost: Lost) -> tuple[KnownPod | None, ContainerEnded | None]:
    """The leader's pod and the end of its container. Several pods may have had the address: then the one that ended."""
    pods = [
        (pod, nearest((end for end in pod.ends if lost.has(end.at)), lost.opened))
        for pod in ends.pods_at(known, lost.address)
        if pod.gone_at is None or pod.gone_at.steady >= lost.since
    ]
    if len(pods) > 1:
        pods = [(pod, end) for pod, end in pods if end or pod.deleted_at or pod.gone_at or pod.status.phase == "Failed"]
    return pods[0] if len(pods) == 1 else (None, None)


def port_of(address: str) -> int | None:
    """The port in a leader's address."""
    port = host_port(address).rpartition(":")[2]
    return int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else None


def nearest(values: Iterable[_T], opened: Moment) -> _T | None:
    """The one nearest to the loss of the leader: a container may end again and again."""
    return min(values, key=lambda value: abs(value.at.steady - opened.steady), default=None)
