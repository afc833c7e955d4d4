"""The message about a group of alerts: a title, a few lines, and named facts. Plain text; the sender formats it.

Addresses and job ids come from the store and are untrusted: a message has no control characters, and its size is bounded.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from sidecar.core.alerting import phrases
from sidecar.core.alerting.alerts import Alert, Notice, Reason
from sidecar.core.alerting.subject import WITH_JOBS, Failover, Headline, Subject, jobs_line, jobs_now, subject
from sidecar.core.captures import Gathered
from sidecar.core.cluster.advice import next_step
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.record_lines import death_line, succession_line
from sidecar.core.cluster.status import SHOWN, ClusterStatus, Shown
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.counted import counted, shortened
from sidecar.core.failover import planned
from sidecar.core.failover.death_verdict import DeathVerdict
from sidecar.core.message import Content, MessageAlert
from sidecar.core.pods import Pods, name_at
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.triggers import ABOUT_LEADERS, Trigger
from sidecar.core.sanitize import clean, clean_values

_WHERE: Final = " in `explain`"
MOST_BODY: Final = 600
"""Characters that the lines above the facts are to have: details are left out until they do."""
MOST_TITLE: Final = 80
"""Characters of a title with its label."""
_SHORTEST_NAME: Final = 12
"""Characters of a cluster's id that a title keeps in any case."""
_WHOLE_NAME: Final = 36
"""Characters of it that a title keeps beside a status."""
MOST_LINES: Final = 25
MOST_BYTES: Final = 2400
"""UTF-8 bytes of these lines in storms: who leads is no detail. With everything else a message stays below 4 KB."""
MOST_SUMMARY: Final = 500
"""Characters of a title from the operator's own template."""
MOST_ALERTS: Final = 50
"""Alerts that services get one by one."""


class _Line(NamedTuple):
    """A line above the facts."""

    text: str
    is_detail: bool = False
    """Whether it may be left out of the message: `explain` and the page have it."""


def compose(
    notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState], statuses: Statuses | None = None
) -> Content:
    """What the notification of `notice` says. `statuses` None: nothing of the status of its cluster."""
    about = subject(notice, policy, clusters, statuses)
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
        "\n".join(bounded(_without_details(lines))),
        headline.severity,
        tuple([(name, clean(value)) for name, value in _facts(about)]),
        None if policy.link is None else f"{policy.link}/{page}",
        failover.episode.id if failover else None,
        tuple([_message_alert(alert, about) for alert in notice.alerts[:MOST_ALERTS]]),
        failover.death if failover else None,
        failover.recovery if failover else None,
        *((status.status.value, status.sentence, *SHOWN[status.status]) if status else ("", "", *shown)),
    )


def _message_alert(alert: Alert, about: Subject) -> MessageAlert:
    text = phrases.line(about.rules[alert.rule], [alert], about.pods)
    return MessageAlert(
        alert.id,
        clean_values(alert.labels, MOST_SUMMARY),
        text,
        alert.began.wall,
        alert.ended.wall if alert.ended else 0,
    )


def _alert_lines(about: Subject) -> tuple[list[_Line], list[str]]:
    """What happened; and which leaders went and came, which the title says in short: those of one failover that moved alike in one line."""
    happened: list[_Line] = []
    news = {alert.id for alert in about.notice.changed}
    alike = defaultdict[Hashable, list[Alert]](list)
    changes = [alert for alert in about.notice.alerts if about.rules[alert.rule].on is Trigger.LEADER_CHANGED]
    changed = {(alert.cluster_id, alert.component) for alert in changes}
    for alert in about.notice.alerts:
        rule = about.rules[alert.rule]
        if rule.on not in ABOUT_LEADERS:
            happened.append(
                _Line(phrases.line(rule, [alert], about.pods), is_detail=bool(news) and alert.id not in news)
            )
        elif rule.on is not Trigger.VACANT or not alert.ended or (alert.cluster_id, alert.component) not in changed:
            hosts = phrases.host(alert.before), phrases.host(alert.after)
            whose = alert.cluster_id, alert.episode_id, phrases.is_of_a_job(alert)
            alike[alert.rule, bool(alert.ended), whose, hosts].append(alert)
    longest = [sorted(alerts, key=phrases.longest_vacancy, reverse=True) for alerts in alike.values()]
    return happened, [phrases.line(about.rules[alerts[0].rule], alerts, about.pods) for alerts in longest]


def _failover_lines(failover: Failover, notice: Notice) -> list[_Line]:
    """Why it happened, and what it means for the jobs. What else leaves the same facts is no news at night."""
    lines: list[_Line] = []
    death = failover.death
    if death:
        lines.append(_Line(succession_line(death, failover.successor, phrases.longest_duration(notice.alerts))))
    lines += [_Line(line, is_detail=True) for line in failover.came_back.affected]
    lines += [_Line(line, is_detail=number > 0) for number, line in enumerate(failover.came_back.now)]
    if failover.jobs.away or failover.jobs.ended:
        are_counted = bool(failover.came_back.now) or any(map(phrases.is_of_a_job, notice.alerts))
        lines.append(_Line(jobs_line(failover.jobs), is_detail=are_counted))
    facts = [fact for fact in failover.verdict.facts if fact != failover.verdict.alike]
    facts += death.facts if death else ()
    return [*lines, *[_Line(clean(fact), is_detail=fact not in failover.failed[-1:]) for fact in facts]]


def _without_details(lines: Sequence[_Line]) -> list[str]:
    """All that is no detail, and as many details as have room beside it, then how many have none."""
    room = MOST_BODY - sum([len(line.text) + 1 for line in lines if not line.is_detail])
    if sum([len(line.text) + 1 for line in lines if line.is_detail]) > room:
        room -= len(_more_details(len(lines))) + 1
    kept, left_out = list[str](), 0
    for line in lines:
        size = len(line.text) + 1 if line.is_detail else 0
        if size > max(room, 0):
            left_out += 1
        else:
            room -= size
            kept.append(line.text)
    if left_out:
        more = _more_details(left_out)
        fits = sum([len(text) + 1 for text in kept]) + len(more) <= MOST_BODY
        kept.append(more if fits else more.removesuffix(_WHERE))
    return kept


def _more_details(number: int) -> str:
    return f"… and {counted(number, 'more line')}{_WHERE}"


def _facts(about: Subject) -> list[tuple[str, str]]:
    notice, policy, failover = about.notice, about.policy, about.failover
    names = list(dict.fromkeys([alert.cluster_id for alert in notice.alerts]))
    facts: list[tuple[str, str]] = []
    if failover:
        facts.append(("cause", f"{failover.verdict.cause} ({failover.verdict.confidence} confidence)"))
        if failover.planned:
            facts.append(("planned", failover.planned))
        elif lacked := planned.lacks(policy, names[0], about.cluster):
            facts.append(("planned", f"not known without {lacked}"))
        if death := failover.death:
            facts.append(("death", f"{death.reason} ({death.confidence} confidence)"))
    rules = ", ".join(dict.fromkeys([alert.rule for alert in notice.alerts]))
    stores = ", ".join(dict.fromkeys([policy.store_of(name).value for name in names]))
    facts += ("alert", f"{rules} ({notice.reason.value})"), ("cluster", ", ".join(names)), ("store", stores)
    facts.append(("observer", policy.observer))
    if failover:
        facts.append(("episode", failover.episode.id))
        if files := failover.episode.gathered.files:
            facts.append(("evidence", f"{counted(files, 'file')} at {policy.observer}"))
        if recovery := failover.recovery:
            facts.append(("recovery", recovery.verdict if recovery.is_over else "still being assessed"))
    return [*facts, *policy.external_labels.items()]


def bounded(lines: Sequence[str]) -> Sequence[str]:
    """As many lines as fit in MOST_BYTES and MOST_LINES, then how many do not."""
    room = MOST_BYTES
    for number, line in enumerate(lines):
        room -= len(line.encode())
        if number == MOST_LINES or room < 0:
            return [*lines[:number], f"… and {counted(len(lines) - number, 'more line')}"]
    return lines


def _title(about: Subject) -> tuple[str, list[str], str | None]:
    """The title; what has changed, where the title is the status; and why the operator's own summary could not be used for it."""
    rule, policy, headline, status = about.headline.rule, about.policy, about.headline, about.status
    jobs = jobs_now(about.failover.jobs) if about.failover else ""
    parts = (headline, about.notice, about.pods, jobs, policy.failovers_counted_within())
    label = status.status.value if status else headline.label
    changed = [next(_texts(*parts))] if status else []
    own = _status_title(status, headline.alerts[0].cluster_id) if status else f"[{label}] {_own_title(*parts)}"
    if rule.summary is None:
        return own, changed, None
    try:
        return f"[{label}] {clean(' '.join(rule.summary(fields(about)).split()), MOST_SUMMARY)}", changed, None
    except ValueError as error:
        return own, changed, f"(the summary of {rule.alert} could not be made: {clean(str(error))})"


def _status_title(status: ClusterStatus, name: str) -> str:
    """The title of a message about a cluster: its status, and as much of the sentence as has room."""
    label, where = f"[{status.status}] ", clean(name)
    room = MOST_TITLE - len(label) - 2
    where = _cut(where, max(room - len(status.parts[0]), _WHOLE_NAME))
    return f"{label}{where}: {status.sentence_within(room - len(where))}"


def _own_title(about: Headline, notice: Notice, pods: Mapping[str, Pods], jobs: str, counted_within: int) -> str:
    """The title without its label. `jobs`: how the jobs of the failover are now; `counted_within`: see `phrases.headline`."""
    names = {alert.cluster_id for alert in about.alerts}
    where = clean(about.alerts[0].cluster_id) if len(names) == 1 else f"{len(names)} clusters"
    room = MOST_TITLE - len(f"[{about.label}] : ")
    texts = [*_texts(about, notice, pods, jobs, counted_within)]
    for text in texts:
        if len(where) + len(text) <= room:
            return f"{where}: {text}"
    text = texts[-1]
    where = _cut(where, max(room - len(text), _SHORTEST_NAME))
    return f"{where}: {_cut(text, room - len(where))}"


def _texts(about: Headline, notice: Notice, pods: Mapping[str, Pods], jobs: str, counted_within: int) -> Iterator[str]:
    """The title with less and less in it."""
    first = "still: " if notice.reason is Reason.REPEAT_INTERVAL_ELAPSED else ""
    first += f"{about.lost}, " if about.lost else ""
    is_named = about.lost or any(map(phrases.is_of_a_job, about.alerts))
    jobs = jobs if not is_named and (about.rule.on in WITH_JOBS or about.is_end_of_vacancy) else ""
    more = f", and {counted(about.others, 'more alert')}" if about.others else ""
    still = ", more fires" if about.goes_on else ""
    still = f", {about.still} more fire{'s' if about.still == 1 else ''}" if about.still else still
    for without in accumulate(phrases.SHORTENED, initial=()):
        text = phrases.headline(
            about.rule, about.alerts, pods, over=about.over, without=without, counted_within=counted_within
        )
        yield f"{first}{text}{jobs}{'' if without else more}{still}"
    yield f"{first}{text}{still}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


EXAMPLE: Final[Mapping[str, object]] = {
    "alert": "FlinkLeaderChanged",
    "severity": "warning",
    "reason": "FIRST",
    "status": "RECOVERING",
    "sentence": "jm-1 leads after 4 s, 3 of 4 jobs run",
    "cluster_id": "orders",
    "store": "zookeeper",
    "observer": "jobmanager-0",
    "external_labels": {"env": "prod"},
    "component": "dispatcher",
    "components": ["dispatcher", "resource_manager", "rest_server"],
    "job_id": "",
    "before": {"host": "jm-0", "address": "jm-0:6123", "pod": "jm-0"},
    "after": {"host": "jm-1", "address": "jm-1:6123", "pod": "jm-1"},
    "vacant_seconds": 4.25,
    "downtime_seconds_at_least": 4.25,
    "downtime_seconds_at_most": 17.5,
    "count": 3,
    "episode_id": "0c9a4f8e-8f0b-5e0a-9d2c-3f1f5c1c6a11",
    "cause": "jobmanager_lost",
    "confidence": "medium",
    "planned": "true",
    "death": {
        "reason": "oom_killed",
        "confidence": "high",
        "exit_code": 137,
        "limit_bytes": 1677721600,
        "fault": "",
        "line": "JobManager jm-0 was OOM-killed (exit 137, limit 1600 MiB)",
    },
    "jobs_moved": 4,
    "jobs_away": 1,
    "jobs_total": 5,
    "recovery": {"verdict": "recovered"},
}
"""The fields of a template, with example values: see docs/reference/rules.md."""


def fields(subject: Subject) -> dict[str, object]:
    alerts, policy, failover = subject.headline.alerts, subject.policy, subject.failover
    first = alerts[0]
    pods = subject.pods.get(first.cluster_id, {})
    return {
        "alert": subject.headline.rule.alert,
        "severity": subject.headline.severity.value,
        "reason": subject.notice.reason.value,
        "status": subject.status.status.value if subject.status else "",
        "sentence": subject.status.sentence if subject.status else "",
        "cluster_id": clean(first.cluster_id),
        "store": policy.store_of(first.cluster_id).value,
        "observer": policy.observer,
        "external_labels": policy.external_labels,
        "component": first.component.component.value if first.component else "",
        "components": sorted({alert.component.component.value for alert in alerts if alert.component}),
        "job_id": (first.component.job_id if first.component else None) or "",
        "before": _leader(first.before, pods),
        "after": _leader(first.after, pods),
        "vacant_seconds": max((a.vacant_seconds for a in alerts if a.vacant_seconds is not None), default=0.0),
        **_downtime(alerts),
        "count": first.count or 0,
        **_failover(failover),
    }


def _failover(failover: Failover | None) -> dict[str, object]:
    """The fields of a failover, empty if the alerts belong to none."""
    recovery = failover.recovery if failover else None
    return {
        "episode_id": failover.episode.id if failover else "",
        "cause": failover.verdict.cause.value if failover else "unknown",
        "confidence": failover.verdict.confidence.value if failover else "none",
        "planned": (failover.planned if failover else None) or "",
        "death": _death(failover.death if failover else None),
        "jobs_moved": failover.jobs.moved if failover else 0,
        "jobs_away": failover.jobs.away if failover else 0,
        "jobs_total": failover.jobs.total if failover else 0,
        "recovery": {"verdict": recovery.verdict if recovery else ""},
    }


def _death(death: DeathVerdict | None) -> dict[str, object]:
    """The fields of a death, empty if it is not known."""
    return {
        "reason": death.reason.value if death else "",
        "confidence": death.confidence.value if death else "",
        "exit_code": (death.exit_code if death else None) or 0,
        "limit_bytes": (death.limit_bytes if death else None) or 0,
        "fault": clean((death.fault if death else None) or ""),
        "line": death_line(death) if death else "",
    }


def _downtime(alerts: Sequence[Alert]) -> dict[str, float]:
    """For how long no leader worked, the longest of all alerts; 0 if not known."""
    at_least = [alert.downtime_seconds_at_least or 0.0 for alert in alerts]
    at_most = [alert.downtime_seconds_at_most for alert in alerts if alert.downtime_seconds_at_most is not None]
    return {
        "downtime_seconds_at_least": max(at_least),
        "downtime_seconds_at_most": max(at_most) if len(at_most) == len(alerts) else 0.0,
    }


def _leader(host_port: str | None, pods: Pods) -> dict[str, str]:
    """The fields of a leader empty if it is not known."""
    names = {"host": phrases.host(host_port), "address": host_port, "pod": name_at(pods, host_port)}
    return {name: clean(text or "") for name, text in names.items()}
