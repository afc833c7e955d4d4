"""The recently observed ends of a cluster's JobManagers: bounded, and forgotten after some minutes.

Free text, which others can write, is classified when it is observed, and kept for people alone: no verdict needs it afterwards. None of it
is handed over: the next sidecar reads pods and Events again, and what it does not find is not known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.first_fault import log_end
from sidecar.core.masking import masked
from sidecar.core.moment import SECOND, Moment, lag, moment_of
from sidecar.core.pods import is_pod_at
from sidecar.core.process_end import ContainerEnd, LogEnd, PodStatus, ProcessEnd, RunningProcess, SeenEvent
from sidecar.core.sanitize import clean

KEPT: Final = 600 * SECOND
"""How long an observed end is remembered."""
RESTARTED: Final = (60 * SECOND, 10 * SECOND)
"""How long before the loss of a leader the operator may report a restart of the cluster, and how long after the loss."""
MOST_PODS: Final = 16
MOST_SIGNS: Final = 32
MOST_ENDS: Final = 4
"""The most ends remembered of one pod, and the most of processes, logs, machine restarts and operator restarts."""
MOST_RUNNING: Final = 20
"""JobManagers of one cluster on one machine."""
MOST_HOSTS: Final = 8
"""Names and addresses of one machine."""
_LONGEST: Final = 300
UNKNOWN_END: Final = "ContainerStatusUnknown"
"""The kubelet's reason, with exit code 137 and without a time, for a container of which it knows nothing any more."""

_HEAP: Final = re.compile(r"OutOfMemoryError: (Java heap space|GC overhead limit exceeded)")
_NO_SPACE: Final = "No space left on device"


class Sign(StrEnum):
    """What an Event reports about a pod."""

    LIVENESS_PROBE = "liveness_probe"
    STARTUP_PROBE = "startup_probe"
    STOPPING = "stopping"
    """The kubelet stops it because it is deleted."""
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_NOT_READY = "node_not_ready"
    TAINTED = "tainted"
    """The pod is deleted because of a taint of its node."""
    PULLED = "pulled"
    CREATED = "created"
    STARTED = "started"
    BACK_OFF = "back_off"
    """Like PULLED, CREATED and STARTED: the kubelet starts a container of the pod. No end, but proof that Events of that time are
    recorded."""
    NONE = "none"
    """Nothing of all that."""


class OperatorReason(StrEnum):
    """Events of Flink's Kubernetes operator about a FlinkDeployment that it is about to restart, or has found without JobManagers."""

    RESTART_UNHEALTHY_JOB = "RestartUnhealthyJob"
    RECOVER_DEPLOYMENT = "RecoverDeployment"
    MISSING = "Missing"
    JOB_EXCEPTION = "JobException"
    ROLLBACK = "Rollback"


_BY_REASON: Final = {
    "Evicted": Sign.EVICTED,
    "Preempted": Sign.PREEMPTED,
    "Preempting": Sign.PREEMPTED,
    "NodeNotReady": Sign.NODE_NOT_READY,
    "TaintManagerEviction": Sign.TAINTED,
    "Pulled": Sign.PULLED,
    "Created": Sign.CREATED,
    "Started": Sign.STARTED,
    "BackOff": Sign.BACK_OFF,
}
STARTS: Final = frozenset({Sign.PULLED, Sign.CREATED, Sign.STARTED, Sign.BACK_OFF})


class LogFault(Struct, frozen=True):
    """The first error at the end of a log."""

    text: str | None = None
    """The fault, for people. None: not known."""
    age: int | None = None
    """How much later the log ends than the fault (microseconds). None: not known."""
    heap: bool = False
    """The Java heap is exhausted."""
    no_space: bool = False
    """A disk is full."""


class ContainerEnded(Struct, frozen=True):
    """The end of a main container."""

    at: Moment
    """When the container ended: by the kubelet in whole seconds, or else when it was observed."""
    exit_code: int
    reason: str
    limit_bytes: int | None = None
    """The memory limit that was in force."""
    fault: LogFault | None = None
    """The fault that its termination message names."""
    seen_at: int | None = None
    """When the end was first observed (wall microseconds). None: not known."""


class KnownPod(Struct, frozen=True):
    """A JobManager's pod, as it was last observed."""

    at: Moment
    status: PodStatus
    """The pod's status without its last end."""
    ends: tuple[ContainerEnded, ...] = ()
    """The latest ones, oldest first."""
    deleted_at: Moment | None = None
    """When the pod's deletion was requested; without a grace period, when that was observed. None: it was not requested."""
    gone_at: Moment | None = None
    failed_at: Moment | None = None
    """When the pod was first observed as failed."""


class PodSign(Struct, frozen=True):
    """An Event about a pod."""

    at: Moment
    uid: str
    sign: Sign
    text: str = ""
    """The text of the Event, for people."""

    @property
    def identity(self) -> object:
        """The key that recognises an Event when it is observed again: its steady time is derived from ours, and drifts. Of starts only the
        last one of each kind counts."""
        return (self.uid, self.sign) if self.sign in STARTS else (self.uid, self.sign, self.at.wall)


class OperatorEvent(Struct, frozen=True):
    """An Event about the cluster's FlinkDeployment."""

    at: Moment
    reason: OperatorReason
    text: str = ""

    @property
    def identity(self) -> object:
        return self.reason, self.at.wall


class Restart(Struct, frozen=True):
    """The operator's report of a restart near the loss of a leader."""

    reason: OperatorReason
    after: int
    """How long after the loss it was reported (microseconds). Negative: before the loss."""
    text: str = ""

    def __str__(self) -> str:
        said = f": {clean(self.text).removesuffix('.')}" if self.text else ""
        return f"The operator's Event {self.reason}, {lag(self.after)}{said}."


class Beside(Struct, frozen=True):
    """An observation of a sidecar about the JobManager beside it."""

    at: Moment
    hosts: tuple[str, ...]
    """The names and addresses of that sidecar's pod or machine."""

    @property
    def identity(self) -> object:
        return self.hosts, self.at.wall


class KnownProcessEnd(Beside, frozen=True):
    end: ProcessEnd
    fault: LogFault | None = None
    """The reason that the JVM itself gave."""


class KnownProcess(Beside, frozen=True):
    """A process that runs, since `at` as it is now."""

    process: RunningProcess
    stood_still: tuple[Moment, Moment | None] | None = None
    """When the process was last stopped, and when it continued. None: not known to have been stopped."""


class LogRead(Beside, frozen=True):
    """`pod_uid`: of which pod, if it was read from the API; then `hosts` is empty. `followed`: by another run in the log. `pid`: of which
    process.
    """

    fault: LogFault
    pod_uid: str | None = None
    followed: bool = False
    pid: int | None = None

    @property
    def identity(self) -> object:
        return self.hosts, self.pod_uid, self.at.wall


class Rebooted(Beside, frozen=True):
    """`at`: when the machine was started again."""


class Ends(Struct, frozen=True):
    """The remembered ends of one cluster's JobManagers."""

    pods: Mapping[str, KnownPod] = {}
    """The pods by uid. Pods that exist are always kept."""
    signs: tuple[PodSign, ...] = ()
    operator: tuple[OperatorEvent, ...] = ()
    running: tuple[KnownProcess, ...] = ()
    """The JobManagers beside this sidecar that have not ended."""
    processes: tuple[KnownProcessEnd, ...] = ()
    logs: tuple[LogRead, ...] = ()
    reboots: tuple[Rebooted, ...] = ()


NOTHING: Final = Ends()
_MOST: Final = {"signs": MOST_SIGNS, **dict.fromkeys(("operator", "processes", "logs", "reboots"), MOST_ENDS)}
"""The most entries of each kind except pods."""
_T = TypeVar("_T", PodSign, OperatorEvent, KnownProcessEnd, LogRead, Rebooted)


# -- what is observed --------------------------------------------------------------------------------------------------


def with_pod(ends: Ends, pod: PodStatus, at: Moment, *, gone: bool) -> Ends:
    """A pod's status was observed."""
    before = ends.pods.get(pod.uid)
    status = _status(pod, before.status if before else None)
    last = before or KnownPod(at, status)
    containers = last.ends
    if pod.last_end:
        limit = last.status.limit_bytes if before else None  # a pod may be resized when its container is restarted
        containers = _with_end(containers, _container_end(pod.name, pod.last_end, limit or pod.limit_bytes, at))
    grace = (pod.grace_seconds or 0) * SECOND
    deleted_at = None if pod.delete_at is None else moment_of(pod.delete_at - grace, at)
    now = KnownPod(
        at,
        status,
        containers,
        deleted_at=last.deleted_at or deleted_at,
        gone_at=last.gone_at or (at if gone else None),
        failed_at=last.failed_at or (at if pod.phase == "Failed" else None),
    )
    return replace(ends, pods=_pods({**ends.pods, pod.uid: now}))


def _status(pod: PodStatus, before: PodStatus | None) -> PodStatus:
    """The status as it is remembered: with what an earlier one said, and this one does not say any more."""
    status = replace(pod, last_end=None, message=_text(pod.message) if pod.message else "")
    if before is None:
        return status
    return replace(
        status,
        address=pod.address or before.address,
        node=pod.node or before.node,
        disruption=pod.disruption or before.disruption,
        cordoned=before.cordoned if pod.cordoned is None else pod.cordoned,
    )


def _container_end(pod: str, end: ContainerEnd, limit: int | None, at: Moment) -> ContainerEnded:
    ended = moment_of(end.finished_at, at)
    fault = fault_of(log_end(pod, end.message)) if end.message else None
    if fault and _HEAP.search(end.message):  # the JVM's own last line of it is no entry of a log
        fault = replace(fault, heap=True)
    return ContainerEnded(ended, end.exit_code, clean(masked(end.reason), 64), limit, fault, at.wall)


def _with_end(ends: tuple[ContainerEnded, ...], end: ContainerEnded) -> tuple[ContainerEnded, ...]:
    """A status shows the last end again and again."""
    if any(other.at.wall == end.at.wall or other.reason == end.reason == UNKNOWN_END for other in ends):
        return ends
    return tuple(sorted((*ends, end), key=lambda other: other.at)[-MOST_ENDS:])


def with_event(ends: Ends, event: SeenEvent, at: Moment) -> Ends:
    happened, text = moment_of(event.at, at), _text(event.message)
    if event.about == "FlinkDeployment":
        if event.reason not in {*OperatorReason}:
            return ends
        restart = OperatorEvent(happened, OperatorReason(event.reason), text)
        return replace(ends, operator=_latest((restart, *ends.operator), MOST_ENDS))
    sign = PodSign(happened, event.uid, _sign(event), text)
    if sign.sign is Sign.NONE:
        return ends
    return replace(ends, signs=_latest((sign, *ends.signs), MOST_SIGNS))


def _sign(event: SeenEvent) -> Sign:
    if event.reason == "Killing":
        if "failed liveness probe" in event.message:
            return Sign.LIVENESS_PROBE
        if "failed startup probe" in event.message:
            return Sign.STARTUP_PROBE
        return Sign.STOPPING if event.message.startswith("Stopping") else Sign.NONE
    return _BY_REASON.get(event.reason, Sign.NONE)


def with_running(ends: Ends, process: RunningProcess, hosts: Iterable[str], at: Moment) -> Ends:
    """A JobManager that runs beside a sidecar at these hosts was observed. The same object if that was known."""
    before = next((known for known in ends.running if known.process.pid == process.pid), None)
    if before and before.process == process:
        return ends
    stood_still = before.stood_still if before and before.process.started_at == process.started_at else None
    if process.is_stopped:
        stood_still = at, None
    elif stood_still and stood_still[1] is None:
        stood_still = stood_still[0], at
    known = KnownProcess(at, _first_hosts(hosts), process, stood_still)
    others = [other for other in ends.running if other.process.pid != process.pid]
    return replace(ends, running=(*others[-MOST_RUNNING + 1 :], known))


def with_process(ends: Ends, end: ProcessEnd, hosts: Iterable[str], at: Moment) -> Ends:
    """The end of the JobManager's process beside a sidecar at these hosts was observed."""
    text = end.exhausted
    fault = LogFault(_text(text), 0, heap=bool(_HEAP.search(text))) if text else None
    ended = KnownProcessEnd(moment_of(end.ended_at, at), _first_hosts(hosts), end, fault)
    running = tuple(known for known in ends.running if known.process.pid != end.pid)
    return replace(ends, running=running, processes=_latest((ended, *ends.processes), MOST_ENDS))


def with_log(ends: Ends, log: LogEnd, pod_uid: str | None, hosts: Iterable[str], at: Moment) -> Ends:
    log_read = LogRead(at, () if pod_uid else _first_hosts(hosts), fault_of(log), pod_uid, log.followed, log.pid)
    return replace(ends, logs=_latest((log_read, *ends.logs), MOST_ENDS))


def with_reboot(ends: Ends, booted_at: int, hosts: Iterable[str], at: Moment) -> Ends:
    """The machine of a sidecar at these hosts was restarted."""
    reboot = Rebooted(moment_of(booted_at, at), _first_hosts(hosts))
    return replace(ends, reboots=_latest((reboot, *ends.reboots), MOST_ENDS))


def fault_of(log: LogEnd) -> LogFault:
    text = log.first_fault or ""
    exception = log.exception or ""
    heap = _HEAP.search(text) or _HEAP.search(log.last_line)
    return LogFault(clean(text, _LONGEST) or None, log.fault_age, bool(heap), _NO_SPACE in f"{text} {exception}")


def restart_near(ends: Ends, opened: Moment) -> Restart | None:
    """The operator's latest report of a restart near the loss of a leader."""
    before, after = RESTARTED
    for event in reversed(ends.operator):
        if -before <= (ago := event.at.steady - opened.steady) <= after:
            return Restart(event.reason, ago, event.text)
    return None


# -- what is forgotten -------------------------------------------------------------------------------------------------


def recent(ends: Ends, now: Moment) -> Ends:
    """`ends` without what is older than KEPT; the same object if nothing is."""
    return _newer_than(ends, now.steady - KEPT)


def without_past(ends: Ends, moment: Moment) -> Ends:
    """`ends` without those up to `moment`: they belong to past failovers."""
    return _newer_than(ends, moment.steady + 1)


def restarted(ends: Ends) -> Ends:
    """`ends` for another process to begin with. It observes the existing pods and processes anew, because some may be gone."""
    pods = {uid: pod for uid, pod in ends.pods.items() if pod.ends or pod.deleted_at or pod.gone_at}
    return replace(ends, pods=pods, running=())


def _newer_than(ends: Ends, since: int) -> Ends:
    pods = {
        uid: replace(pod, ends=tuple(end for end in pod.ends if end.at.steady >= since))
        for uid, pod in ends.pods.items()
        if pod.gone_at is None or pod.gone_at.steady >= since
    }
    kept = {name: tuple(value for value in getattr(ends, name) if value.at.steady >= since) for name in _MOST}
    newer = replace(ends, pods=pods, **kept)
    return ends if newer == ends else newer


# -- helpers -----------------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """The text of an Event without secrets: the operator's Events quote exceptions."""
    return clean(masked(text[: 10 * _LONGEST]), _LONGEST)


def pods_at(ends: Ends, place: str) -> Iterator[KnownPod]:
    """The pods that have, or had, the address in a leader's address."""
    return (pod for pod in ends.pods.values() if is_pod_at(place, pod.status.address, pod.status.name))


def _pods(pods: Mapping[str, KnownPod]) -> Mapping[str, KnownPod]:
    """The most pods that are kept: existing pods first, then the latest."""
    if len(pods) <= MOST_PODS:
        return pods
    order = sorted(pods.items(), key=lambda item: (item[1].gone_at is None, item[1].at, item[0]))
    return dict(order[-MOST_PODS:])


def _first_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(hosts)[:MOST_HOSTS])


def _latest(values: Iterable[_T], most: int) -> tuple[_T, ...]:
    """The latest ones; of what is the same the latest, and of that the one that is given last."""
    different = {value.identity: value for value in sorted(values, key=lambda value: value.at.wall)}.values()
    return tuple(sorted(different, key=lambda value: (value.at.wall, repr(value)))[-most:])
