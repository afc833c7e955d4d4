"""What a drill found, derived from records, while it lasts and for `drill report` afterwards; and whether it has passed."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.failover.causes import Cause
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import SECOND, Timestamp, in_seconds, parsed, timestamp
from sidecar.core.records import (
    AnyRecord,
    Coverage,
    Death,
    Drill,
    EpisodeRecord,
    Notification,
    Recovery,
    TransitionRecord,
)
from sidecar.core.sanitize import clean

MOST_JOBS: Final = 50
"""The most jobs kept by name, the worst first; the others are counted."""
MOST_HIDDEN: Final = 100
"""Alerts and receivers that are kept."""
_LOST: Final = frozenset({Kind.REVOKED.value, Kind.CHANGED.value})


class DrillMessage(Struct, frozen=True):
    """The result of the drill's message to one destination."""

    queued_at: Timestamp
    outcome: str = "queued"
    """The outcome of the last attempt, as in `notification` records."""
    at: Timestamp | None = None
    """When the last attempt ended. Null: there was none."""
    detail: str | None = None

    @property
    def arrived(self) -> bool:
        return self.outcome in {"delivered", "already_told"}


class Findings(Struct, frozen=True):
    """The known facts about the failover in a drill's window, its messages, and the alerts that the drill hid."""

    episode_id: str | None = None
    lost_at: Timestamp | None = None
    """When the first component was observed to have lost its leader."""
    episode: EpisodeRecord | None = None
    """The failover, when it is over."""
    death: Death | None = None
    recovery: Recovery | None = None
    """The row of the cluster."""
    jobs: tuple[Recovery, ...] = ()
    jobs_total: int = 0
    messages: Mapping[str, DrillMessage] = {}
    """The messages by destination."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Alerts and the receivers that they would have reached, each once."""
    hidden_total: int = 0
    blind: bool = False
    """Whether the observer was blind for a part of the window, or has not seen how the failover in it began."""
    unproven: bool = False
    """Whether the failover may have begun before the observer had read the drill: it is none of the drill's, as far as is known."""


def begins(drill: Drill) -> int:
    """The earliest time (wall microseconds, by the observer's clock) of a failover that belongs to the drill: when the observer learned of
    the drill."""
    return parsed(drill.observed_at)


def findings_of(drill: Drill, records: Iterable[AnyRecord], until: int | None = None) -> Findings:
    """The findings of a drill in the observer's records. `drill`: as it was recorded when it began; `until`: when its window was over."""
    findings = Findings()
    for record in records:
        findings = with_record(findings, drill, record, until)
    return findings


def with_record(  # noqa: PLR0911  one for each type of record
    findings: Findings, drill: Drill, record: AnyRecord, until: int | None = None
) -> Findings:
    """The findings after one more record. `until`: when the window was over (wall microseconds); None: it is not."""
    if record.cluster_id != drill.cluster_id:
        return findings
    match record:
        case TransitionRecord(job_id=None, episode_id=str(episode_id)) if record.kind in _LOST:
            is_first = findings.episode_id is None and _is_within(drill, record.observed_at, until)
            return replace(findings, episode_id=episode_id, lost_at=record.observed_at) if is_first else findings
        case EpisodeRecord() if findings.episode is None and findings.episode_id in {None, record.id}:
            is_part = record.cause != Cause.OBSERVER_BLIND and _is_within(drill, record.opened_at, until)
            if is_part:
                return replace(findings, episode_id=record.id, episode=record, lost_at=record.opened_at)
        case Death() | Recovery() if record.episode_id == findings.episode_id:
            return _with_outcome(findings, record)
        case Notification():
            return _with_notification(findings, drill, record)
        case Coverage(state="blind") if record.began_at < record.ended_at and parsed(record.ended_at) > begins(drill):
            return replace(findings, blind=findings.blind or until is None or parsed(record.began_at) < until)
    return findings


def _with_outcome(findings: Findings, record: Death | Recovery) -> Findings:
    if isinstance(record, Death):
        return replace(findings, death=record)
    if record.job_id is None:
        return replace(findings, recovery=record)
    return replace(findings, jobs=(*findings.jobs, record)[:MOST_JOBS], jobs_total=findings.jobs_total + 1)


def _with_notification(findings: Findings, drill: Drill, record: Notification) -> Findings:
    if record.reason == Reason.DRILL and record.fingerprint == drill.drill_id:
        before = findings.messages.get(record.destination)
        if record.outcome == "queued":
            message = before or DrillMessage(record.queued_at)
        else:
            message = DrillMessage(record.queued_at, record.outcome, record.observed_at, record.detail)
        return replace(findings, messages={**findings.messages, record.destination: message})
    if record.silence_id == drill.drill_id:
        alert = (record.alert, record.receiver)
        hidden = findings.hidden if alert in findings.hidden else (*findings.hidden, alert)[:MOST_HIDDEN]
        return replace(findings, hidden=hidden, hidden_total=findings.hidden_total + 1)
    return findings


def _is_within(drill: Drill, at: Timestamp, until: int | None) -> bool:
    return timestamp(begins(drill)) <= at and (until is None or at <= timestamp(until))


# -- whether it has passed ---------------------------------------------------------------------------------------------


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
