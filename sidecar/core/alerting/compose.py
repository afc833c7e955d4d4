"""The message about a group of alerts: a title, a few lines, and named facts. Plain text; the sender formats it.

Addresses and job ids come from the store and are untrusted: a message has no control characters, and its size is bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Final

from sidecar.core.alerting import phrases, title
from sidecar.core.alerting.alerts import Alert, Notice
from sidecar.core.alerting.moved_jobs import jobs_line, jobs_now
from sidecar.core.alerting.subject import Subject, subject
from sidecar.core.alerting.template_fields import fields
from sidecar.core.alerting.title import Headline
from sidecar.core.cluster.failover import makers_there
from sidecar.core.cluster.next_step import next_step
from sidecar.core.cluster.records.record_lines import succession_line
from sidecar.core.cluster.state import ClusterState
from sidecar.core.cluster.status import SHOWN, Shown
from sidecar.core.counted import counted
from sidecar.core.message import Content, MessageAlert
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Rule, Trigger
from sidecar.core.sanitize import clean

MOST_LINES: Final = 25
"""Lines of alerts in a message. The number of omitted alerts follows."""
MOST_BYTES: Final = 2400
"""UTF-8 bytes of the lines of alerts. With everything else a message stays below 4 KB."""
MOST_OF_JOBS: Final = 600
"""UTF-8 bytes of the lines about restored jobs."""
MOST_SUMMARY: Final = 500
"""Characters of a title from the operator's own template."""
MOST_ALERTS: Final = 50
"""Alerts that services get one by one."""


def compose(notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState], now: Moment | None = None) -> Content:
    """What the notification of `notice` says. `now` None: nothing of the status of its cluster."""
    about = subject(notice, policy, clusters, now)
    headline, failover, status = about.headline, about.failover, about.status
    title, changed, problem = _title(about)
    page = f"episodes/{failover.episode.id}" if failover else ""
    lines = [phrases.line(about.rules[alert.rule], alert, about.pods) for alert in notice.alerts]
    compressed = [*compress(lines, _not_said(notice, about.rules))]
    step = next_step(about.cluster, status.status) if about.cluster and status else None
    return Content(
        title,
        "\n".join(
            [
                *changed,
                *([f"Next: {step.text}"] if step else []),
                *bounded(compressed, MOST_BYTES, len(compressed)),
                *_failover_lines(about, problem),
            ]
        ),
        headline.severity,
        tuple((clean(name), clean(value)) for name, value in _facts(about)),
        None if policy.link is None else f"{policy.link}/{page}",
        failover.episode.id if failover else None,
        tuple(_message_alert(alert, line) for alert, line in zip(notice.alerts[:MOST_ALERTS], lines, strict=False)),
        failover.death if failover else None,
        failover.recovery if failover else None,
        *((status.status.value, status.sentence, *SHOWN[status.status]) if status else ("", "", *_shown(headline))),
    )


def _shown(headline: Headline) -> tuple[str, str]:
    """How a message without a status is shown: by its severity, but what is over is no warning any more."""
    return Shown("blue", "info") if headline.over else Shown("", "")


def _message_alert(alert: Alert, text: str) -> MessageAlert:
    labels = {name: clean(value, MOST_SUMMARY) for name, value in alert.labels.items()}
    return MessageAlert(alert.id, labels, text, alert.began.wall, alert.ended.wall if alert.ended else 0)


def _not_said(notice: Notice, rules: Mapping[str, Rule]) -> Iterator[bool]:
    """Of each alert, whether its line says more than that of another one: who leads after a vacancy is in the line of the leader change."""
    changes = (alert for alert in notice.alerts if rules[alert.rule].on is Trigger.LEADER_CHANGED)
    changed = {(alert.cluster_id, alert.component) for alert in changes}
    for alert in notice.alerts:
        is_end = rules[alert.rule].on is Trigger.VACANT and alert.ended
        yield not is_end or (alert.cluster_id, alert.component) not in changed


def _failover_lines(about: Subject, problem: str | None) -> Iterator[str]:
    """Lines about the failover behind the alerts."""
    if failover := about.failover:
        if failover.death:
            yield ""
            yield succession_line(failover.death, failover.successor, phrases.longest_duration(about.notice.alerts))
            yield from map(clean, failover.death.facts)
        if failover.jobs.moved:
            yield jobs_line(failover.jobs)
        yield from bounded(failover.came_back, MOST_OF_JOBS, len(failover.came_back))
        if failover.verdict.facts:
            yield ""
            yield from map(clean, failover.verdict.facts)
        gathered = failover.episode.gathered
        yield from bounded(gathered.jobs, MOST_OF_JOBS, gathered.jobs_total)
    if problem:
        yield problem


def _facts(about: Subject) -> Iterator[tuple[str, str]]:
    notice, policy, failover = about.notice, about.policy, about.failover
    names = list(dict.fromkeys(alert.cluster_id for alert in notice.alerts))
    if failover:
        yield "cause", f"{failover.verdict.cause} ({failover.verdict.confidence} confidence)"
        if failover.planned:
            yield "planned", failover.planned
        elif lacked := makers_there.lacks(policy, names[0], about.cluster):
            yield "planned", f"not known without {lacked}"
        if death := failover.death:
            yield "death", f"{death.reason} ({death.confidence} confidence)"
    yield "alert", f"{', '.join(dict.fromkeys(alert.rule for alert in notice.alerts))} ({notice.reason.value})"
    yield "cluster", ", ".join(names)
    yield "store", ", ".join(dict.fromkeys(policy.store_of(name).value for name in names))
    yield "observer", policy.observer
    if failover:
        yield "episode", failover.episode.id
        if files := failover.episode.gathered.files:
            yield "evidence", f"{counted(files, 'file')} at {policy.observer}"
        if recovery := failover.recovery:
            yield "recovery", recovery.verdict if recovery.is_over else "still being assessed"
    yield from policy.external_labels.items()


def bounded(lines: Sequence[str], room: int, total: int) -> Iterator[str]:
    """As many lines as fit in `room` bytes and MOST_LINES, then how many of `total` are omitted."""
    for number, line in enumerate(lines):
        room -= len(line.encode())
        if number == MOST_LINES or room < 0:
            yield f"… and {total - number} more"
            return
        yield line
    if total > len(lines):
        yield f"… and {total - len(lines)} more"


def _title(about: Subject) -> tuple[str, list[str], str | None]:
    """The title; what has changed, where the title is the status; and why the operator's own summary could not be used for it."""
    rule, policy, headline, status = about.headline.rule, about.policy, about.headline, about.status
    jobs = jobs_now(about.failover.jobs) if about.failover else ""
    parts = (headline, about.notice, about.pods, jobs, policy.failovers_counted_within())
    label = status.status.value if status else headline.label
    changed = [title.changed(*parts)] if status else []
    own = title.of_status(status, headline.alerts[0].cluster_id) if status else f"[{label}] {title.title(*parts)}"
    if rule.summary is None:
        return own, changed, None
    try:
        return f"[{label}] {clean(' '.join(rule.summary(fields(about)).split()), MOST_SUMMARY)}", changed, None
    except ValueError as error:
        return own, changed, f"(the summary of {rule.alert} could not be made: {clean(str(error))})"
