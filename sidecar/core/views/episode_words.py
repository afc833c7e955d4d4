"""One failover in words, for terminals, the page and the API."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from sidecar.core.cluster.record_lines import (
    MOST_LINES,
    cluster_line,
    death_line,
    evidence_outcome,
    job_line,
    lasted,
    moved,
    transition_line,
)
from sidecar.core.counted import shortened
from sidecar.core.records import Annotation, Death, Evidence, Notification
from sidecar.core.sanitize import clean, printable
from sidecar.core.views import stages
from sidecar.core.views.episode_view import EpisodeView
from sidecar.core.views.explain import Explanation

_NOTE_WIDTH: Final = 100
"""Characters of a line of a note in a terminal."""

Fact = tuple[str, Sequence[str]]
"""A name, and at least one line."""


def in_words(explained: Explanation) -> Iterator[str]:
    """The facts, notifications, evidence and notes of an episode, then its transitions in order; a line each."""
    evidence, notes = map(_of_evidence, explained.evidence), map(_note, explained.annotations)
    stages_in_words = [("stages", lines)] if (lines := list(stages.in_words(explained.stages))) else []
    notified = _notifications(explained.notifications)
    yield from below_names((*facts(explained, with_jobs=True), *stages_in_words, *notified, *evidence, *notes))
    if explained.transitions:
        yield ""
    first = [f"{each.observed_at} {transition_line(each)}" for each in explained.transitions[:MOST_LINES]]
    yield from shortened(first, MOST_LINES, explained.transitions_total)


def below_names(parts: Iterable[Fact]) -> Iterator[str]:
    """The lines of each part, the first one behind its name."""
    for name, (first, *others) in parts:
        yield f"{name:10} {first}"
        yield from (f"{'':10} {line}" for line in others)


def facts(explained: Explanation, *, with_jobs: bool = False) -> Iterator[Fact]:
    """What is known of the episode as a whole; `with_jobs`: also what became of each job."""
    yield "episode", [explained.id]
    if episode := explained.episode:
        yield from _of_episode(episode, explained.death)
    elif explained.transitions:
        begin = explained.transitions[0]
        yield "cluster", [clean(begin.cluster_id)]
        yield "from", [f"{begin.observed_at}, in progress: the cause is decided when it is over"]
    if now := explained.status:
        step = [f"Next: {now.next_step}"] if now.next_step else []
        yield "status", [f"{now.status} since {now.status_since}: {now.sentence}", *step]
    elif then := explained.last_status:
        yield "status", [clean(f"{then.status} until the next failover: {then.sentence}")]
    if recovery := explained.recovery:
        jobs = shortened([*map(job_line, recovery.jobs)], MOST_LINES, recovery.jobs_total, "job") if with_jobs else []
        yield "recovery", [cluster_line(recovery), *jobs]


def _notifications(notifications: Sequence[Notification]) -> Iterator[Fact]:
    """What became of each notification, by its last attempt; suppressed alerts that differ in their subject alone are one line."""
    last = {notification.delivery_id or notification.id: notification for notification in notifications}.values()
    if lines := list(dict.fromkeys(map(_outcome, last))):
        yield "notified", shortened(lines, MOST_LINES)


def _outcome(notification: Notification) -> str:
    to, detail = notification.destination or notification.receiver, notification.detail
    silence = f" {notification.silence_id}" if notification.silence_id else ""
    subject = f"{notification.alert} {notification.reason}{silence}"
    return clean(
        f"{to}: {subject} {notification.outcome} at {notification.observed_at}{f': {detail}' if detail else ''}"
    )


def _note(annotation: Annotation) -> Fact:
    by = f" by {clean(annotation.author)}" if annotation.author else ""
    planned = ": planned" if annotation.planned else ""
    return "note", [
        f"{annotation.observed_at}{by}{planned}",
        *wrap(printable(annotation.reason), _NOTE_WIDTH, break_long_words=False),
    ]


def _of_evidence(evidence: Evidence) -> Fact:
    outcome = f"{evidence_outcome(evidence)} by {clean(evidence.observer)}"
    lines = [outcome, evidence.detail, evidence.file and f"file {evidence.file}"]
    return "evidence", [clean(line) for line in lines if line]


def _of_episode(episode: EpisodeView, death: Death | None) -> Iterator[Fact]:
    yield "cluster", [clean(episode.cluster_id)]
    end, so_far = (
        (f" to {episode.closed_at}", "") if episode.closed_at else (", in progress", ", as far as is known now")
    )
    yield "from", [f"{episode.opened_at}{end}"]
    yield "cause", [f"{episode.cause} ({episode.confidence}){so_far}", *map(clean, episode.facts)]
    if death:
        yield "died", [death_line(death), *map(clean, death.facts)]
    if episode.planned is not None:
        yield "planned", ["yes" if episode.planned else "no"]
    if episode.closed_at and not episode.failovers:
        return
    followed = [f"{episode.failovers} leaders in succession"] if episode.failovers > 1 else []
    if episode.after_address:
        yield "leader", [moved(episode), *followed]
    if not episode.closed_at:
        return
    vacant = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in episode.vacant_seconds_by_component.items())
    published = f"published: {vacant}" if vacant else "published: no gap was observed"
    if episode.downtime_seconds_at_least is None:
        yield "no leader", [published if vacant else "not known: this sidecar did not observe the change"]
    else:
        down = lasted(episode.downtime_seconds_at_least, episode.downtime_seconds_at_most)
        yield "no leader", [published, f"working: {down}"]
    if episode.jobs_total:
        yield "jobs", [_counts(episode)]


def _counts(episode: EpisodeView) -> str:
    """How many jobs lost their leader, and what became of these."""
    if not episode.jobs_affected:
        return f"none of {episode.jobs_total} was observed to fail over"
    lost = episode.jobs_lost or 0
    counts = {
        f"{lost} lost (Flink does not know {'it' if lost == 1 else 'them'} any more)": lost,
        f"{episode.jobs_ended - lost} ended in it": episode.jobs_ended - lost,
        f"{episode.jobs_missing} still without a leader": episode.jobs_missing,
    }
    parts = [text for text, number in counts.items() if number]
    return ", ".join([f"{episode.jobs_affected} of {episode.jobs_total} failed over", *parts])
