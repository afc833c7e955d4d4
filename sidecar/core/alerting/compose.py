"""The message about a group of alerts: a title, a few lines, and named facts. Plain text; the sender formats it.

Addresses and job ids come from the store and are untrusted: a message has no control characters, and its size is bounded.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sidecar.core.alerting import phrases, title
from sidecar.core.alerting.alerts import Alert, Notice
from sidecar.core.alerting.subject import Failover, Subject, jobs_line, jobs_now, subject
from sidecar.core.alerting.template_fields import fields
from sidecar.core.captures import Gathered
from sidecar.core.cluster.advice import next_step
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.record_lines import succession_line
from sidecar.core.cluster.status import SHOWN, Shown
from sidecar.core.counted import counted, shortened
from sidecar.core.failover import planned
from sidecar.core.message import Content, MessageAlert
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Trigger
from sidecar.core.sanitize import clean

_WHERE: Final = " in `explain`"
MOST_BODY: Final = 600
"""Characters that the lines above the facts are to have: details are left out until they do."""
MOST_LINES: Final = 25
MOST_BYTES: Final = 2400
"""UTF-8 bytes of these lines in storms: who leads is no detail. With everything else a message stays below 4 KB."""
MOST_SUMMARY: Final = 500
"""Characters of a title from the operator's own template."""
MOST_ALERTS: Final = 50
"""Alerts that services get one by one."""
_MOVES: Final = frozenset(
    {
        *(Trigger.LEADER_CHANGED, Trigger.JOB_LEADER_CHANGED, Trigger.SAME_PROCESS_REELECTION),
        *(Trigger.PLANNED_FAILOVER, Trigger.VACANT, Trigger.SPLIT),
    }
)
"""Triggers of alerts about leaders that went or came: components that moved alike are one line."""


class _Line(NamedTuple):
    """A line above the facts."""

    text: str
    is_detail: bool = False
    """Whether it may be left out of the message: `explain` and the page have it."""


def compose(notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState], now: Moment | None = None) -> Content:
    """What the notification of `notice` says. `now` None: nothing of the status of its cluster."""
    about = subject(notice, policy, clusters, now)
    headline, failover, status = about.headline, about.failover, about.status
    title, changed, problem = _title(about)
    page = f"episodes/{failover.episode.id}" if failover else ""
    step = next_step(about.cluster, status.status) if about.cluster and status else None
    happened, moved = _alert_lines(about)
    jobs = failover.episode.gathered if failover else Gathered()  # what became of them, as Flink said
    gathered = shortened(jobs.jobs, len(jobs.jobs), jobs.jobs_total, "job")
    # Without a status it is shown by its severity, but what is over is no warning any more.
    shown = Shown("blue", "info") if headline.over else Shown("", "")
    lines = [
        *map(_Line, changed),
        *([_Line(f"Next: {step.text}")] if step else []),
        *([_Line(problem)] if problem else []),
        *(_failover_lines(failover, notice) if failover else ()),
        *happened,
        *map(_Line, moved),
        *(_Line(job, is_detail=True) for job in gathered),
    ]
    return Content(
        title,
        "\n".join(bounded([*_without_details(lines)])),
        headline.severity,
        tuple((clean(name), clean(value)) for name, value in _facts(about)),
        None if policy.link is None else f"{policy.link}/{page}",
        failover.episode.id if failover else None,
        tuple(_message_alert(alert, about) for alert in notice.alerts[:MOST_ALERTS]),
        failover.death if failover else None,
        failover.recovery if failover else None,
        *((status.status.value, status.sentence, *SHOWN[status.status]) if status else ("", "", *shown)),
    )


def _message_alert(alert: Alert, about: Subject) -> MessageAlert:
    labels = {name: clean(value, MOST_SUMMARY) for name, value in alert.labels.items()}
    text = phrases.line(about.rules[alert.rule], [alert], about.pods)
    return MessageAlert(alert.id, labels, text, alert.began.wall, alert.ended.wall if alert.ended else 0)


def _alert_lines(about: Subject) -> tuple[list[_Line], list[str]]:
    """What happened; and which leaders went and came, which the title says in short: those of one failover that moved alike in one line."""
    happened: list[_Line] = []
    news = {alert.id for alert in about.notice.changed}
    alike = defaultdict[Hashable, list[Alert]](list)
    changes = (alert for alert in about.notice.alerts if about.rules[alert.rule].on is Trigger.LEADER_CHANGED)
    changed = {(alert.cluster_id, alert.component) for alert in changes}
    for alert in about.notice.alerts:
        rule = about.rules[alert.rule]
        if rule.on not in _MOVES:
            happened.append(
                _Line(phrases.line(rule, [alert], about.pods), is_detail=bool(news) and alert.id not in news)
            )
        elif rule.on is not Trigger.VACANT or not alert.ended or (alert.cluster_id, alert.component) not in changed:
            hosts = phrases.host(alert.before), phrases.host(alert.after)
            whose = alert.cluster_id, alert.episode_id, phrases.is_of_a_job(alert)
            alike[alert.rule, bool(alert.ended), whose, hosts].append(alert)
    longest = (sorted(alerts, key=phrases.longest_vacancy, reverse=True) for alerts in alike.values())
    return happened, [phrases.line(about.rules[alerts[0].rule], alerts, about.pods) for alerts in longest]


def _failover_lines(failover: Failover, notice: Notice) -> Iterator[_Line]:
    """Why it happened, and what it means for the jobs. What else leaves the same facts is no news at night."""
    if failover.death:
        yield _Line(succession_line(failover.death, failover.successor, phrases.longest_duration(notice.alerts)))
    yield from (_Line(line, is_detail=True) for line in failover.came_back.affected)
    yield from (_Line(line, is_detail=number > 0) for number, line in enumerate(failover.came_back.now))
    if failover.jobs.away or failover.jobs.ended:
        are_counted = bool(failover.came_back.now) or any(map(phrases.is_of_a_job, notice.alerts))
        yield _Line(jobs_line(failover.jobs), is_detail=are_counted)
    facts = (fact for fact in failover.verdict.facts if fact != failover.verdict.alike)
    for fact in (*facts, *(failover.death.facts if failover.death else ())):
        yield _Line(clean(fact), is_detail=fact not in failover.failed[-1:])


def _without_details(lines: Sequence[_Line]) -> Iterator[str]:
    """All that is no detail, and as many details as have room beside it, then how many have none."""
    room = MOST_BODY - sum(len(line.text) + 1 for line in lines if not line.is_detail)
    details = sum(len(line.text) + 1 for line in lines if line.is_detail)
    if details > room:
        room -= len(_more_details(len(lines))) + 1
    left_out = written = 0
    for line in lines:
        size = len(line.text) + 1 if line.is_detail else 0
        if size > max(room, 0):
            left_out += 1
            continue
        room -= size
        written += len(line.text) + 1
        yield line.text
    if left_out:
        more = _more_details(left_out)
        yield more if written + len(more) <= MOST_BODY else more.removesuffix(_WHERE)


def _more_details(number: int) -> str:
    return f"… and {counted(number, 'more line')}{_WHERE}"


def _facts(about: Subject) -> Iterator[tuple[str, str]]:
    notice, policy, failover = about.notice, about.policy, about.failover
    names = list(dict.fromkeys(alert.cluster_id for alert in notice.alerts))
    if failover:
        yield "cause", f"{failover.verdict.cause} ({failover.verdict.confidence} confidence)"
        if failover.planned:
            yield "planned", failover.planned
        elif lacked := planned.lacks(policy, names[0], about.cluster):
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


def bounded(lines: Sequence[str]) -> Iterator[str]:
    """As many lines as fit in MOST_BYTES and MOST_LINES, then how many do not."""
    room = MOST_BYTES
    for number, line in enumerate(lines):
        room -= len(line.encode())
        if number == MOST_LINES or room < 0:
            yield f"… and {counted(len(lines) - number, 'more line')}"
            return
        yield line


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
