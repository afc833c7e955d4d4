"""The leader that a failover left: its process, why that ended (a verdict with the facts it rests on), and the cause of the failover.

Facts come up to some seconds after the loss, so the verdict is made anew whenever it is asked for, until it is recorded: once for each
failover, as soon as it is sure and the failover is over, else RECORDED_AFTER later.

Its process is identified by its pod, or by the port of its address, which no other process of its machine has. So the end of another
JobManager is never taken for its end, and a process that still runs has not ended.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import causes, ends, planned, plans
from sidecar.core.failover.causes import Cause, Confidence, Facts
from sidecar.core.failover.death_facts import NO_STATE, DeathFacts
from sidecar.core.failover.death_verdict import DeathReason, DeathVerdict, verdict
from sidecar.core.failover.ends import (
    Beside,
    ContainerEnded,
    Ends,
    KnownPod,
    KnownProcess,
    KnownProcessEnd,
    LogFault,
    LogRead,
    Rebooted,
)
from sidecar.core.failover.episodes import Episode
from sidecar.core.moment import SECOND, Moment, seconds
from sidecar.core.observations import (
    EndObservation,
    EventObserved,
    HostRestarted,
    LogEndRead,
    PodObserved,
    ProcessEnded,
    ProcessSeen,
)
from sidecar.core.pods import host_port, is_at, is_own_host, name_at
from sidecar.core.policy.policy import Store
from sidecar.core.process_end import PodStatus
from sidecar.core.sanitize import clean

BEFORE: Final = 180 * SECOND
"""How long before the loss of its leadership a JobManager may have ended: Flink's session timeout, or its lease."""
AFTER: Final = 60 * SECOND
"""How long after the loss of leadership a JobManager may still end: it shuts down, or its node does not report for a while."""
ROUNDED: Final = 5 * SECOND
"""The largest difference between the kubelet's and the kernel's time of one end."""
_T = TypeVar("_T", bound=Beside | ContainerEnded)
RECORDED_AFTER: Final = 20 * SECOND
"""How long to wait for more facts after the failover and the process have ended."""
LOG_READ_WITHIN: Final = 5 * SECOND
"""How long to wait for the first error in the log, where nothing else can explain the end."""
_BOOTED: Final = 600 * SECOND
"""How long before an unobserved loss the machine may have been started again: the sidecar starts after the machine."""
_AFTER_FULL_HEAP: Final = 240 * SECOND
"""How long after the loss a process with a full heap may end: Flink's error handler needs that long (102 s were measured)."""
_NOBODY_ENDED: Final = frozenset(
    {
        *(Cause.SAME_PROCESS_REELECTION, Cause.STORE_OUTAGE, Cause.STORE_REELECTION, Cause.LEASE_RENEWAL_FAILED),
        *(Cause.REWRITTEN_BY_FLINK, Cause.SPLIT_LEADERSHIP, Cause.OBSERVER_BLIND),
    }
)
"""Causes that do without the end of a process."""


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


def observe(draft: Draft, observation: EndObservation) -> None:
    """Update what is known of ends of processes by `observation`, and record the last failover's death if that is due."""
    at, hosts, before = observation.at, draft.policy.own_hosts, draft.state.ends
    recent = ends.recent(before, at)
    match observation:
        case PodObserved(pod=pod, gone=gone):
            recent = ends.with_pod(recent, pod, at, gone=gone)
        case EventObserved(event=event):
            recent = ends.with_event(recent, event, at)
        case ProcessSeen(process=process):
            recent = ends.with_running(recent, process, hosts, at)
        case ProcessEnded(end=end):
            recent = ends.with_process(recent, end, hosts, at)
        case LogEndRead(log=log, pod_uid=pod_uid):
            recent = ends.with_log(recent, log, pod_uid, hosts, at)
        case HostRestarted(booted_at=booted_at):
            recent = ends.with_reboot(recent, booted_at, hosts, at)
    if recent == before:
        return
    draft.update(ends=recent)
    planned.consider(draft)
    if is_due(draft.state, at):
        record(draft)


def death_of(cluster: ClusterState, episode: Episode) -> DeathVerdict | None:
    """Why the previous leader ended, as far as is known, of the failover in progress or the last one. None: nothing says that it did. One
    that was stopped, hangs or is cut off has not ended.
    """
    if episode.death or cluster.ends == ends.NOTHING:
        return episode.death
    facts = _facts_of_end(cluster, episode)
    return verdict(facts) if facts else None


def name_of(cluster: ClusterState, address: str) -> str | None:
    """The name of the pod at a leader's address, by what is known of pods from anywhere. None: not known."""
    name = name_at(cluster.pods, address)
    pods = [pod.status.name for pod in ends.pods_at(cluster.ends, address) if pod.gone_at is None]
    return name or (pods[0] if len(pods) == 1 else None)


def is_due(cluster: ClusterState, now: Moment) -> bool:
    """Whether the last failover's death is to be recorded."""
    episode = cluster.last_episode
    if episode is None or episode.closed_at is None or episode.death or cluster.ends == ends.NOTHING:
        return False
    waited = now.steady - episode.closed_at.steady
    facts = _facts_of_end(cluster, episode) if waited < ends.KEPT else None
    if facts is None:
        return False
    death = verdict(facts)
    # That nothing but a signal ended it is concluded from what was not observed, and that may still come.
    is_sure = death.confidence is Confidence.HIGH and death.reason not in {DeathReason.KILLED, DeathReason.STOPPED}
    since_end = now.steady - facts.ended.steady if facts.ended else waited  # the end of its log is read afterwards
    return min(waited, since_end) >= (LOG_READ_WITHIN if is_sure else RECORDED_AFTER)


def record(draft: Draft) -> None:
    """Record why the previous leader ended in the last failover. It is not judged anew afterwards."""
    episode = draft.state.last_episode
    if episode and episode.death is None and (death := death_of(draft.state, episode)):
        draft.happened.append(draft.writer.death(episode.id, death))
        draft.update(last_episode=replace(episode, death=death))


# -- the cause ---------------------------------------------------------------------------------------------------------


def facts_of(cluster: ClusterState, episode: Episode) -> Facts:
    """The facts of one of the cluster's failovers. Of the one in progress: as if it were closed now."""
    if cluster.episode is None or cluster.episode.id != episode.id:
        return episode.facts
    operated = episode.facts.operated and plans.expected_until(cluster.operated, episode.opened_at) is None
    facts = replace(episode.facts, contend=contending(cluster.contenders), operated=operated)
    return _with_process(facts, cluster, episode)


def _with_process(facts: Facts, cluster: ClusterState, episode: Episode) -> Facts:
    """`facts` with what is known of the leader's process: that it ended, or that it runs."""
    if cluster.ends == ends.NOTHING:
        return facts
    facts = replace(facts, failed=tuple(failed_successors(cluster.ends, episode)))
    lost = lost_leader(cluster, episode, AFTER)
    process, (_, container) = process_of(cluster.ends, lost), end_of_pod(cluster.ends, lost)
    if end := process.end:
        return replace(facts, exit_code=end.end.exit_code, exited_at=end.at.steady)
    if container and container.reason not in NO_STATE:
        return replace(facts, exit_code=container.exit_code, exited_at=container.at.steady)
    if (running := process.running) is None:
        return facts
    since, until = running.stood_still or (None, None)
    relevant = since is not None and (until is None or until.steady >= lost.since)
    return replace(
        facts,
        lives=True,
        is_stopped=relevant and running.process.is_stopped,
        stood_still=until.steady - since.steady if relevant and since and until else None,
    )


def cause_of(cluster: ClusterState, episode: Episode) -> causes.CauseVerdict:
    """Why it happened, as far as is known."""
    return causes.verdict(facts_of(cluster, episode))


# -- the facts of one failover -----------------------------------------------------------------------------------------


def _facts_of_end(cluster: ClusterState, episode: Episode) -> DeathFacts | None:
    """What was observed of the end of the leader that this failover left. None: nothing says that it ended."""
    facts = _facts(cluster, episode, AFTER)
    if facts.says_ended:
        return facts
    if facts.lives or cause_of(cluster, episode).cause in _NOBODY_ENDED:
        return None
    late = _facts(cluster, episode, _AFTER_FULL_HEAP)
    return late if late.says_ended and late.fault and late.fault.heap else None


def _facts(cluster: ClusterState, episode: Episode, after: int) -> DeathFacts:
    """The facts about the leader that this failover left, observed up to `after` after the loss."""
    remembered, lost = cluster.ends, lost_leader(cluster, episode, after)
    pod, container = end_of_pod(remembered, lost)
    of_leader = process_of(remembered, lost)
    process = of_leader.end
    if process and container and abs(process.at.steady - container.at.steady) > ROUNDED:
        process = None  # of another process of the pod, or of the next one
    log = _log(remembered, lost, pod, container or process)
    logged = log.fault if log and log.fault != LogFault() else None
    name = pod.status.name if pod else name_of(cluster, lost.address)
    return DeathFacts(
        lost.opened,
        lost.address,
        name,
        in_pod=episode.facts.store is Store.KUBERNETES or name is not None,
        is_own_place=lost.is_own_place or of_leader.is_identified,
        lives=of_leader.running is not None and container is None,
        pod=pod,
        container=container,
        process=process,
        signs=tuple(sign for sign in remembered.signs if pod and sign.uid == pod.status.uid and lost.has(sign.at)),
        newcomers=_newcomers(remembered, pod) if pod else (),
        fault=(process and process.fault) or logged or (container.fault if container else None),
        is_started_again=log is not None and log.followed,
        reboot=_reboot(remembered, lost, unseen=episode.facts.unseen),
    )


def _log(remembered: Ends, lost: Lost, pod: KnownPod | None, end: Beside | ContainerEnded | None) -> LogRead | None:
    """The end of the leader's log: not of a process that took its place, and has ended since."""
    pid = end.end.pid if isinstance(end, KnownProcessEnd) else None
    if end:
        others: list[Beside | ContainerEnded] = [*(pod.ends if pod else ())]
        others += [process for process in remembered.processes if is_at(lost.address, process.hosts)]
        following = (other.at.steady for other in others if other.at.steady > end.at.steady + ROUNDED)
        lost = lost._replace(until=min(following, default=end.at.steady + AFTER))
    logs = (
        log
        for log in remembered.logs
        if lost.has(log.at)
        and (is_at(lost.address, log.hosts) if log.pod_uid is None else pod and log.pod_uid == pod.status.uid)
        and (log.pid is None or pid in {None, log.pid})
    )
    return nearest(logs, lost.opened)


def _reboot(remembered: Ends, lost: Lost, *, unseen: bool) -> Rebooted | None:
    earlier = _BOOTED - BEFORE if unseen else 0
    lost = lost._replace(since=lost.since - earlier, until=lost.until + AFTER)
    reboots = (each for each in remembered.reboots if lost.has(each.at) and is_at(lost.address, each.hosts))
    return nearest(reboots, lost.opened)


def _newcomers(remembered: Ends, pod: KnownPod) -> tuple[PodStatus, ...]:
    """The cluster's pods that were created when this one was deleted, the latest last."""
    if pod.deleted_at is None:
        return ()
    others = [other.status for uid, other in remembered.pods.items() if uid != pod.status.uid]
    created = [other for other in others if other.created_at and abs(other.created_at - pod.deleted_at.wall) <= AFTER]
    return tuple(sorted(created, key=lambda other: other.created_at or 0))


# -- the process of the leader that was lost ----------------------------------------------------------------------------


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
    port = port_of(lost.address)
    ended = [end for end in known.processes if lost.has(end.at) and is_at(lost.address, end.hosts)]
    if own := nearest((end for end in ended if port in end.end.ports), lost.opened):
        return LeaderProcess(own, is_identified=True)
    since = lost.opened.wall - (lost.opened.steady - lost.since)
    for other in known.running:  # one that has started since may have taken its port
        was_there = other.process.started_at <= since and is_at(lost.address, other.hosts)
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
    return port_of(address) in ports and is_at(address, hosts)


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
    port = host_port(address).rpartition(":")[2]
    return int(port) if port.isascii() and port.isdecimal() and len(port) <= 5 else None


def nearest(values: Iterable[_T], opened: Moment) -> _T | None:
    """The one nearest to the loss of the leader: a container may end again and again."""
    return min(values, key=lambda value: abs(value.at.steady - opened.steady), default=None)
