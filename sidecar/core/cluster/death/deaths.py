"""Why the process of a JobManager that lost its leadership ended: a verdict with the facts it rests on, beside the cause in the store.

Facts come up to some seconds after the loss, so the verdict is made anew whenever it is asked for, until it is recorded: once for each
failover, as soon as it is sure and the failover is over, else RECORDED_AFTER later.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from sidecar.core.cluster.death import ends
from sidecar.core.cluster.death.death_facts import DeathFacts
from sidecar.core.cluster.death.death_verdict import DeathReason, DeathVerdict, verdict
from sidecar.core.cluster.death.ends import Beside, ContainerEnded, Ends, KnownPod, LogFault, LogRead, Rebooted
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.cluster.failover import failover_in_progress
from sidecar.core.cluster.failover.causes import Cause, Confidence
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.failover.failover_in_progress import cause_of
from sidecar.core.cluster.state import ClusterState
from sidecar.core.flink.leadership import is_own_host
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    EndObservation,
    EventObserved,
    HostRestarted,
    LogEndRead,
    PodObserved,
    ProcessEnded,
)
from sidecar.core.pods import name_at
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.process_end import PodStatus

RECORDED_AFTER: Final = 20 * SECOND
"""How long after the end of a failover facts are waited for."""
_BEFORE: Final = 180 * SECOND
"""How long before the loss of its leadership a JobManager may have ended: Flink's session timeout, or its lease."""
_BOOTED: Final = 600 * SECOND
"""The same for a machine that had to start again first, if the loss was not observed."""
_AFTER: Final = 60 * SECOND
"""How long afterwards: it shuts down, and a node is not heard of for a while."""
_AFTER_FULL_HEAP: Final = 240 * SECOND
"""The same for one whose heap is full: it loses its leadership long before Flink's error handler can end it (102 s were measured)."""

_ROUNDED: Final = 5 * SECOND
"""By how much the kubelet's time of an end may differ from the kernel's."""
_NOBODY_ENDED: Final = frozenset(
    {
        *(Cause.SAME_PROCESS_REELECTION, Cause.STORE_OUTAGE, Cause.STORE_REELECTION, Cause.LEASE_RENEWAL_FAILED),
        *(Cause.REWRITTEN_BY_FLINK, Cause.SPLIT_LEADERSHIP, Cause.OBSERVER_BLIND),
    }
)
"""Causes that do without the end of a process."""
_B = TypeVar("_B", bound=Beside)
_T = TypeVar("_T", bound=Beside | ContainerEnded)


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: EndObservation) -> ClusterStep:
    """The cluster after `observation`, and what is to be recorded of it."""
    at, hosts, recent = observation.at, policy.own_hosts, ends.recent(cluster.ends, observation.at)
    match observation:
        case PodObserved(pod=pod, gone=gone):
            recent = ends.with_pod(recent, pod, at, gone=gone)
        case EventObserved(event=event):
            recent = ends.with_event(recent, event, at)
        case ProcessEnded(end=end):
            recent = ends.with_process(recent, end, hosts, at)
        case LogEndRead(log=log, pod_uid=pod_uid):
            recent = ends.with_log(recent, log, pod_uid, hosts, at)
        case HostRestarted(booted_at=booted_at):
            recent = ends.with_reboot(recent, booted_at, hosts, at)
    if recent == cluster.ends:
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, at)
    draft.update(ends=recent)
    failover_in_progress.consider_plans(draft)
    if is_due(draft.state, at):
        record(draft)
    return draft.outcome()


def death_of(cluster: ClusterState, episode: Episode) -> DeathVerdict | None:
    """Why the previous leader ended, as far as is known, of the failover in progress or the last one. None: nothing says that it did, or
    nothing that could say it was ever observed.
    """
    if episode.death or cluster.ends == ends.NOTHING:
        return episode.death
    facts = _facts(cluster, episode, _AFTER)
    if facts.says_ended:
        return verdict(facts)
    if cause_of(cluster, episode).cause in _NOBODY_ENDED:
        return None
    late = _facts(cluster, episode, _AFTER_FULL_HEAP)
    if late.says_ended and late.fault and late.fault.heap:
        return verdict(late)
    return None if facts.is_shown_running else verdict(facts)


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
    death = death_of(cluster, episode) if waited < ends.KEPT else None
    if death is None:
        return False
    # That nothing but a signal ended it is concluded from what was not observed, and that may still come.
    is_sure = death.confidence is Confidence.HIGH and death.reason not in {DeathReason.KILLED, DeathReason.STOPPED}
    return is_sure or waited >= RECORDED_AFTER


def record(draft: Draft) -> None:
    """Record why the previous leader ended in the last failover. It is not judged anew afterwards."""
    episode = draft.state.last_episode
    if episode and episode.death is None and (death := death_of(draft.state, episode)):
        draft.happened.append(draft.writer.death(episode.id, death))
        draft.update(last_episode=replace(episode, death=death))


# -- the facts of one failover -----------------------------------------------------------------------------------------


class _Lost(NamedTuple):
    """The leader that a failover left, and when (steady) it may have ended."""

    address: str
    opened: Moment
    since: int
    until: int

    def has(self, at: Moment) -> bool:
        """Whether it may have ended then."""
        return self.since <= at.steady <= self.until


def _lost(cluster: ClusterState, episode: Episode, after: int) -> _Lost:
    since, last = episode.opened_at.steady - _BEFORE, cluster.last_episode
    if last and last.id != episode.id:  # what ended before this leader led is not its end
        since = max(since, last.moved_at.steady)
    return _Lost(episode.before.address, episode.opened_at, since, episode.opened_at.steady + after)


def _facts(cluster: ClusterState, episode: Episode, after: int) -> DeathFacts:
    """What was observed of the leader that this failover left, up to so long after that."""
    remembered, lost = cluster.ends, _lost(cluster, episode, after)
    pod, container = _pod(remembered, lost)
    process = _nearest(_at_leader(remembered.processes, lost), lost.opened)
    if process and container and abs(process.at.steady - container.at.steady) > _ROUNDED:
        process = None  # of another process of the pod, or of the next one
    log = _log(remembered, lost, pod, container or process)
    in_kubernetes = episode.facts.store is Store.KUBERNETES
    name = pod.status.name if pod else name_of(cluster, lost.address)
    return DeathFacts(
        lost.opened,
        lost.address,
        name,
        in_pod=in_kubernetes or name is not None,
        is_own_place=is_own_host(lost.address, in_kubernetes=in_kubernetes),
        pod=pod,
        container=container,
        process=process,
        signs=tuple(sign for sign in remembered.signs if pod and sign.uid == pod.status.uid and lost.has(sign.at)),
        newcomers=_newcomers(remembered, pod) if pod else (),
        fault=_fault(log, container),
        is_started_again=log is not None and log.followed,
        reboot=_reboot(remembered, lost, unseen=episode.facts.unseen),
    )


def _log(remembered: Ends, lost: _Lost, pod: KnownPod | None, end: Beside | ContainerEnded | None) -> LogRead | None:
    """The end of the leader's log: not of a process that took its place, and has ended since."""
    if end:
        others: list[Beside | ContainerEnded] = [*(pod.ends if pod else ())]
        others += [process for process in remembered.processes if ends.is_at(lost.address, process.hosts)]
        following = (other.at.steady for other in others if other.at.steady > end.at.steady + _ROUNDED)
        lost = lost._replace(until=min(following, default=end.at.steady + _AFTER))
    logs = (
        log
        for log in remembered.logs
        if lost.has(log.at)
        and (ends.is_at(lost.address, log.hosts) if log.pod_uid is None else pod and log.pod_uid == pod.status.uid)
    )
    return _nearest(logs, lost.opened)


def _fault(log: LogRead | None, container: ContainerEnded | None) -> LogFault | None:
    """The first error of its log, or of its termination message."""
    if log and log.fault != LogFault():
        return log.fault
    return container.fault if container else None


def _reboot(remembered: Ends, lost: _Lost, *, unseen: bool) -> Rebooted | None:
    earlier = _BOOTED - _BEFORE if unseen else 0
    lost = lost._replace(since=lost.since - earlier, until=lost.until + _AFTER)
    return _nearest(_at_leader(remembered.reboots, lost), lost.opened)


def _pod(remembered: Ends, lost: _Lost) -> tuple[KnownPod | None, ContainerEnded | None]:
    """The leader's pod and the end of its container. Several pods may have had the address: then the one that ended."""
    pods = [
        (pod, _nearest((end for end in pod.ends if lost.has(end.at)), lost.opened))
        for pod in ends.pods_at(remembered, lost.address)
        if pod.gone_at is None or pod.gone_at.steady >= lost.since
    ]
    if len(pods) > 1:
        pods = [(pod, end) for pod, end in pods if end or pod.deleted_at or pod.gone_at or pod.status.phase == "Failed"]
    return pods[0] if len(pods) == 1 else (None, None)


def _at_leader(values: Iterable[_B], lost: _Lost) -> Iterator[_B]:
    """Those of a sidecar at the leader's address."""
    return (value for value in values if lost.has(value.at) and ends.is_at(lost.address, value.hosts))


def _nearest(values: Iterable[_T], opened: Moment) -> _T | None:
    """The one nearest to the loss of the leader: a container may end again and again."""
    return min(values, key=lambda value: abs(value.at.steady - opened.steady), default=None)


def _newcomers(remembered: Ends, pod: KnownPod) -> tuple[PodStatus, ...]:
    """The cluster's pods that were created when this one was deleted, the latest last."""
    if pod.deleted_at is None:
        return ()
    others = [other.status for uid, other in remembered.pods.items() if uid != pod.status.uid]
    created = [other for other in others if other.created_at is not None and _is_near(other.created_at, pod.deleted_at)]
    return tuple(sorted(created, key=lambda other: other.created_at or 0))


def _is_near(created_at: int, deleted_at: Moment) -> bool:
    return abs(created_at - deleted_at.wall) <= _AFTER
