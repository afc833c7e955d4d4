"""Derives the findings of a drill from records, for the sidecar while the drill lasts and for `drill report` afterwards."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Reason
from sidecar.core.failover.causes import Cause
from sidecar.core.leadership.transitions import Kind
from sidecar.core.moment import Timestamp, parsed, timestamp
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
