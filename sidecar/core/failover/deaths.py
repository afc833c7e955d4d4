"""Why the process of a JobManager that lost its leadership ended: a verdict with the facts it rests on, beside the cause in the store.

Facts come up to some seconds after the loss, so the verdict is made anew whenever it is asked for, until it is recorded: once for each
failover, as soon as it is sure and the failover is over, else RECORDED_AFTER later.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.failover import ends, failover_in_progress
from sidecar.core.failover.causes import Cause, Confidence
from sidecar.core.failover.death_facts import DeathFacts
from sidecar.core.failover.death_verdict import DeathReason, DeathVerdict, verdict
from sidecar.core.failover.ends import (
    Beside,
    ContainerEnded,
    Ends,
    KnownPod,
    KnownProcessEnd,
    LogFault,
    LogRead,
    Rebooted,
)
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.failover_in_progress import cause_of
from sidecar.core.failover.leader_process import (
    AFTER,
    BEFORE,
    ROUNDED,
    Lost,
    end_of_pod,
    lost_leader,
    nearest,
    process_of,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import (
    EndObservation,
    EventObserved,
    HostRestarted,
    LogEndRead,
    PodObserved,
    ProcessEnded,
    ProcessSeen,
)
from sidecar.core.pods import name_at
from sidecar.core.policy.policy import Policy, Store
from sidecar.core.process_end import PodStatus

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


def observe(policy: Policy, cluster_id: str, cluster: ClusterState, observation: EndObservation) -> ClusterStep:
    """The cluster after `observation`, and what is to be recorded of it."""
    at, hosts, recent = observation.at, policy.own_hosts, ends.recent(cluster.ends, observation.at)
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
    if recent == cluster.ends:
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, at)
    draft.update(ends=recent)
    failover_in_progress.consider_plans(draft)
    if is_due(draft.state, at):
        record(draft)
    return draft.outcome()


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
        fault=(process and process.fault) or _fault(log, container),
        is_started_again=log is not None and log.followed,
        reboot=_reboot(remembered, lost, unseen=episode.facts.unseen),
    )


def _log(remembered: Ends, lost: Lost, pod: KnownPod | None, end: Beside | ContainerEnded | None) -> LogRead | None:
    """The end of the leader's log: not of a process that took its place, and has ended since."""
    pid = end.end.pid if isinstance(end, KnownProcessEnd) else None
    if end:
        others: list[Beside | ContainerEnded] = [*(pod.ends if pod else ())]
        others += [process for process in remembered.processes if ends.is_at(lost.address, process.hosts)]
        following = (other.at.steady for other in others if other.at.steady > end.at.steady + ROUNDED)
        lost = lost._replace(until=min(following, default=end.at.steady + AFTER))
    logs = (
        log
        for log in remembered.logs
        if lost.has(log.at)
        and (ends.is_at(lost.address, log.hosts) if log.pod_uid is None else pod and log.pod_uid == pod.status.uid)
        and (log.pid is None or pid in {None, log.pid})
    )
    return nearest(logs, lost.opened)


def _fault(log: LogRead | None, container: ContainerEnded | None) -> LogFault | None:
    """The first error of its log, or of its termination message."""
    if log and log.fault != LogFault():
        return log.fault
    return container.fault if container else None


def _reboot(remembered: Ends, lost: Lost, *, unseen: bool) -> Rebooted | None:
    earlier = _BOOTED - BEFORE if unseen else 0
    lost = lost._replace(since=lost.since - earlier, until=lost.until + AFTER)
    reboots = (each for each in remembered.reboots if lost.has(each.at) and ends.is_at(lost.address, each.hosts))
    return nearest(reboots, lost.opened)


def _newcomers(remembered: Ends, pod: KnownPod) -> tuple[PodStatus, ...]:
    """The cluster's pods that were created when this one was deleted, the latest last."""
    if pod.deleted_at is None:
        return ()
    others = [other.status for uid, other in remembered.pods.items() if uid != pod.status.uid]
    created = [other for other in others if other.created_at is not None and _is_near(other.created_at, pod.deleted_at)]
    return tuple(sorted(created, key=lambda other: other.created_at or 0))


def _is_near(created_at: int, deleted_at: Moment) -> bool:
    return abs(created_at - deleted_at.wall) <= AFTER
