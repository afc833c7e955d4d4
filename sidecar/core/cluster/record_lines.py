"""Records as lines that people read, in a log or in a terminal.

Addresses and job ids come from the store and are untrusted: control characters never reach a line.
"""

from typing import Final

from sidecar.core.cluster.leadership_table import Kind
from sidecar.core.cluster.outcome_lines import death_line, recovery_line
from sidecar.core.moment import SECOND, bounds
from sidecar.core.pods import spelled
from sidecar.core.records import (
    Annotation,
    AnyRecord,
    Contention,
    Coverage,
    Death,
    Drill,
    EpisodeRecord,
    Evidence,
    HaCheck,
    Notification,
    Recovery,
    TransitionRecord,
)
from sidecar.core.sanitize import clean

MOST_LINES: Final = 25
"""Of one failover's transitions."""
DUPLICATE_NOTE: Final = "This may be a duplicate: an earlier attempt may have arrived."


def transition_line(transition: TransitionRecord) -> str:
    """What happened, as one line of a log or a terminal."""
    before, after = (clean(address or "") for address in (transition.before_address, transition.after_address))
    where = f"{before} -> {after}" if before and after else before or after or transition.reason or ""
    vacant = (
        f"  no published leader for {transition.vacant_seconds:.3f} s" if transition.vacant_seconds is not None else ""
    )
    down = working(transition.downtime_seconds_at_least, transition.downtime_seconds_at_most)
    missed = f"  {_missed(transition)}" if transition.unobserved_at_least else ""
    component = f"{transition.component} {transition.job_id}" if transition.job_id else transition.component
    why = f"  {transition.reason}" if transition.reason and transition.kind == Kind.REVOKED else ""
    return f"{transition.kind:11} {transition.pattern:8} {component:45} {where}{why}{vacant}{f'  {down}' if down else ''}{missed}".rstrip()


def _missed(transition: TransitionRecord) -> str:
    least = "at least " if transition.unobserved is None else ""
    return f"{least}{transition.unobserved_at_least} unobserved"


def episode_line(episode: EpisodeRecord) -> str:
    """A failover that is over, as one line of a log."""
    moved = move(spelled(episode.before_address, episode.before_pod), spelled(episode.after_address, episode.after_pod))
    lasted = f", no published leader for {episode.vacant_seconds:.3f} s" if episode.vacant_seconds is not None else ""
    down = working(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
    jobs = f", {episode.jobs_affected} of {episode.jobs_total} jobs" if episode.jobs_total else ""
    missing = f", {episode.jobs_missing} still without a leader" if episode.jobs_missing else ""
    what = f"failover {moved}" if episode.failovers else "no failover"
    planned = ", planned" if episode.planned else ""
    return f"{what}: {episode.cause} ({episode.confidence}){planned}{lasted}{f', {down}' if down else ''}{jobs}{missing} [{episode.id}]"


def working(at_least: float | None, at_most: float | None) -> str:
    """For how long no leader worked, in words: seconds, as records have them. Nothing where nothing is known."""
    return f"no working leader for {lasted(at_least, at_most)}" if at_least is not None else ""


def lasted(at_least: float, at_most: float | None) -> str:
    """Bounds in seconds, for people."""
    return bounds(round(at_least * SECOND), None if at_most is None else round(at_most * SECOND))


def coverage_line(coverage: Coverage) -> str:
    """A coverage record as one line."""
    return f"{coverage.state} from {coverage.from_} to {coverage.to}"


def record_line(record: AnyRecord, *, named: bool = False) -> str:
    """What happened, as one line of a log or a terminal; `named`: in which cluster, too."""
    return f"{clean(record.cluster_id)}: {_line(record)}" if named else _line(record)


def _line(record: AnyRecord) -> str:  # noqa: PLR0911  one for each type of record
    match record:
        case TransitionRecord():
            return transition_line(record)
        case EpisodeRecord():
            return episode_line(record)
        case Contention():
            return contention_line(record)
        case Notification():
            return notification_line(record)
        case Coverage():
            return coverage_line(record)
        case Annotation():
            return annotation_line(record)
        case Evidence():
            return evidence_line(record)
        case Death():
            return f"{death_line(record)} [{record.episode_id}]"
        case Recovery():
            return f"{recovery_line(record)} [{record.episode_id}]"
        case HaCheck():
            return ha_check_line(record)
        case Drill():
            return drill_line(record)


def ha_check_line(check: HaCheck) -> str:
    """What a check of high availability found, as one line."""
    before = f" (before: {check.verdict_before})" if check.verdict_before not in {None, check.verdict} else ""
    return f"check {check.check}: {check.verdict}{before}: {clean(check.finding)}"


def contention_line(contention: Contention) -> str:
    """Who contends, as one line of a log."""
    before = "" if contention.contenders_before is None else f" (before: {contention.contenders_before})"
    standby = ": no standby left" if contention.contenders == 1 else ""
    return f"{contention.component or 'all components'}: contenders {contention.contenders}{before}{standby}"


def notification_line(notification: Notification) -> str:
    """What became of a notification, as one line of a log."""
    detail = f": {clean(notification.detail)}" if notification.detail else ""
    attempt = f" (attempt {notification.attempt})" if notification.attempt else ""
    by = f" {notification.silence_id}" if notification.silence_id else ""
    subject = "".join(f" {clean(part)}" for part in (notification.component, notification.job_id) if part)
    where = notification.destination or notification.receiver
    what = f"{notification.alert}{subject} {notification.reason}{by} to {where}"
    return f"{what}: {notification.outcome}{attempt}{detail}"


def drill_line(drill: Drill) -> str:
    """That a drill has begun, or its result, as one line."""
    if drill.result is None:
        until = f"until {drill.ends_at[:19]}Z, expects {clean(drill.expects)}"
        return f"drill started by {clean(drill.author)}, {until} [{drill.drill_id}]"
    why = f": {' '.join(map(clean, drill.reasons))}" if drill.reasons else ""
    return f"drill {clean(drill.result)}{why} [{drill.drill_id}]"


def annotation_line(annotation: Annotation) -> str:
    """What an operator noted, as one line."""
    by = f" by {clean(annotation.author)}" if annotation.author else ""
    planned = ", planned" if annotation.planned else ""
    return f"note{by}{planned}: {clean(annotation.reason)} [{annotation.episode_id}]"


def evidence_line(evidence: Evidence) -> str:
    """What was captured, or why it was not, as one line."""
    where = f" in {evidence.file}" if evidence.file else ""
    detail = f": {clean(evidence.detail)}" if evidence.detail else ""
    return f"evidence: {evidence_outcome(evidence)}{where}{detail}"


def evidence_outcome(evidence: Evidence) -> str:
    """What of whom, and what became of it."""
    return f"{evidence.kind} of {clean(evidence.subject) or '?'}: {evidence.outcome}"


def move(before: str | None, after: str | None) -> str:
    """From whom to whom, by `host:port`."""
    before, after = clean(before or "?"), clean(after or "?")
    return f"{before} → {after}" if before != after else f"{after}, with a new session id"
