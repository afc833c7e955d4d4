"""The meaning of each cause in one clause, and the next step for each cause, trigger and status of a cluster: first the remedy, then how to
find the cause. docs/how-to/troubleshooting.md has a section for each cause and each trigger.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from sidecar.core.cluster.cluster_state import ClusterState, contending
from sidecar.core.cluster.record_lines import ENDINGS
from sidecar.core.cluster.status import Status
from sidecar.core.failover.causes import Cause
from sidecar.core.failover.death_verdict import DeathReason
from sidecar.core.failover.deaths import cause_of, death_of, name_of
from sidecar.core.failover.recovery_state import Fault
from sidecar.core.flink.leadership import Vacant
from sidecar.core.pods import process
from sidecar.core.policy.triggers import TRIGGERS, Trigger

_LOST: Final = "was lost"
_LEADERSHIP: Final = "lost its leadership"
_REPLACED: Final = ENDINGS["replaced"]


class CauseAdvice(NamedTuple):
    """`because`: a clause, with the previous leader as `{before}`; empty: nothing is known. `next`: one sentence. `ending`: what the
    previous leader did, as in ENDINGS.
    """

    because: str
    next: str
    ending: str = _LOST


CAUSES: Final = {
    Cause.JOBMANAGER_LOST: CauseAdvice(
        "JobManager {before} was lost", "Find out how {before} ended: exit code, OOM kill, node, last lines of its log."
    ),
    Cause.GRACEFUL_HANDOVER: CauseAdvice(
        "JobManager {before} shut down cleanly",
        "Find out who stopped {before}; nothing has to be repaired.",
        "shut down cleanly",
    ),
    Cause.RESTARTED_IN_PLACE: CauseAdvice(
        "JobManager {before} restarted at the same address",
        "Find out why {before} restarted: exit code, OOM kill, liveness probe.",
        "restarted",
    ),
    Cause.SAME_PROCESS_REELECTION: CauseAdvice(
        "JobManager {before} lost its connection to the store and was elected again",
        "Check {before} for long garbage collections, and its network to the store.",
        _LEADERSHIP,
    ),
    Cause.STORE_OUTAGE: CauseAdvice(
        "the store was unavailable", "Check the store: ZooKeeper's servers, or the API server.", _LEADERSHIP
    ),
    Cause.STORE_REELECTION: CauseAdvice(
        "ZooKeeper elected a leader of its own", "Check ZooKeeper's log for the reason of its election.", _LEADERSHIP
    ),
    Cause.LEASE_RENEWAL_FAILED: CauseAdvice(
        "JobManager {before} did not renew its lease in time",
        "Check {before} for long garbage collections and CPU throttling, and the latency of the API server.",
        _LEADERSHIP,
    ),
    Cause.SPLIT_LEADERSHIP: CauseAdvice(
        "two JobManagers took turns as leader", "Stop one of the two JobManagers: it does not settle by itself."
    ),
    Cause.REWRITTEN_BY_FLINK: CauseAdvice(
        "the leader's address was deleted, and the leader wrote it again",
        "Find out who deleted the address: it was not an election.",
        _LEADERSHIP,
    ),
    Cause.TAMPERED: CauseAdvice(
        "something other than a JobManager wrote or deleted leader data",
        "Find out who writes to Flink's paths in the store, and stop it.",
    ),
    Cause.CLUSTER_REMOVED: CauseAdvice("the cluster was removed", "Nothing, if the cluster was removed on purpose."),
    Cause.OBSERVER_BLIND: CauseAdvice(
        "only this observer was disconnected",
        "Check this sidecar's own connection to the store; nothing happened to Flink.",
    ),
    Cause.ROLLING_UPGRADE: CauseAdvice("Flink is being upgraded", "Nothing, if the upgrade was planned.", _REPLACED),
    Cause.PLANNED_UPGRADE: CauseAdvice(
        "another spec is being deployed",
        "Wait for the rollout to finish; if it does not, look at the status of the FlinkDeployment, Deployment or StatefulSet.",
        _REPLACED,
    ),
    Cause.ROLLBACK: CauseAdvice(
        "the operator rolled back to the last stable spec",
        "Find out why the new spec failed: see the FlinkDeployment's status and events.",
        _REPLACED,
    ),
    Cause.NODE_DRAIN: CauseAdvice(
        "the pod of {before} was drained from its node",
        "Check that the next JobManager pod can be scheduled.",
        ENDINGS["drained"],
    ),
    Cause.OPERATOR_RESTART: CauseAdvice(
        "the operator restarted the cluster",
        "Read the operator's event, and the log of the job before the restart.",
        "was restarted by the operator",
    ),
    Cause.UNKNOWN: CauseAdvice(
        "", "Read the facts and the transitions of the failover, and the logs of both JobManagers."
    ),
}

DEATHS: Final[Mapping[str, str]] = {
    DeathReason.OOM_KILLED: "Raise the JobManager's memory limit, or lower what it uses beside its Java heap.",
    DeathReason.HEAP_EXHAUSTED: "Give the JobManager a larger Java heap (jobmanager.memory.heap.size), or find what fills it.",
    DeathReason.KILLED: "Find out who sends signals to {before}: another person, a script, or the machine.",
    DeathReason.STOPPED: "If nobody meant to stop {before}, find out what did: it was asked to end (SIGTERM).",
    DeathReason.EXITED: "Read the first error at the end of its log.",
    DeathReason.EVICTED: "Check the memory and the disk of its node, and the requests and limits of its pod.",
    DeathReason.LIVENESS_PROBE: (
        "Find out why {before} did not answer its liveness probe: long garbage collections, CPU throttling, a strict probe."
    ),
    DeathReason.DRAINED: "Check that the next JobManager pod can be scheduled.",
    DeathReason.PREEMPTED: "Give the JobManager's pods a higher priority (priorityClassName).",
    DeathReason.NODE_LOST: "Check the node of {before}.",
    DeathReason.REPLACED: "Nothing, if the change was planned.",
    DeathReason.DELETED: "Find out who deleted the pod {before}; nothing has to be repaired.",
    DeathReason.DISK_FULL: "Free the disk of its log, its working and its temporary folder.",
    DeathReason.REBOOTED: "Find out why its machine was restarted.",
}
"""The next step, in one sentence, by the reason why the process ended."""
_LEFT_OPEN: Final = frozenset({Cause.JOBMANAGER_LOST, Cause.GRACEFUL_HANDOVER, Cause.RESTARTED_IN_PLACE, Cause.UNKNOWN})
"""Causes that do not say why the process ended."""


def anchor(trigger: Trigger) -> str:
    """The section of docs/how-to/troubleshooting.md about alerts of this trigger."""
    return (TRIGGERS[trigger].shipped or trigger.value).lower()


def explains(death: str | None, cause: Cause) -> bool:
    """Whether the reason of a process's death says more than the cause in the store."""
    return death in DEATHS and cause in _LEFT_OPEN


def because(cause: Cause, before: str, death: str | None = None) -> str:
    """The clause of a cause, or of the death that explains it, with the previous leader's name; empty: nothing is known."""
    if death and explains(death, cause):
        return f"JobManager {before} {ENDINGS[death]}"
    return CAUSES[cause].because.format(before=before)


def ending(cause: Cause, death: str | None = None) -> str:
    """How the previous leader ended, as a clause: `was killed`. `death`: why its process ended, if that is known."""
    return CAUSES[cause].ending if death in {None, DeathReason.UNKNOWN} else ENDINGS[death]


def step_for_cause(cause: Cause, before: str, death: str | None = None) -> str:
    """The next step, in one sentence. `death`: why the process of `before` ended."""
    step = DEATHS[death] if death and explains(death, cause) else CAUSES[cause].next
    return step.format(before=before)


class NextStep(NamedTuple):
    """A recommendation in a sentence or two, and the section of docs/how-to/troubleshooting.md about it."""

    text: str
    topic: str


NO_WORKERS: Final = "No TaskManager is registered: look at their pods or processes, and start them."
_TRIGGERS: Final = {
    Status.DOWN: Trigger.VACANT,
    Status.SPLIT: Trigger.SPLIT,
    Status.NOT_RUNNING: Trigger.NOT_RECOVERED,
    Status.SILENT: Trigger.LEADER_SILENT,
    Status.BLIND: Trigger.BLIND,
}


def next_step(cluster: ClusterState, status: Status) -> NextStep | None:
    """The recommendation for this status of the cluster. None: there is nothing to do."""
    match status:
        case Status.DOWN if (first := _first_step(cluster)) is not None:
            return _with_cause(cluster, first)
        case Status.LOST:
            return _trigger_step(_lost(cluster))
        case Status.NOT_RUNNING if (now := cluster.picture_now or cluster.picture) and now.task_managers == ():
            return NextStep(NO_WORKERS, anchor(Trigger.NOT_RECOVERED))
        case Status.DEGRADED:
            return _trigger_step(Trigger.NO_STANDBY if cluster.standby.alone_since else Trigger.RESTORED_FROM_OLDER)
        case Status.BLIND if not cluster.ever_led and cluster.missing is None and cluster.refused is None:
            return _trigger_step(Trigger.BLIND) if cluster.view.loss or cluster.view.complete else None
    return _trigger_step(_TRIGGERS[status]) if status in _TRIGGERS else None


def _trigger_step(trigger: Trigger) -> NextStep:
    return NextStep(TRIGGERS[trigger].next, anchor(trigger))


def _lost(cluster: ClusterState) -> Trigger:
    faults = {fault.fault for fault in cluster.job_faults.values()}
    if faults:
        return Trigger.JOB_RESURRECTED if faults == {Fault.RESURRECTED} else Trigger.JOB_MISSING
    return Trigger.RESTORED_FROM_NOTHING


def _first_step(cluster: ClusterState) -> str | None:
    """The first remedy while the cluster has no leader, before the cause is examined. None: only jobs have none."""
    if not any(isinstance(state.leadership, Vacant) for state in cluster.own.values()):
        return None
    number = contending(cluster.contenders)
    if number is None:
        return "Check whether a JobManager runs and can reach the store; start one if none does."
    if number == 0:
        return "No JobManager contends: start one."
    return (
        f"{number} JobManager{' contends' if number == 1 else 's contend'}: if none leads within a minute, restart one."
    )


def _with_cause(cluster: ClusterState, first: str) -> NextStep:
    """A recommendation with the remedy first, and then how to find the cause."""
    episode = cluster.episode
    if episode is None:
        return NextStep(first, anchor(Trigger.VACANT))
    cause, death, left = cause_of(cluster, episode).cause, death_of(cluster, episode), episode.before.address
    reason = death.reason if death else None
    if cause is Cause.UNKNOWN and not explains(reason, cause):
        return NextStep(first, anchor(Trigger.VACANT))
    then = step_for_cause(cause, process(left, name_of(cluster, left)), reason)
    return NextStep(f"{first} Then: {then}", cause.value)
