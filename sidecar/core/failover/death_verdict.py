"""Why a JobManager's process ended: a verdict with the facts it rests on. Where the facts do not decide, it is `unknown`.

In order of trust: the pod's status, the kernel (pidfd and cgroup), Events, the end of the log. The exit code alone decides little: 137 is
the OOM killer, `kill -9` or the end of the grace period; 143 is SIGTERM, whoever sent it; 239 is Flink's fatal error handler, or a shutdown
hook that took too long. See docs/explanation/deaths.md.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from sidecar.core.failover.causes import Confidence
from sidecar.core.failover.death_facts import NO_STATE, ROUNDED, SIGKILL, SIGNALLED, SIGTERM, STOPPED, DeathFacts
from sidecar.core.failover.ends import KnownPod, Sign
from sidecar.core.message import MessageDeath
from sidecar.core.moment import SECOND, spoken
from sidecar.core.process_end import PodStatus, Pressure
from sidecar.core.sanitize import clean


class DeathReason(StrEnum):
    """Why a JobManager's process ended."""

    OOM_KILLED = "oom_killed"
    """The kernel killed the process at the memory limit of its container or cgroup."""
    HEAP_EXHAUSTED = "heap_exhausted"
    """The process ended itself, or Flink ended it, because its Java heap was full."""
    KILLED = "killed"
    """A signal other than SIGTERM ended the process. The sender is not known."""
    STOPPED = "stopped"
    """The process shut down after SIGTERM. The sender is not known."""
    EXITED = "exited"
    """The process ended itself: its main method returned, Flink's fatal error handler ended it, or the JVM crashed."""
    EVICTED = "evicted"
    """The kubelet evicted the pod: the node lacked memory or disk, or the pod used more disk than it may."""
    LIVENESS_PROBE = "liveness_probe"
    DRAINED = "drained"
    """The pod was evicted through the API, or deleted from a cordoned node."""
    PREEMPTED = "preempted"
    """A pod of a higher priority needed its place."""
    NODE_LOST = "node_lost"
    """The node was shut down, or no longer reports to the API server."""
    REPLACED = "replaced"
    """A pod of another revision replaced the pod: its image or another part of its template was changed."""
    DELETED = "deleted"
    """The pod was deleted. A pod of the same revision follows, or none."""
    DISK_FULL = "disk_full"
    REBOOTED = "rebooted"
    """The machine was started again."""
    UNKNOWN = "unknown"


class DeathVerdict(MessageDeath, frozen=True):
    """Why a JobManager's process ended, how sure that is, and the facts it rests on, a sentence each."""

    reason: DeathReason
    confidence: Confidence
    ended_at: int | None = None
    """Wall microseconds."""
    seen_at: int | None = None
    """When the end was first observed (wall microseconds): at once by the kernel, or when the pod's status reports it."""


_UNHEARD: Final = 60 * SECOND
"""How long before the loss of leadership the leader's node may have stopped reporting."""
_OLD_FAULT: Final = 120 * SECOND
"""An error this long before the end of the log may be one that the JobManager survived."""
_LONG_PAUSE: Final = 1.0
"""Seconds."""
_PRESSED: Final = 20
"""Percent of a minute in which some task waited for it."""
_SIGABRT: Final = 6
_CRASHES: Final = frozenset({4, _SIGABRT, 7, 8, 11})
"""Signals of the process's own doing: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV."""
_FATAL, _OUT_OF_MEMORY = 239, 3
_NODE_GONE: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC"})
_PREEMPTION: Final = frozenset({"PreemptionByScheduler", "PreemptionByKubeScheduler"})
_NODE_DOWN: Final = frozenset({"NodeShutdown", "Shutdown", "Terminated", "NodeLost"})
"""Reasons of pods that ended with their node."""
_SAME: Final = "leaves the same facts."
NOT_IDENTIFIED: Final = "Nothing that was observed says why it ended."


def verdict(facts: DeathFacts) -> DeathVerdict:
    """The reason that the facts decide upon, the surest first."""
    for judge in _JUDGES:
        if death := judge(facts):
            break
    else:
        death = _unknown(NOT_IDENTIFIED)
    return replace(
        _qualified(death, facts),
        exit_code=facts.exit_code,
        limit_bytes=facts.limit_bytes,
        ended_at=facts.ended.wall if facts.ended else None,
        seen_at=facts.seen_at,
        fault=facts.fault.text if facts.fault else None,
        address=facts.address,
        pod=facts.name,
    )


def _qualified(death: DeathVerdict, facts: DeathFacts) -> DeathVerdict:
    """The verdict, less sure where facts contradict it, with what else is known."""
    against = tuple(_contradictions(facts))
    sure = death.confidence is Confidence.HIGH and not against
    confidence = death.confidence if sure or death.confidence is Confidence.NONE else Confidence.MEDIUM
    return replace(death, confidence=confidence, facts=(*death.facts, *against, *_side_facts(facts)))


def _contradictions(facts: DeathFacts) -> Iterator[str]:
    container, process = facts.container, facts.process
    if container and process and process.end.exit_code not in {None, container.exit_code}:
        yield f"The kernel says that its exit code was {process.end.exit_code}, the kubelet {container.exit_code}."
    if container and container.reason == "OOMKilled":
        state = "Its container's state is OOMKilled"
        if container.exit_code != SIGNALLED + SIGKILL:
            yield f"{state}, which stays from the end of a child; its own exit code was {container.exit_code}."
        elif process and process.end.oom_kills == 0:
            yield f"{state}, and the kernel counted no process that was killed for memory at that moment."
        elif facts.deleted_at or facts.probe:
            yield f"{state}, and it had been asked to end."
        elif facts.is_failed:
            yield f"{state}, and its pod failed."
    if facts.deleted_at and facts.probe:
        yield "Its pod was deleted as well."
    if process and not facts.is_own_place:
        yield f"It is at {clean(facts.address)}: another JobManager of this machine {_SAME}"


def _side_facts(facts: DeathFacts) -> Iterator[str]:
    """The facts that do not explain the end by themselves."""
    process = facts.process
    if process and process.end.full_disk:
        yield f"The disk of {clean(process.end.full_disk)} was full."
    if process and (process.end.last_pause or 0) >= _LONG_PAUSE:
        yield f"In its last minute it paused for {process.end.last_pause:.1f} s to collect garbage."
    if process and (pressed := _pressure_text(process.end.pressure)):
        yield f"In its last minute tasks of its machine waited {pressed}."
    if facts.fault and facts.fault.text:
        yield f"The first error at the end of its log: {clean(facts.fault.text)}"


def _pressure_text(pressure: Pressure) -> str:
    """`45 % of the time for memory`: for what tasks of the machine had to wait for long."""
    shares = {"CPU": pressure.cpu, "memory": pressure.memory, "the disk": pressure.io}
    long = [f"{share:.0f} % of the time for {name}" for name, share in shares.items() if (share or 0) >= _PRESSED]
    return " and ".join(long)


# -- the judges --------------------------------------------------------------------------------------------------------


def _judge_pod(facts: DeathFacts) -> DeathVerdict | None:
    """A pod that failed as a whole says why."""
    pod = facts.pod
    if pod and pod.status.phase == "Failed" and (failed := _judge_failed_pod(pod.status, facts)):
        return failed
    if evicted := facts.sign_before(Sign.EVICTED):
        return _sure(
            DeathReason.EVICTED, f"An Event says that the kubelet evicted its pod{_quoted_text(evicted.text)}."
        )
    return None


def _judge_failed_pod(status: PodStatus, facts: DeathFacts) -> DeathVerdict | None:
    said = _quoted_text(status.message)
    if status.reason in _NODE_DOWN:
        reason, why = DeathReason.NODE_LOST, f"Its pod failed: {clean(status.reason)}{said}."
    elif status.reason == "Preempting":
        reason, why = DeathReason.PREEMPTED, f"The kubelet preempted its pod{said}."
    elif status.reason == "Evicted":
        reason, why = DeathReason.EVICTED, f"The kubelet evicted its pod{said}."
    else:
        return None
    if facts.failed_with_it:
        return _sure(reason, why)
    if facts.ended_by_itself:
        return None
    return _likely(reason, why, f"A signal before that {_SAME}")


def _judge_preemption(facts: DeathFacts) -> DeathVerdict | None:
    if facts.disruption in _PREEMPTION and facts.deleted_at:
        return _sure(DeathReason.PREEMPTED, "The scheduler deleted its pod to make room for one of a higher priority.")
    if preempted := facts.sign_before(Sign.PREEMPTED):
        return _sure(DeathReason.PREEMPTED, f"An Event says that its pod was preempted{_quoted_text(preempted.text)}.")
    return None


def _judge_node(facts: DeathFacts) -> DeathVerdict | None:
    if facts.container or facts.process:
        return None  # a node that is not heard of reports no end
    not_ready = facts.sign(Sign.NODE_NOT_READY)
    if not_ready and not facts.deleted_at and not_ready.at.steady >= facts.opened.steady - _UNHEARD:
        why = f"Its node was not ready at {spoken(not_ready.at.wall)}, and its end was not reported."
        if facts.pod and facts.pod.at.steady > not_ready.at.steady:
            return _likely(DeathReason.NODE_LOST, why, f"A node that is ready again, and another end, {_SAME}")
        return _sure(DeathReason.NODE_LOST, why)
    if facts.disruption in _NODE_GONE or facts.sign(Sign.TAINTED):
        tainted = f"A taint that somebody set {_SAME}"
        return _likely(DeathReason.NODE_LOST, "Its pod was deleted because its node is tainted or gone.", tainted)
    return None


def _judge_machine(facts: DeathFacts) -> DeathVerdict | None:
    if facts.reboot is None or facts.exit_code not in {None, 0, *STOPPED}:
        return None
    why = f"Its machine was started again at {spoken(facts.reboot.at.wall)}."
    container = facts.container if facts.container and facts.container.reason not in NO_STATE else None
    if (end := facts.process or container) is None:
        return _sure(DeathReason.REBOOTED, why)
    if facts.reboot.at.steady < end.at.steady:
        return None
    return _likely(DeathReason.REBOOTED, why, f"An end before that, by a signal or by itself, {_SAME}")


def _judge_probe(facts: DeathFacts) -> DeathVerdict | None:
    if (probe := facts.probe) is None:
        return None
    is_startup = probe.sign is Sign.STARTUP_PROBE
    reason, name = (DeathReason.KILLED, "startup") if is_startup else (DeathReason.LIVENESS_PROBE, "liveness")
    why = f"The kubelet ended its container because its {name} probe failed, at {spoken(probe.at.wall)}."
    if facts.exit_code is None:
        return _likely(reason, why, "How it ended was not observed.")
    if facts.exit_code not in STOPPED:
        return _likely(reason, why, f"{_ended_with(facts)} An end by itself at that moment {_SAME}")
    return _sure(reason, why)


def _judge_oom_killer(facts: DeathFacts) -> DeathVerdict | None:
    container, process = facts.container, facts.process
    is_killed = facts.exit_code == SIGNALLED + SIGKILL
    kills = process.end.oom_kills if process else None
    if container and container.reason == "OOMKilled" and is_killed and kills != 0:
        if (deleted := facts.deleted_at) and container.at.steady >= deleted.steady + facts.grace - ROUNDED:
            return None  # its grace period was over
        return _sure(DeathReason.OOM_KILLED, f"Its container's state is OOMKilled, exit code 137{_limit_text(facts)}.")
    if kills and (is_killed or facts.exit_code is None):
        counted = (
            f"The kernel killed {kills} process{'es' if kills > 1 else ''} of its cgroup for memory at that moment"
        )
        if is_killed and not (container and facts.deleted_at):
            return _sure(DeathReason.OOM_KILLED, f"{counted}{_limit_text(facts)}; its exit code was 137.")
        return _likely(
            DeathReason.OOM_KILLED, f"{counted}{_limit_text(facts)}.", f"A child that is killed alone {_SAME}"
        )
    return None


def _judge_deletion(facts: DeathFacts) -> DeathVerdict | None:
    pod, deleted = facts.pod, facts.deleted_at
    if pod is None or deleted is None:
        return None
    when = f"The deletion of its pod was requested at {spoken(deleted.wall)}."
    if facts.disruption == "EvictionByEvictionAPI":
        return _sure(
            DeathReason.DRAINED, f"Its pod was evicted from {_node(pod)} through the API.", *_force_facts(facts)
        )
    if revised := _pod_difference(facts):
        return _sure(DeathReason.REPLACED, when, revised, *_force_facts(facts))
    if pod.status.cordoned:
        alike = f"A deletion by hand {_SAME}"
        return _likely(
            DeathReason.DRAINED, when, f"{_node(pod).capitalize()} is cordoned.", *_force_facts(facts), alike
        )
    alike = (
        f"Before Kubernetes 1.26 an eviction through the API {_SAME} So does a rollout, until the next pod is observed."
    )
    return _likely(DeathReason.DELETED, when, *_force_facts(facts), alike)


def _judge_heap(facts: DeathFacts) -> DeathVerdict | None:
    if facts.fault is None or not facts.fault.heap or facts.signal in {SIGKILL, SIGTERM}:
        return None
    why = "The JVM, or the end of its log, says that its Java heap was full."
    is_recent = facts.fault.age is None or facts.fault.age <= _OLD_FAULT
    if is_recent and facts.exit_code in {_FATAL, _OUT_OF_MEMORY, SIGNALLED + _SIGABRT}:
        return _sure(DeathReason.HEAP_EXHAUSTED, why, _ended_with(facts))
    if facts.exit_code == 0 or not facts.says_ended:
        return None
    return _likely(DeathReason.HEAP_EXHAUSTED, why, f"A JobManager that survived that, and ended later, {_SAME}")


def _judge_disk(facts: DeathFacts) -> DeathVerdict | None:
    if facts.fault is None or not facts.fault.no_space or facts.signal or not facts.exit_code:
        return None
    why = "The end of its log says that there was no space left on a disk."
    if facts.process and facts.process.end.full_disk:
        return _sure(DeathReason.DISK_FULL, why)
    return _likely(
        DeathReason.DISK_FULL, why, f"A disk that has been freed since, and another error after that, {_SAME}"
    )


def _judge_signal(facts: DeathFacts) -> DeathVerdict | None:
    if (signal := facts.signal) is None:
        return None
    if signal in _CRASHES:
        return _judge_crash(facts)
    name = {SIGKILL: "SIGKILL", SIGTERM: "SIGTERM"}.get(signal, f"signal {signal}")
    reason = DeathReason.STOPPED if signal == SIGTERM else DeathReason.KILLED
    why = f"It ended by {name}; nothing shows who sent it."
    kills = facts.process.end.oom_kills if facts.process else None
    if facts.in_pod:
        return _judge_signal_in_pod(facts, reason, why, is_sure=signal == SIGKILL and kills == 0)
    if signal == SIGKILL and kills is None:
        return _likely(reason, why, f"The kernel's OOM killer {_SAME}")
    return _sure(reason, why)


def _judge_signal_in_pod(facts: DeathFacts, reason: DeathReason, why: str, *, is_sure: bool) -> DeathVerdict:
    """The verdict for a process in a pod that a signal ended; the pod's status and Events show who sends signals. `is_sure`: the signal is
    SIGKILL, and the OOM killer did not send it."""
    if facts.container and facts.events_are_read:
        return _sure(reason, why, "Its pod was not deleted, and no Event says that the kubelet ended it.")
    alike = f"A failed liveness probe {_SAME} Events would tell."
    if not facts.container:
        alike = f"Each way in which Kubernetes ends a pod {_SAME} The pod's status would tell."
    is_killed = facts.exit_code == SIGNALLED + SIGKILL
    if is_sure or (is_killed and facts.container):
        return _likely(reason, why, alike)
    return _unknown(why, alike)


def _judge_crash(facts: DeathFacts) -> DeathVerdict:
    end = facts.process.end if facts.process else None
    if end and end.crash_file:
        problem = f": {clean(end.crash_problem)}" if end.crash_problem else ""
        return _sure(DeathReason.EXITED, f"The JVM crashed and wrote {clean(end.crash_file)}{problem}.")
    return _likely(
        DeathReason.EXITED, f"The JVM crashed: {_ended_with(facts)}", f"Somebody who sends that signal {_SAME}"
    )


def _judge_exit(facts: DeathFacts) -> DeathVerdict | None:
    match facts.exit_code:
        case None:
            return None
        case code if code == _FATAL and not facts.fault:
            hook = f"A shutdown hook that takes more than 5 s {_SAME} The log would tell."
            return _likely(DeathReason.EXITED, f"{_ended_with(facts)} Flink's fatal error handler ends it so.", hook)
        case code if code == _OUT_OF_MEMORY and not facts.fault:
            exits = f"The JVM's option ExitOnOutOfMemoryError {_SAME} The log would tell."
            return _likely(DeathReason.EXITED, _ended_with(facts), exits)
    return _sure(DeathReason.EXITED, _ended_with(facts))


def _judge_disappearance(facts: DeathFacts) -> DeathVerdict | None:
    if not facts.has_vanished:
        return None
    why = "Its pod was removed from the API at once, without a grace period: its end was not reported."
    return _likely(DeathReason.DELETED, why, f"A pod that is removed with its node {_SAME}")


def _judge_without_end(facts: DeathFacts) -> DeathVerdict | None:
    """The verdict from the remaining facts, where none gives the reason of the end."""
    if facts.container and facts.container.reason in NO_STATE:
        return _unknown("The kubelet does not know how its container ended.")
    if facts.process:
        return _unknown("Its process ended, and with which exit code is not known.")
    if facts.is_started_again:
        return _unknown("Its process ended, and was started again: another run follows in its log.")
    return None


_JUDGES: Final = (
    _judge_pod,
    _judge_preemption,
    _judge_node,
    _judge_oom_killer,
    _judge_probe,
    _judge_deletion,
    _judge_machine,
    _judge_heap,
    _judge_disk,
    _judge_signal,
    _judge_exit,
    _judge_disappearance,
    _judge_without_end,
)


# -- parts of facts ----------------------------------------------------------------------------------------------------


def _pod_difference(facts: DeathFacts) -> str | None:
    """How the pods that replaced it differ from its own pod."""
    before, deleted = facts.pod.status if facts.pod else None, facts.deleted_at
    if before is None or deleted is None or not before.revision or not facts.newcomers:
        return None
    after = facts.newcomers[-1]
    # One of its own revision took its place, unless it is from before: it took that of another pod.
    alike = [pod.created_at or 0 for pod in facts.newcomers if pod.revision in {"", before.revision}]
    if alike and max(alike) >= min(after.created_at or 0, deleted.wall - ROUNDED):
        return None
    image = f", image {clean(before.image)} → {clean(after.image)}" if before.image != after.image else ""
    return f"Pod {clean(after.name)} of another revision was created{image}."


def _force_facts(facts: DeathFacts) -> Iterator[str]:
    """Whether it did not end by itself within its grace period."""
    deleted = facts.deleted_at
    if not deleted or not facts.ended or not facts.grace or facts.signal != SIGKILL:
        return
    if facts.ended.steady >= deleted.steady + facts.grace - ROUNDED:
        yield f"It was killed at the end of its grace period of {facts.grace // SECOND} s."


def _node(pod: KnownPod) -> str:
    return f"node {clean(pod.status.node)}" if pod.status.node else "its node"


def _limit_text(facts: DeathFacts) -> str:
    limit = facts.limit_bytes
    return f", at a limit of {limit >> 20} MiB" if limit else ""


def _ended_with(facts: DeathFacts) -> str:
    return f"It ended with exit code {facts.exit_code}."


def _quoted_text(text: str) -> str:
    return f": {clean(text).rstrip('. ')}" if text else ""


def _sure(reason: DeathReason, *facts: str) -> DeathVerdict:
    return DeathVerdict(reason, Confidence.HIGH, facts)


def _likely(reason: DeathReason, *facts: str) -> DeathVerdict:
    return DeathVerdict(reason, Confidence.MEDIUM, facts)


def _unknown(*facts: str) -> DeathVerdict:
    return DeathVerdict(DeathReason.UNKNOWN, Confidence.NONE, facts)
