"""The next step for each status of a cluster: first the remedy, then how to find the cause."""

from typing import Final, NamedTuple

from sidecar.core.cluster import advice
from sidecar.core.cluster.death.deaths import death_of, name_of
from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.cluster.failover.failover_in_progress import cause_of
from sidecar.core.cluster.recovery.recovery_state import Fault
from sidecar.core.cluster.state import ClusterState, contending
from sidecar.core.cluster.status import Status
from sidecar.core.flink.leadership import Vacant
from sidecar.core.pods import process
from sidecar.core.policy.policy import Trigger


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
        case Status.NOT_RUNNING if _has_no_workers(cluster):
            return NextStep(NO_WORKERS, advice.anchor(Trigger.NOT_RECOVERED))
        case Status.DEGRADED:
            return _trigger_step(Trigger.NO_STANDBY if cluster.standby.alone_since else Trigger.RESTORED_FROM_OLDER)
        case Status.BLIND if not cluster.ever_led and cluster.missing is None and cluster.refused is None:
            return _trigger_step(Trigger.BLIND) if cluster.view.loss or cluster.view.complete else None
    return _trigger_step(_TRIGGERS[status]) if status in _TRIGGERS else None


def _trigger_step(trigger: Trigger) -> NextStep:
    return NextStep(advice.TRIGGERS[trigger], advice.anchor(trigger))


def _lost(cluster: ClusterState) -> Trigger:
    faults = {fault.fault for fault in cluster.job_faults.values()}
    if faults:
        return Trigger.JOB_RESURRECTED if faults == {Fault.RESURRECTED} else Trigger.JOB_MISSING
    return Trigger.RESTORED_FROM_NOTHING


def _has_no_workers(cluster: ClusterState) -> bool:
    picture = cluster.picture_now or cluster.picture
    return picture is not None and picture.task_managers == ()


def _first_step(cluster: ClusterState) -> str | None:
    """The first remedy while the cluster has no leader, before the cause is examined. None: only jobs have none."""
    own = (state for component, state in cluster.components.items() if not component.job_id)
    if not any(isinstance(state.leadership, Vacant) for state in own):
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
        return NextStep(first, advice.anchor(Trigger.VACANT))
    cause, death, left = cause_of(cluster, episode).cause, death_of(cluster, episode), episode.before.address
    reason = death.reason if death else None
    if cause is Cause.UNKNOWN and not advice.explains(reason, cause):
        return NextStep(first, advice.anchor(Trigger.VACANT))
    then = advice.next_step(cause, process(left, name_of(cluster, left)), reason)
    return NextStep(f"{first} Then: {then}", cause.value)
