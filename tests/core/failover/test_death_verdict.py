"""Each reason of a death follows from its facts, measured on real pods, and from nothing less: look-alikes are kept apart, or unknown."""

from itertools import permutations
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sidecar.core.cluster.record_lines import ENDINGS, death_line
from sidecar.core.failover.causes import Confidence
from sidecar.core.failover.death_facts import DeathFacts
from sidecar.core.failover.death_verdict import DeathReason, verdict
from sidecar.core.failover.ends import (
    UNKNOWN_END,
    ContainerEnded,
    KnownPod,
    KnownProcessEnd,
    LogFault,
    PodSign,
    Rebooted,
    Sign,
)
from sidecar.core.moment import SECOND, Moment
from sidecar.core.process_end import PodStatus, Pressure, ProcessEnd

R = DeathReason
HIGH, MEDIUM, NONE = Confidence.HIGH, Confidence.MEDIUM, Confidence.NONE
OPENED: Final = Moment(1_000 * SECOND, 1_795_161_600 * SECOND)
LIMIT: Final = 1600 << 20


def ago(seconds: float) -> Moment:
    """So long before the leadership was observed to be lost."""
    micros = round(seconds * SECOND)
    return Moment(OPENED.steady - micros, OPENED.wall - micros)


def pod(
    deleted: float | None = None, gone: float | None = None, failed: float | None = None, at: float = 0, **status: Any
) -> dict[str, Any]:
    """The leader's pod, as it was observed last at `at`. `deleted`, `gone`, `failed`: so long before."""
    always: dict[str, Any] = {
        "uid": "u",
        "name": "jm-a",
        "address": "10.0.0.1",
        "node": "n",
        "phase": "Running",
        "revision": "r1",
    }
    pod_status = PodStatus(**always | {"limit_bytes": LIMIT, "grace_seconds": None if deleted is None else 30} | status)
    when = [None if seconds is None else ago(seconds) for seconds in (deleted, gone, failed)]
    return {"pod": KnownPod(ago(at), pod_status, (), *when), "in_pod": True, "name": "jm-a"}


def container(code: int, reason: str = "Error", at: float = 5, fault: LogFault | None = None) -> dict[str, Any]:
    return {"container": ContainerEnded(ago(at), code, reason, LIMIT, fault), "fault": fault}


def process(code: int | None, at: float = 5, **end: Any) -> dict[str, Any]:
    return {"process": KnownProcessEnd(ago(at), ("jm-a",), ProcessEnd(7, ago(at).wall, exit_code=code, **end))}


def event(sign: Sign, at: float = 4, text: str = "") -> dict[str, Any]:
    return {"signs": (PodSign(ago(at), "u", sign, text),)}


def log(text: str, *, age: float = 0, heap: bool = False, no_space: bool = False) -> dict[str, Any]:
    return {"fault": LogFault(text, round(age * SECOND), heap, no_space)}


def newcomer(*revisions: str, at: tuple[float, ...] = (6, 5)) -> dict[str, Any]:
    """Pods of these revisions, created so long before."""
    created = [
        PodStatus("v", "jm-b", "", revision=r, created_at=ago(s).wall) for r, s in zip(revisions, at, strict=False)
    ]
    return {"newcomers": tuple(created)}


POD: Final = pod()
DELETED: Final = pod(deleted=7)
READ: Final = {"signs": tuple(PodSign(ago(3), "u", sign) for sign in (Sign.CREATED, Sign.STARTED))}
"""The kubelet's Events are recorded, and none says anything of an end."""
PROBED: Final = event(Sign.LIVENESS_PROBE, at=6)
HEAP: Final = log("java.lang.OutOfMemoryError: Java heap space", heap=True)
FULL: Final = log("java.io.IOException: No space left on device", no_space=True)
BOOTED: Final = {"reboot": Rebooted(ago(-20), ("jm-a",))}
MACHINE: Final[dict[str, Any]] = {}

ROWS: Final[list[tuple[dict[str, Any], DeathReason, Confidence]]] = [
    # the memory limit
    (POD | container(137, "OOMKilled"), R.OOM_KILLED, HIGH),
    (POD | container(137, "OOMKilled") | process(137, oom_kills=1), R.OOM_KILLED, HIGH),
    (POD | container(137, "OOMKilled") | process(137, oom_kills=0) | READ, R.KILLED, MEDIUM),
    (POD | container(143, "OOMKilled") | READ, R.STOPPED, MEDIUM),  # the state stays from a child's end
    (MACHINE | process(137, oom_kills=1, limit_bytes=LIMIT), R.OOM_KILLED, HIGH),
    (MACHINE | process(None, oom_kills=2), R.OOM_KILLED, MEDIUM),
    (pod(deleted=7) | container(137, "OOMKilled"), R.OOM_KILLED, MEDIUM),
    (pod(deleted=35) | container(137, "OOMKilled"), R.DELETED, MEDIUM),  # or the end of the grace period
    # kill -9, and what looks like it
    (POD | container(137) | READ, R.KILLED, HIGH),
    (POD | container(137), R.KILLED, MEDIUM),
    (POD | container(137) | event(Sign.STARTED, at=3), R.KILLED, MEDIUM),  # the kubelet may have dropped others
    (POD | container(143) | event(Sign.STARTED, at=3), R.UNKNOWN, NONE),
    (pod(deleted=35) | container(137), R.DELETED, MEDIUM),
    (POD | container(137, UNKNOWN_END), R.UNKNOWN, NONE),
    ({"in_pod": True} | process(137, oom_kills=0), R.KILLED, MEDIUM),
    ({"in_pod": True} | process(137), R.UNKNOWN, NONE),
    (MACHINE | process(137, oom_kills=0), R.KILLED, HIGH),
    (MACHINE | process(137), R.KILLED, MEDIUM),
    # SIGTERM, and what looks like it
    (POD | container(143) | READ, R.STOPPED, HIGH),
    (POD | container(143), R.UNKNOWN, NONE),
    ({"in_pod": True} | process(143), R.UNKNOWN, NONE),
    (MACHINE | process(143), R.STOPPED, HIGH),
    # a probe
    (POD | container(143) | PROBED, R.LIVENESS_PROBE, HIGH),
    (POD | container(137) | event(Sign.LIVENESS_PROBE, at=35), R.LIVENESS_PROBE, HIGH),
    (POD | container(239) | PROBED, R.LIVENESS_PROBE, MEDIUM),  # a slow shutdown hook, or its own end at that moment
    (POD | container(137, "OOMKilled") | PROBED, R.OOM_KILLED, MEDIUM),
    (POD | PROBED | process(None), R.LIVENESS_PROBE, MEDIUM),
    (POD | container(143) | event(Sign.STARTUP_PROBE, at=6), R.KILLED, HIGH),
    (POD | container(1) | event(Sign.STARTUP_PROBE, at=6), R.KILLED, MEDIUM),
    (POD | container(137, "OOMKilled") | event(Sign.STARTUP_PROBE, at=6), R.OOM_KILLED, MEDIUM),
    (POD | container(1) | event(Sign.LIVENESS_PROBE, at=-30), R.EXITED, HIGH),  # of the next container
    # the heap
    (POD | container(239, fault=HEAP["fault"]), R.HEAP_EXHAUSTED, HIGH),
    (POD | container(3, fault=HEAP["fault"]), R.HEAP_EXHAUSTED, HIGH),
    (POD | container(239) | HEAP, R.HEAP_EXHAUSTED, HIGH),
    (MACHINE | process(None) | HEAP, R.HEAP_EXHAUSTED, MEDIUM),
    (POD | container(1) | HEAP, R.HEAP_EXHAUSTED, MEDIUM),
    (
        POD | container(239) | log("java.lang.OutOfMemoryError: Java heap space", age=121, heap=True),
        R.HEAP_EXHAUSTED,
        MEDIUM,
    ),
    (POD | container(3), R.EXITED, MEDIUM),
    (POD | container(137, "OOMKilled") | HEAP, R.OOM_KILLED, HIGH),
    # by itself
    (POD | container(1), R.EXITED, HIGH),
    (POD | container(0, "Completed"), R.EXITED, HIGH),
    (POD | container(239), R.EXITED, MEDIUM),  # the fatal error handler, or a slow shutdown hook
    (POD | container(239) | log("Could not retrieve checkpoint 8"), R.EXITED, HIGH),
    (POD | container(134), R.EXITED, MEDIUM),
    (MACHINE | process(134, crash_file="hs_err_pid7.log", crash_problem="SIGSEGV (0xb)"), R.EXITED, HIGH),
    # its disk
    (MACHINE | process(1, full_disk="/opt/flink/log") | FULL, R.DISK_FULL, HIGH),
    (POD | container(239) | FULL, R.DISK_FULL, MEDIUM),
    (MACHINE | process(1, full_disk="/opt/flink/log"), R.EXITED, HIGH),
    # a deletion
    (DELETED | container(143), R.DELETED, MEDIUM),
    (DELETED, R.DELETED, MEDIUM),
    (DELETED | container(143) | newcomer("r1"), R.DELETED, MEDIUM),
    (DELETED | container(143) | newcomer("r2"), R.REPLACED, HIGH),
    (
        DELETED | container(143) | newcomer("r1", "r2", at=(50, 9)),
        R.REPLACED,
        HIGH,
    ),  # the older one took another pod's place
    (DELETED | container(143) | newcomer("r2", "r1", at=(50, 40)), R.DELETED, MEDIUM),
    (DELETED | container(143) | newcomer("r2", "r1", at=(9, 6)), R.DELETED, MEDIUM),  # in the middle of a rollout
    (DELETED | container(137, UNKNOWN_END), R.DELETED, MEDIUM),
    (pod(deleted=2) | container(1, at=9), R.EXITED, HIGH),  # it had ended before
    (pod(gone=3), R.DELETED, MEDIUM),  # by force: gone before its end
    (pod(gone=-60) | {"opened": OPENED}, R.UNKNOWN, NONE),
    (pod(deleted=7, disruption="EvictionByEvictionAPI") | container(143), R.DRAINED, HIGH),
    (pod(deleted=7, cordoned=True) | container(143), R.DRAINED, MEDIUM),
    (pod(deleted=7, cordoned=True) | container(143) | newcomer("r2"), R.REPLACED, HIGH),
    (pod(deleted=7, disruption="PreemptionByScheduler") | container(143), R.PREEMPTED, HIGH),
    (DELETED | container(143) | event(Sign.PREEMPTED, at=8), R.PREEMPTED, HIGH),
    (pod(phase="Failed", reason="Preempting"), R.PREEMPTED, HIGH),
    # the kubelet
    (pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."), R.EVICTED, HIGH),
    (POD | event(Sign.EVICTED), R.EVICTED, HIGH),
    (pod(phase="Failed", reason="Evicted") | container(137, "OOMKilled"), R.EVICTED, MEDIUM),
    (pod(phase="Failed", reason="Evicted", failed=2) | container(143), R.EVICTED, HIGH),  # said when all have ended
    (pod(phase="Failed", reason="Evicted", failed=-25) | container(143), R.EVICTED, MEDIUM),
    # what follows the end is no reason of it
    (pod(phase="Failed", reason="Evicted", failed=-25) | container(1), R.EXITED, HIGH),
    (pod(phase="Failed", reason="Evicted", failed=-25) | container(137, "OOMKilled"), R.OOM_KILLED, MEDIUM),
    (pod(phase="Failed", reason="Preempting", failed=-10) | container(1), R.EXITED, HIGH),
    (POD | container(1) | event(Sign.EVICTED, at=-25), R.EXITED, HIGH),
    (POD | container(1) | event(Sign.PREEMPTED, at=-10), R.EXITED, HIGH),
    (pod(deleted=-10, disruption="PreemptionByScheduler") | container(1), R.EXITED, HIGH),
    # the node
    (POD | event(Sign.NODE_NOT_READY, at=-30), R.NODE_LOST, HIGH),
    (POD | event(Sign.NODE_NOT_READY, at=20), R.NODE_LOST, MEDIUM),  # its status changed after that
    (pod(at=30) | event(Sign.NODE_NOT_READY, at=20), R.NODE_LOST, HIGH),
    (pod(at=300) | event(Sign.NODE_NOT_READY, at=150), R.UNKNOWN, NONE),
    (DELETED | event(Sign.NODE_NOT_READY, at=150), R.DELETED, MEDIUM),
    (DELETED | event(Sign.NODE_NOT_READY, at=10) | newcomer("r2"), R.REPLACED, HIGH),
    (POD | container(137, "OOMKilled") | event(Sign.NODE_NOT_READY, at=-30), R.OOM_KILLED, HIGH),
    (pod(deleted=-200, disruption="DeletionByTaintManager"), R.NODE_LOST, MEDIUM),
    (POD | event(Sign.TAINTED, at=-30), R.NODE_LOST, MEDIUM),
    (pod(phase="Failed", reason="NodeShutdown"), R.NODE_LOST, HIGH),
    (MACHINE | BOOTED, R.REBOOTED, HIGH),
    (MACHINE | BOOTED | process(143), R.REBOOTED, MEDIUM),
    (MACHINE | BOOTED | process(137, oom_kills=1), R.OOM_KILLED, HIGH),
    (POD | BOOTED | container(137, "OOMKilled"), R.OOM_KILLED, HIGH),
    (DELETED | BOOTED | container(143), R.DELETED, MEDIUM),
    (MACHINE | BOOTED | process(1), R.EXITED, HIGH),
    (MACHINE | BOOTED | process(239) | HEAP, R.HEAP_EXHAUSTED, HIGH),
    (POD | container(255, "Unknown") | BOOTED, R.REBOOTED, HIGH),
    (POD | container(255, "Unknown", at=-30) | BOOTED, R.REBOOTED, HIGH),  # the kubelet's time is that of its own start
    # nothing that says why
    (MACHINE, R.UNKNOWN, NONE),
    (POD | READ, R.UNKNOWN, NONE),
    (POD | HEAP, R.UNKNOWN, NONE),
    (MACHINE | process(None), R.UNKNOWN, NONE),
]


def facts(**parts: Any) -> DeathFacts:
    always: dict[str, Any] = {"opened": OPENED, "address": "10.0.0.1:6123"}
    return DeathFacts(**always | parts)


@pytest.mark.parametrize(("parts", "reason", "confidence"), ROWS)
def test_a_reason_follows_from_its_facts(parts: dict[str, Any], reason: DeathReason, confidence: Confidence) -> None:
    """One row for each way to each reason, and for each look-alike."""
    death = verdict(facts(**parts))
    assert (death.reason, death.confidence) == (reason, confidence)
    assert death.facts


def test_every_reason_has_a_row_and_words() -> None:
    """In the order of the contract."""
    assert {reason for _, reason, _ in ROWS} == {*DeathReason}
    assert [*ENDINGS] == [reason.value for reason in DeathReason]


@pytest.mark.parametrize("parts", [parts for parts, _, confidence in ROWS if confidence is MEDIUM])
def test_what_is_not_certain_says_what_else_it_may_have_been(parts: dict[str, Any]) -> None:
    """A verdict of `medium` names in its facts what else leaves them, what contradicts it, or what was not observed."""
    said = " ".join(verdict(facts(**parts)).facts)
    assert any(caution in said for caution in ("leaves the same facts", "state is OOMKilled", "was not observed"))


@pytest.mark.parametrize(("parts", "reason", "_"), ROWS)
def test_nobody_is_said_to_have_sent_a_signal_unless_an_event_says_so(
    parts: dict[str, Any], reason: DeathReason, _: Confidence
) -> None:
    """A kill shows who was killed."""
    death = verdict(facts(**parts))
    if reason in {DeathReason.KILLED, DeathReason.STOPPED} and "startup probe" not in death.facts[0]:
        assert "nothing shows who sent it" in death.facts[0]


def test_the_line_of_an_oom_kill() -> None:
    """As in a message: with the limit in force when it ended, not that of the pod afterwards."""
    parts = pod(limit_bytes=1 << 30) | container(137, "OOMKilled")
    death = verdict(facts(**parts))
    assert death_line(death) == "JobManager jm-a was OOM-killed (exit 137, limit 1600 MiB)"
    assert death.ended_at == ago(5).wall


PARTS: Final = st.fixed_dictionaries(
    {},
    optional={
        "container": st.builds(
            ContainerEnded,
            st.sampled_from([5, 40, -5]).map(ago),
            st.sampled_from([0, 1, 3, 134, 137, 143, 239]),
            st.sampled_from(["Error", "OOMKilled", UNKNOWN_END]),
        ),
        "process": st.builds(
            lambda code, kills, disk: process(code, oom_kills=kills, full_disk=disk)["process"],
            st.sampled_from([None, 0, 1, 3, 134, 137, 143, 239]),
            st.sampled_from([None, 0, 1]),
            st.sampled_from([None, "/tmp"]),  # noqa: S108  the name of a disk
        ),
        "signs": st.lists(
            st.builds(PodSign, st.sampled_from([6, 4, -20]).map(ago), st.just("u"), st.sampled_from(Sign))
        ).map(lambda signs: tuple(sorted(signs, key=lambda sign: sign.at))),
        "fault": st.sampled_from([HEAP["fault"], FULL["fault"], LogFault("x")]),
        "reboot": st.just(BOOTED["reboot"]),
        "pod": st.sampled_from([POD, DELETED, pod(gone=3), pod(deleted=35, cordoned=True)]).map(
            lambda parts: parts["pod"]
        ),
        "in_pod": st.booleans(),
        "is_own_place": st.booleans(),
    },
)


@given(PARTS)
def test_there_is_always_a_verdict_with_its_facts(parts: dict[str, Any]) -> None:
    """Whatever was seen together: sentences, no confidence in what is unknown, and none in a reason without a fact that it ended."""
    death = verdict(facts(**parts))
    assert death.facts
    assert all(sentence[0].isupper() for sentence in death.facts)
    assert (death.reason is DeathReason.UNKNOWN) == (death.confidence is Confidence.NONE)


@given(PARTS)
def test_facts_that_contradict_each_other_are_never_certain(parts: dict[str, Any]) -> None:
    """Two exit codes; a state that a child left; a counter that did not rise; an address that another process may have."""
    case = facts(**parts)
    if case.container and case.process and case.process.end.exit_code not in {None, case.container.exit_code}:
        assert verdict(case).confidence is not Confidence.HIGH
    if case.container and case.container.reason == "OOMKilled":
        sticky = case.container.exit_code != 137 or (case.process and case.process.end.oom_kills == 0)
        assert not (sticky and verdict(case).confidence is Confidence.HIGH)
        assert not (case.container.exit_code != 137 and verdict(case).reason is DeathReason.OOM_KILLED)
    if case.process and not case.is_own_place:
        assert verdict(case).confidence is not Confidence.HIGH


@given(PARTS)
def test_an_exit_code_that_says_otherwise_is_never_an_oom_kill(parts: dict[str, Any]) -> None:
    """OOMKilled needs 137."""
    case = facts(**parts)
    if verdict(case).reason is DeathReason.OOM_KILLED:
        assert case.exit_code in {137, None}


def test_the_order_of_events_does_not_matter() -> None:
    """They are facts about moments."""
    signs = (*READ["signs"], *PROBED["signs"], *event(Sign.STOPPING)["signs"])
    case = facts(**(POD | container(143)))
    assert {verdict(replace(case, signs=order)) for order in permutations(signs)} == {
        verdict(replace(case, signs=signs))
    }


def test_what_explains_nothing_by_itself_is_said_beside_the_reason() -> None:
    """A long pause, a full disk, and what the machine had to wait for: no reason, and a hint. Short ones are no hint."""
    end: dict[str, Any] = {"last_pause": 2.5, "pressure": Pressure(cpu=19.9, memory=45.2, io=20), "full_disk": "/logs"}
    said = verdict(facts(**process(137, oom_kills=0, **end))).facts
    assert said[1:] == (
        "The disk of /logs was full.",
        "In its last minute it paused for 2.5 s to collect garbage.",
        "In its last minute tasks of its machine waited 45 % of the time for memory and 20 % of the time for the disk.",
    )
    end = {"last_pause": 0.9, "pressure": Pressure(cpu=19.9)}
    assert len(verdict(facts(**process(137, oom_kills=0, **end))).facts) == 1
