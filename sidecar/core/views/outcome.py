"""What became of a failover beside its cause: why the process died, whether everything came back, and whether anybody has reviewed it.

From the records that follow it, of one observer or of several: what is proven is preferred, and of that the worst.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct, convert
from msgspec.structs import replace

from sidecar.core.failover.causes import Cause
from sidecar.core.moment import Timestamp
from sidecar.core.records import Annotation, Death, EpisodeRecord, Recovery, StatusRecord

_CONFIDENCES: Final = ("none", "medium", "high")
_VERDICTS: Final = ("unproven", "recovered", "degraded", "lost")
_OUTCOMES: Final = ("missing", "resurrected", "unproven", "ended", "running")
"""Of jobs, the worst first."""
_RESTORED: Final = ("nothing", "older")
"""From what jobs that run were restored, the worst first."""


class EpisodeOutcome(Struct, frozen=True):
    """Of one failover, for lists. Null: nothing is recorded."""

    death: Death | None = None
    verdict: str | None = None
    reviewed: bool = False
    """Whether somebody has annotated it."""
    status: StatusRecord | None = None
    """The last one of its cluster before another failover followed."""


class RecoveryView(Struct, frozen=True, kw_only=True):
    """Whether everything came back, as one observer judged it: the fields of its record of the cluster, and its records of jobs."""

    verdict: str
    """`recovered`, `degraded` (some of it is back), `lost` (a job is missing or lost its state) or `unproven`."""
    reasons: list[str] = []
    """Why it is not `recovered`, a sentence each."""
    observer: str
    dead_at: Timestamp | None = None
    led_at: Timestamp | None = None
    dispatcher_led_at: Timestamp | None = None
    running_at: Timestamp | None = None
    checkpointed_at: Timestamp | None = None
    running_after_seconds: float | None = None
    """Until all jobs ran, from the death of the previous leader, or else from the loss of its leadership. Null: not known."""
    task_managers_before: int | None = None
    task_managers_after: int | None = None
    task_managers_missing: list[str] = []
    """The first hundred of those that did not register with the new leader."""
    jobs: Sequence[Recovery] = ()
    """The worst first: what is missing, what lost state, then what took longest."""
    jobs_total: int = 0
    """The number of all jobs: of very many not all records are kept."""


def outcomes_of(
    records: Iterable[Death | Recovery | Annotation | StatusRecord],
    earlier: Mapping[str, EpisodeOutcome] = MappingProxyType({}),
) -> dict[str, EpisodeOutcome]:
    """What the records say of the failovers that they are about, by their ids; added to what `earlier` ones said."""
    outcomes: dict[str, EpisodeOutcome] = {}
    for record in records:
        if record.episode_id is None:
            continue
        outcome = outcomes.get(record.episode_id) or earlier.get(record.episode_id, EpisodeOutcome())
        match record:
            case Death():
                outcome = replace(outcome, death=best_death(filter(None, (outcome.death, record))))
            case Recovery():
                verdicts = filter(None, (outcome.verdict, record.verdict))
                outcome = replace(outcome, verdict=max(verdicts, key=lambda verdict: _rank(_VERDICTS, verdict)))
            case Annotation():
                outcome = replace(outcome, reviewed=True)
            case StatusRecord():
                outcome = replace(outcome, status=later(outcome.status, record))
        outcomes[record.episode_id] = outcome
    return outcomes


def needs_review(episode: EpisodeRecord, outcomes: Mapping[str, EpisodeOutcome]) -> bool:
    """Whether nobody has annotated it yet. Of a time in which only this sidecar was blind there is nothing to review."""
    return episode.cause != Cause.OBSERVER_BLIND and not outcomes.get(episode.id, EpisodeOutcome()).reviewed


def later(status: StatusRecord | None, other: StatusRecord) -> StatusRecord:
    """The one that was observed later, of equal ones the other."""
    return status if status and status.observed_at > other.observed_at else other


def best_death(deaths: Iterable[Death]) -> Death | None:
    """The one with the highest confidence, the first of equal ones."""
    return max(deaths, key=lambda death: _rank(_CONFIDENCES, death.confidence), default=None)


def recovery_of(rows: Sequence[Recovery], jobs_total: int) -> RecoveryView | None:
    """The worst proven verdict of all observers, with the jobs as that observer saw them; of several rows of one job the first. None: there
    is no row.
    """
    worst = max(rows, key=lambda row: _rank(_VERDICTS, row.verdict), default=None)
    if worst is None:
        return None
    own: dict[str | None, Recovery] = {}
    for row in rows:
        if row.observer == worst.observer:
            own.setdefault(row.job_id, row)
    of_cluster = own.pop(None, None)
    view = (
        convert(of_cluster, RecoveryView, from_attributes=True)
        if of_cluster
        else RecoveryView(verdict=worst.verdict, observer=worst.observer)
    )
    jobs = sorted(own.values(), key=_urgency)
    return replace(view, jobs=jobs, jobs_total=max(jobs_total, len(jobs)))


def _urgency(job: Recovery) -> tuple[int, int, float]:
    outcome = _OUTCOMES.index(job.outcome) if job.outcome in _OUTCOMES else 0
    restored = _RESTORED.index(job.restored_from) if job.restored_from in _RESTORED else len(_RESTORED)
    return outcome, restored, -(job.running_after_seconds or 0)


def _rank(order: Sequence[str], value: str) -> int:
    """The place of a value; what a newer version wrote comes first, so that what is understood is preferred."""
    return order.index(value) if value in order else -1
