"""Whether a drill has passed, and what it measured."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.core.drills.findings import Findings
from sidecar.core.moment import SECOND, in_seconds, parsed
from sidecar.core.records import Drill
from sidecar.core.sanitize import clean


class Result(StrEnum):
    """The result of a drill, the worst first."""

    FAILED = "failed"
    UNKNOWN = "unknown"
    PASSED = "passed"


_PROVEN: Final = {"recovered": Result.PASSED, "degraded": Result.FAILED, "lost": Result.FAILED}


class DrillJudgement(NamedTuple):
    """A result, and why it is not `passed`: a sentence each."""

    result: Result
    reasons: tuple[str, ...]


def judged(drill: Drill, findings: Findings, until: int | None = None, *, is_final: bool = False) -> DrillJudgement:
    """Whether what the drill expects has happened. `drill`: as it began; `until`: when its window was over (wall microseconds);
    `is_final`: no more becomes known.
    """
    shortcomings = [
        *_failover(findings, until, is_final=is_final),
        *_recovery(drill, findings),
        *_messages(drill, findings, is_final=is_final),
    ]
    results = {result for result, _ in shortcomings}
    worst = next((result for result in Result if result in results), Result.PASSED)
    return DrillJudgement(worst, tuple(reason for _, reason in shortcomings))


def _failover(findings: Findings, until: int | None, *, is_final: bool) -> Iterator[tuple[Result, str]]:
    """The results that the failover leaves short of `passed`, each with the reason."""
    if findings.episode_id is None:
        if until is None:
            yield Result.UNKNOWN, "No failover was observed yet."
        elif findings.blind:
            yield Result.UNKNOWN, "No failover was observed to begin, and this sidecar could not see all of the window."
        else:
            yield Result.FAILED, "No failover was observed in the window."
    elif findings.unproven:
        yield (
            Result.UNKNOWN,
            "The failover may have begun before this sidecar had read the drill: its alerts were sent.",
        )
    elif findings.episode is None and not is_final:
        yield Result.UNKNOWN, "Not every component has a leader again yet."
    elif findings.episode is None or (until is not None and parsed(findings.episode.closed_at) > until):
        yield Result.FAILED, "Not every component had a leader again when the window ended."


def _recovery(drill: Drill, findings: Findings) -> Iterator[tuple[Result, str]]:
    if findings.episode is None:
        return
    if findings.episode.jobs_lost:
        yield Result.FAILED, f"The failover lost {findings.episode.jobs_lost} jobs."
    if findings.recovery is None:
        if drill.assessed:
            yield Result.UNKNOWN, "The recovery is not assessed yet."
    elif (result := _PROVEN.get(findings.recovery.verdict, Result.UNKNOWN)) is not Result.PASSED:
        why = " ".join(clean(reason) for reason in findings.recovery.reasons)
        yield result, f"The recovery is {clean(findings.recovery.verdict)}. {why}".rstrip()


def _messages(drill: Drill, findings: Findings, *, is_final: bool) -> Iterator[tuple[Result, str]]:
    for name in drill.receivers:
        message = findings.messages.get(name)
        if message is None or not message.arrived:
            gave_up = message is not None and message.outcome in {"gave_up", "not_sent"}
            why = f": {clean(message.detail)}" if message and message.detail else ""
            lost = is_final or gave_up
            state = "did not reach" if lost else "has not reached"
            yield Result.FAILED if lost else Result.UNKNOWN, f"The message {state} {clean(name)}{why}."


class Figures(NamedTuple):
    """The measurements of a drill, with the names of its record. None: not known."""

    detected_after_seconds: float | None
    detected_after_seconds_at_most: float | None
    leaderless_seconds: float | None
    led_after_seconds: float | None
    running_after_seconds: float | None


def figures(findings: Findings) -> Figures:
    if findings.lost_at is None:
        return Figures(None, None, None, None, None)
    lost, episode = parsed(findings.lost_at), findings.episode
    ended_at = findings.death.ended_at if findings.death else None
    # A leader that withdraws in order ends after the loss of its leadership was observed.
    began = min(lost, parsed(ended_at)) if ended_at else lost
    led_at = (findings.recovery.led_at if findings.recovery else None) or (episode.closed_at if episode else None)
    vacant, down = (episode.vacant_seconds, episode.downtime_seconds_at_most) if episode else (None, None)
    return Figures(
        in_seconds(lost - began) if ended_at else None,
        None if vacant is None or down is None else max(0.0, round(down - vacant, 6)),
        vacant,
        in_seconds(max(0, parsed(led_at) - began)) if led_at else None,
        findings.recovery.running_after_seconds if findings.recovery else None,
    )


SETTLING: Final = 900 * SECOND
"""How long after its window a drill waits at most for the end of its failover, for the verdict and for its messages."""
