"""Why the process of a JobManager that lost its leadership ended: a verdict with the facts it rests on, beside the cause in the store.

Facts come up to some seconds after the loss, so the verdict is made anew whenever it is asked for, until it is recorded: once for each
failover, as soon as it is sure and the failover is over, else RECORDED_AFTER later.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from msgspec.structs import replace

from sidecar.core.cluster.death import ends
from sidecar.core.cluster.death.death_facts import DeathFacts
from sidecar.core.cluster.death.death_verdict import DeathReason, DeathVerdict, verdict
from sidecar.core.cluster.death.ends import Beside, ContainerEnded, Ends, KnownPod, LogRead
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
    at, hosts, known = observation.at, policy.own_hosts, ends.recent(cluster.ends, observation.at)
    match observation:
        case PodObserved(pod=pod, gone=gone):
            known = ends.with_pod(known, pod, at, gone=gone)
        case EventObserved(event=event):
            known = ends.with_event(known, event, at)
        case ProcessEnded(end=end):
            known = ends.with_process(known, end, hosts, at)
        case LogEndRead(log=log, pod_uid=pod_uid):
            known = ends.with_log(known, log, pod_uid, hosts, at)
        case HostRestarted(booted_at=booted_at):
            known = ends.with_reboot(known, booted_at, hosts, at)
    if known == cluster.ends:
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, at)
    draft.update(ends=known)
    failover_in_progress.consider_plans(draft)
    if is_due(draft.state, at):
        record(draft)
    return draft.outcome()


def death_of(cluster: ClusterState, episode: Episode) -> DeathVerdict | None:
    """Why the leader of before ended, as far as is known, of the failover in progress or the last one. None: nothing says that it did, or
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
    named = name_at(cluster.pods, address)
    pods = [pod.status.name for pod in ends.pods_at(cluster.ends, address) if pod.gone_at is None]
    return named or (pods[0] if len(pods) == 1 else None)


def is_due(cluster: ClusterState, now: Moment) -> bool:
    """Whether the last failover's death is to be recorded."""
    episode = cluster.last_episode
    if episode is None or episode.closed_at is None or episode.death or cluster.ends == ends.NOTHING:
        return False
    waited = now.steady - episode.closed_at.steady
    found = death_of(cluster, episode) if waited < ends.KEPT else None
    if found is None:
        return False
    # That nothing but a signal ended it is concluded from what was not observed, and that may still come.
    is_sure = found.confidence is Confidence.HIGH and found.reason is not DeathReason.KILLED
    return is_sure or waited >= RECORDED_AFTER


def record(draft: Draft) -> None:
    """Record why the leader of before ended in the last failover. It is not judged anew afterwards."""
    episode = draft.state.last_episode
    if episode and episode.death is None and (found := death_of(draft.state, episode)):
        draft.happened.append(draft.writer.death(episode.id, found))
        draft.update(last_episode=replace(episode, death=found))


# -- the facts of one failover -----------------------------------------------------------------------------------------


def _facts(cluster: ClusterState, episode: Episode, after: int) -> DeathFacts:
    """What was observed of the leader that this failover left, up to so long after that."""
    known, address = cluster.ends, episode.before.address
    since = episode.opened_at.steady - _BEFORE
    last = cluster.last_episode
    if last and last.id != episode.id:  # what ended before this leader led is not its end
        since = max(since, last.moved_at.steady)
    until = episode.opened_at.steady + after
    opened, booted = episode.opened_at, _BOOTED - _BEFORE if episode.facts.unseen else 0
    pod, container = _pod(known, address, opened, since, until)
    process = _nearest(_beside(known.processes, address, since, until), opened)
    if process and container and abs(process.at.steady - container.at.steady) > _ROUNDED:
        process = None  # of another process of the pod, or of the next one
    log = _log(known, address, pod, container or process, opened, since, until)
    fault = log.fault if log and log.fault != ends.LogFault() else container.fault if container else None
    in_kubernetes = episode.facts.store is Store.KUBERNETES
    name = pod.status.name if pod else name_of(cluster, address)
    return DeathFacts(
        opened,
        address,
        name,
        in_pod=in_kubernetes or name is not None,
        is_own_place=is_own_host(address, in_kubernetes=in_kubernetes),
        pod=pod,
        container=container,
        process=process,
        signs=tuple(
            sign for sign in known.signs if pod and sign.uid == pod.status.uid and since <= sign.at.steady <= until
        ),
        newcomers=_newcomers(known, pod) if pod else (),
        fault=fault,
        is_started_again=log is not None and log.followed,
        reboot=_nearest(_beside(known.reboots, address, since - booted, until + _AFTER), opened),
    )


def _log(
    known: Ends,
    address: str,
    pod: KnownPod | None,
    end: Beside | ContainerEnded | None,
    opened: Moment,
    since: int,
    until: int,
) -> LogRead | None:
    """The end of the leader's log: not of a process that took its place, and has ended since."""
    if end:
        others: list[Beside | ContainerEnded] = [*(pod.ends if pod else ())]
        others += [process for process in known.processes if ends.is_at(address, process.hosts)]
        following = (other.at.steady for other in others if other.at.steady > end.at.steady + _ROUNDED)
        until = min(following, default=end.at.steady + _AFTER)
    logs = (
        log
        for log in known.logs
        if since <= log.at.steady <= until
        and (ends.is_at(address, log.hosts) if log.pod_uid is None else pod and log.pod_uid == pod.status.uid)
    )
    return _nearest(logs, opened)


def _pod(
    known: Ends, address: str, opened: Moment, since: int, until: int
) -> tuple[KnownPod | None, ContainerEnded | None]:
    """The leader's pod and the end of its container. Several pods may have had the address: then the one that ended."""
    found = [
        (pod, _nearest((end for end in pod.ends if since <= end.at.steady <= until), opened))
        for pod in ends.pods_at(known, address)
        if pod.gone_at is None or pod.gone_at.steady >= since
    ]
    if len(found) > 1:
        found = [
            (pod, end) for pod, end in found if end or pod.deleted_at or pod.gone_at or pod.status.phase == "Failed"
        ]
    return found[0] if len(found) == 1 else (None, None)


def _beside(values: Iterable[_B], address: str, since: int, until: int) -> Iterator[_B]:
    """Those of a sidecar at the leader's address."""
    return (each for each in values if since <= each.at.steady <= until and ends.is_at(address, each.hosts))


def _nearest(values: Iterable[_T], opened: Moment) -> _T | None:
    """The one nearest to the loss of the leader: a container may end again and again."""
    return min(values, key=lambda each: abs(each.at.steady - opened.steady), default=None)


def _newcomers(known: Ends, pod: KnownPod) -> tuple[PodStatus, ...]:
    """The cluster's pods that were created when this one was deleted, the latest last."""
    if pod.deleted_at is None:
        return ()
    others = [other.status for uid, other in known.pods.items() if uid != pod.status.uid]
    created = [other for other in others if other.created_at is not None and _is_near(other.created_at, pod.deleted_at)]
    return tuple(sorted(created, key=lambda other: other.created_at or 0))


def _is_near(created_at: int, deleted_at: Moment) -> bool:
    return abs(created_at - deleted_at.wall) <= _AFTER
