"""The texts of alerts by trigger: title and line, while firing and when resolved."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.rules import JOBS
from sidecar.core.cluster import split_leadership
from sidecar.core.cluster.record_lines import move, working
from sidecar.core.flink.leadership import Component
from sidecar.core.moment import SECOND, seconds, timestamp
from sidecar.core.policy.policy import Rule, Trigger
from sidecar.core.sanitize import clean


class Words(NamedTuple):
    """Texts with the names of `_said` in them."""

    title: str
    title_over: str
    line: str
    line_over: str


_MOVED: Final = "{what}: {move} at {began}{vacant}{down}"

WORDS: Final = {
    Trigger.LEADER_CHANGED: Words("leader of {what} changed{moves}", "the failover of {what} is over", _MOVED, _MOVED),
    Trigger.JOB_LEADER_CHANGED: Words("leader of {what} changed{moves}", "leader of {what} changed", _MOVED, _MOVED),
    Trigger.SAME_PROCESS_REELECTION: Words(
        "a leader lost its leadership and was elected again{moves}", "a leader was elected again", _MOVED, _MOVED
    ),
    Trigger.VACANT: Words(
        "no leader for {what}",
        "leader back for {what}",
        "{what}: no leader since {began}{formerly}",
        "{what}: {led} at {ended}, no published leader for {lasted}",
    ),
    Trigger.SPLIT: Words(
        "split leadership of {what}: {before} and {after}",
        "{what}: split leadership is over",
        "{what}: {before} and {after} replace each other since {began}, each deleting the other's address",
        f"{{what}}: over, no replaced leader has returned for {seconds(split_leadership.CALM)}",
    ),
    Trigger.EPISODES: Words(
        "{count} failovers within {within}",
        "failover rate is back to normal",
        "{count} failovers within {within}, by {began}",
        "fewer failovers within {within} since {ended}",
    ),
    Trigger.BLIND: Words(
        "this observer cannot read the store",
        "this observer can read the store again",
        "the store cannot be read since {began}: leaders are unknown, and changes are not observed",
        "the store could not be read for {lasted}, until {ended}: changes in that time are reported separately",
    ),
    Trigger.UNOBSERVED: Words(
        "at least {total} unobserved changes of {what}",
        "unobserved changes of {what}",
        "{what}: at least {count} unobserved changes before {began}",
        "{what}: at least {count} unobserved changes before {began}",
    ),
    Trigger.NO_STANDBY: Words(
        "no standby JobManager",
        "standby JobManager available again",
        "only one JobManager contends since {began}: if it fails, none can take over",
        "a standby contends again since {ended}, after {lasted}",
    ),
    Trigger.ZXID_HEADROOM: Words(
        "ZooKeeper will soon elect a new leader of its own",
        "ZooKeeper has elected a new leader of its own",
        "{count} transactions left until ZooKeeper has to: restart its leader at a quiet time before that",
        "ZooKeeper's transaction numbers started over at {ended}",
    ),
}


NO_CLUSTER: Final = Words(
    "no such cluster",
    "the cluster exists",
    "{missing}",
    "the cluster exists since {ended}",
)
"""For a cluster that does not exist."""


def headline(rule: Rule, alerts: Sequence[Alert], *, over: bool) -> str:
    """The title of a group of alerts."""
    words = _words(rule, alerts[0])
    return (words.title_over if over else words.title).format_map(_said(rule, alerts))


def line(rule: Rule, alert: Alert) -> str:
    """The line of one alert: what happened, to what, when."""
    words = _words(rule, alert)
    over = alert.ended is not None and not alert.is_event
    return (words.line_over if over else words.line).format_map(_said(rule, [alert]))


def _words(rule: Rule, alert: Alert) -> Words:
    return NO_CLUSTER if alert.missing else WORDS[rule.on]


def host(host_port: str | None) -> str | None:
    """Without the port."""
    return (host_port or "").rpartition(":")[0] or host_port


def _said(rule: Rule, alerts: Sequence[Alert]) -> dict[str, str]:
    first = alerts[0]
    jobs = first.component == JOBS
    led = f"elected {clean(first.after)}" if first.after else "its job ended"
    down = working(first.downtime_seconds_at_least, first.downtime_seconds_at_most)
    return {
        "what": _what(alerts),
        "began": timestamp(first.began.wall),
        "ended": timestamp(first.ended.wall) if first.ended else "",
        "lasted": seconds(int((first.vacant_seconds or 0) * SECOND)),
        "before": clean(first.before or "?"),
        "after": clean(first.after or "?"),
        "move": move(first.before, first.after),
        "moves": _moves(alerts),
        "formerly": f" (previous leader: {clean(first.before)})" if first.before else "",
        "led": "new leaders, or ended" if jobs else led,
        "vacant": ""
        if first.vacant_seconds is None
        else f", no published leader for {seconds(int(first.vacant_seconds * SECOND))}",
        "down": f", {down}" if down else "",
        "count": str(first.count),
        "total": str(sum(alert.count or 0 for alert in alerts)),
        "within": seconds(rule.within),
        "missing": first.missing or "",
    }


def _what(alerts: Sequence[Alert]) -> str:
    """The components concerned."""
    components = {alert.component: alert for alert in alerts if alert.component}
    if len(components) == 1:
        [(component, alert)] = components.items()
        return _jobs(alert.count or 0) if component == JOBS else str(component)
    kinds = Counter(component.component is Component.JOB for component in components)
    counted = [f"{kinds[False]} components"] if kinds[False] else []
    if kinds[True]:
        jobs = [alert.count or 1 for component, alert in components.items() if component.component is Component.JOB]
        counted.append(_jobs(sum(jobs)))
    return " and ".join(counted) or "the cluster"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def _moves(alerts: Sequence[Alert]) -> str:
    (before, after), *others = {(host(alert.before), host(alert.after)) for alert in alerts}
    if others:
        return f", in {len(others) + 1} different moves"
    if before == after:  # several processes on one host: ports tell them apart, and one pair stands for all
        before, after = alerts[0].before, alerts[0].after
    return f": {move(before, after)}"
