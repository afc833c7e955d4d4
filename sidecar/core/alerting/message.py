"""The message about a group of alerts: a title, a few lines, and named facts. Plain text; the sender formats it.

Addresses and job ids come from the store and are untrusted: a message has no control characters, and its size is bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Final, NamedTuple

from msgspec import Struct

from sidecar.core.alerting import phrases, recovery_lines, title
from sidecar.core.alerting.alerts import Alert, MessageAlert, Notice
from sidecar.core.alerting.first_step import first_step
from sidecar.core.alerting.moved_jobs import MovedJobs, jobs_line, jobs_now, moved_jobs
from sidecar.core.alerting.title import Headline
from sidecar.core.cluster.death.death_verdict import DeathReason, DeathVerdict
from sidecar.core.cluster.death.deaths import death_of, name_of
from sidecar.core.cluster.failover import episodes
from sidecar.core.cluster.failover.causes import Verdict, is_planned
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.failover.failover_in_progress import cause_of
from sidecar.core.cluster.records.record_lines import death_line, succession_line
from sidecar.core.cluster.recovery.recovery_state import RecoverySummary
from sidecar.core.cluster.state import ClusterState
from sidecar.core.counted import counted
from sidecar.core.pods import Pods, name_at, spelled
from sidecar.core.policy.policy import Policy, Rule, Severity, Trigger
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
EXAMPLE: Final[Mapping[str, object]] = {
    "alert": "FlinkLeaderChanged",
    "severity": "warning",
    "reason": "FIRST",
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


_OF_A_LOSS: Final = frozenset({Trigger.LEADER_CHANGED, Trigger.VACANT})
"""Triggers of alerts that say why the leader of before ended."""


class Message(Struct, frozen=True):
    """One notification as people read it."""

    title: str
    body: str
    facts: tuple[tuple[str, str], ...]
    severity: Severity
    link: str | None = None
    episode_id: str | None = None
    alerts: tuple[MessageAlert, ...] = ()
    """The first MOST_ALERTS of the notice."""
    summary: str = ""
    """The title without its label."""
    death: DeathVerdict | None = None
    """Why the leader of before ended."""
    recovery: RecoverySummary | None = None


class _Context(NamedTuple):
    """What a message is made of."""

    about: Headline
    notice: Notice
    policy: Policy
    episode: Episode | None
    found: Verdict | None
    death: DeathVerdict | None
    """Why the leader of before ended, if an alert is about that, and if that is known."""
    successor: str | None
    """Its pod or `host:port`. None: there is none yet."""
    jobs: MovedJobs | None
    pods: Mapping[str, Pods]
    """By cluster."""
    came_back: tuple[str, ...] = ()
    """What came back of it, in lines."""
    recovery: RecoverySummary | None = None
    """None: it is not assessed."""


def compose(notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState]) -> Message:
    """The message for `notice`."""
    rules = {rule.alert: rule for rule in policy.rules}
    about = title.headline(notice, rules)
    cluster = clusters.get(about.alerts[0].cluster_id)
    episode = _episode(cluster, about.alerts) or _episode(cluster, notice.alerts)
    jobs = moved_jobs(episode, cluster) if episode and cluster else None
    about = about.with_lost(jobs.lost - jobs.vanished, jobs.moved) if jobs else about
    context = _Context(
        about,
        notice,
        policy,
        episode,
        cause_of(cluster, episode) if episode and cluster else None,
        _death(notice, rules, cluster, episode),
        _successor(cluster, episode),
        jobs,
        {name: each.pods for name, each in clusters.items()},
        tuple(recovery_lines.lines(cluster, episode)) if episode and cluster else (),
        recovery_lines.summary_of(cluster, episode) if episode and cluster else None,
    )
    text, problem = _title(context)
    page = f"episodes/{episode.id}" if episode else ""
    lines = [phrases.line(rules[alert.rule], alert, context.pods) for alert in notice.alerts]
    shown = [*compress(lines, _not_said(notice, rules))]
    step = first_step(cluster) if cluster and about.rule.on is Trigger.VACANT and not about.over else None
    return Message(
        f"[{about.label}] {text}",
        "\n".join(
            [*([f"Next: {step}"] if step else []), *bounded(shown, MOST_BYTES, len(shown)), *_why(context, problem)]
        ),
        tuple((clean(name), clean(value)) for name, value in _facts(context)),
        about.severity,
        None if policy.link is None else f"{policy.link}/{page}",
        episode.id if episode else None,
        tuple(_apart(alert, line) for alert, line in zip(notice.alerts[:MOST_ALERTS], lines, strict=False)),
        text,
        context.death,
        context.recovery,
    )


def _death(
    notice: Notice, rules: Mapping[str, Rule], cluster: ClusterState | None, episode: Episode | None
) -> DeathVerdict | None:
    if cluster is None or episode is None or not any(rules[alert.rule].on in _OF_A_LOSS for alert in notice.alerts):
        return None
    death = death_of(cluster, episode)
    return death if death and (death.reason is not DeathReason.UNKNOWN or death.fault) else None


def _apart(alert: Alert, text: str) -> MessageAlert:
    labels = {name: clean(value, MOST_SUMMARY) for name, value in alert.labels.items()}
    return MessageAlert(alert.id, labels, text, alert.began.wall, alert.ended.wall if alert.ended else 0)


def _not_said(notice: Notice, rules: Mapping[str, Rule]) -> Iterator[bool]:
    """Of each alert, whether its line says more than that of another one: who leads after a vacancy is in the line of the leader change."""
    changes = (alert for alert in notice.alerts if rules[alert.rule].on is Trigger.LEADER_CHANGED)
    changed = {(alert.cluster_id, alert.component) for alert in changes}
    for alert in notice.alerts:
        is_end = rules[alert.rule].on is Trigger.VACANT and alert.ended
        yield not is_end or (alert.cluster_id, alert.component) not in changed


def _why(context: _Context, problem: str | None) -> Iterator[str]:
    """Lines about the failover behind the alerts."""
    if context.death:
        yield ""
        yield _succession(context.death, context)
        yield from map(clean, context.death.facts)
    if context.jobs and context.jobs.moved:
        yield jobs_line(context.jobs)
    yield from bounded(context.came_back, MOST_OF_JOBS, len(context.came_back))
    if context.found and context.found.facts:
        yield ""
        yield from map(clean, context.found.facts)
    if context.episode:
        known = context.episode.gathered
        yield from bounded(known.jobs, MOST_OF_JOBS, known.jobs_total)
    if problem:
        yield problem


def _succession(death: DeathVerdict, context: _Context) -> str:
    """How the leader of before ended, and who followed when."""
    vacant = max((a.vacant_seconds for a in context.notice.alerts if a.vacant_seconds is not None), default=None)
    return succession_line(death, context.successor, vacant)


def _successor(cluster: ClusterState | None, episode: Episode | None) -> str | None:
    if cluster is None or episode is None or episode.after is None or episode.away:
        return None
    return name_of(cluster, episode.after.address) or spelled(episode.after.address, None)


def _facts(context: _Context) -> Iterator[tuple[str, str]]:
    notice, policy, episode, found = context.notice, context.policy, context.episode, context.found
    names = list(dict.fromkeys(alert.cluster_id for alert in notice.alerts))
    if found:
        yield "cause", f"{found.cause} ({found.confidence} confidence)"
        if planned := _planned(episode):
            yield "planned", planned
    if death := context.death:
        yield "death", f"{death.reason} ({death.confidence} confidence)"
    yield "alert", f"{', '.join(dict.fromkeys(alert.rule for alert in notice.alerts))} ({notice.reason.value})"
    yield "cluster", ", ".join(names)
    yield "store", ", ".join(dict.fromkeys(policy.store_of(name).value for name in names))
    yield "observer", policy.observer
    if episode:
        yield "episode", episode.id
        if files := episode.gathered.files:
            yield "evidence", f"{counted(files, 'file')} at {policy.observer}"
    if context.recovery:
        yield "recovery", context.recovery.verdict if context.recovery.is_over else "still being assessed"
    yield from policy.external_labels.items()


def _episode(cluster: ClusterState | None, alerts: Sequence[Alert]) -> Episode | None:
    """The failover that the alerts belong to, if it is the current or the last one."""
    if cluster is None:
        return None
    named = {alert.episode_id for alert in alerts if alert.episode_id}
    for episode in (cluster.episode, cluster.last_episode):
        if episode and (episode.id in named or episodes.concerns(episode, (alert.began for alert in alerts))):
            return episode
    return None


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


def _title(context: _Context) -> tuple[str, str | None]:
    """The title, and why the operator's own summary could not be used for it."""
    rule, policy = context.about.rule, context.policy
    own = title.title(
        context.about, context.notice, context.pods, jobs_now(context.jobs), policy.failovers_counted_within()
    )
    if rule.summary is None:
        return own, None
    try:
        return clean(" ".join(rule.summary(_fields(context)).split()), MOST_SUMMARY), None
    except ValueError as error:
        return own, f"(the summary of {rule.alert} could not be made: {clean(str(error))})"


def _fields(context: _Context) -> dict[str, object]:
    """The fields of a template, as in EXAMPLE."""
    about, notice, policy, episode, found, death, _, jobs, pods, _, recovery = context
    rule, alerts = about.rule, about.alerts
    first = alerts[0]
    known = pods.get(first.cluster_id, {})
    return {
        "alert": rule.alert,
        "severity": about.severity.value,
        "reason": notice.reason.value,
        "cluster_id": clean(first.cluster_id),
        "store": policy.store_of(first.cluster_id).value,
        "observer": policy.observer,
        "external_labels": policy.external_labels,
        "component": first.component.component.value if first.component else "",
        "components": sorted({alert.component.component.value for alert in alerts if alert.component}),
        "job_id": (first.component.job_id if first.component else None) or "",
        "before": _leader(first.before, known),
        "after": _leader(first.after, known),
        "vacant_seconds": max((a.vacant_seconds for a in alerts if a.vacant_seconds is not None), default=0.0),
        **_downtime(alerts),
        "count": first.count or 0,
        "episode_id": episode.id if episode else "",
        "cause": found.cause.value if found else "unknown",
        "confidence": found.confidence.value if found else "none",
        "planned": _planned(episode) or "",
        "death": _death_fields(death),
        "jobs_moved": jobs.moved if jobs else 0,
        "jobs_away": jobs.away if jobs else 0,
        "jobs_total": jobs.total if jobs else 0,
        "recovery": {"verdict": recovery.verdict if recovery else ""},
    }


def _death_fields(death: DeathVerdict | None) -> dict[str, object]:
    """The fields of a death in a template, empty if it is not known."""
    return {
        "reason": death.reason.value if death else "",
        "confidence": death.confidence.value if death else "",
        "exit_code": (death.exit_code if death else None) or 0,
        "limit_bytes": (death.limit_bytes if death else None) or 0,
        "fault": clean((death.fault if death else None) or ""),
        "line": death_line(death) if death else "",
    }


def _planned(episode: Episode | None) -> str | None:
    """As the label: `true` or `false`; None: not known."""
    planned = is_planned(episode.facts) if episode else None
    return None if planned is None else str(planned).lower()


def _downtime(alerts: Sequence[Alert]) -> dict[str, float]:
    """For how long no leader worked, the longest of all alerts; 0 if not known."""
    at_least = [each.downtime_seconds_at_least or 0.0 for each in alerts]
    at_most = [each.downtime_seconds_at_most for each in alerts]
    known = [each for each in at_most if each is not None]
    return {
        "downtime_seconds_at_least": max(at_least),
        "downtime_seconds_at_most": max(known) if len(known) == len(at_most) else 0.0,
    }


def _leader(host_port: str | None, pods: Pods) -> dict[str, str]:
    """The fields of a leader in a template, empty if it is not known."""
    found = {"host": phrases.host(host_port), "address": host_port, "pod": name_at(pods, host_port)}
    return {name: clean(text or "") for name, text in found.items()}
