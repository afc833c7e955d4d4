"""What is said of an alert, by what its rule looks at: in the title, and in a line of its own; while it lasts, and when it is over."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from sidecar.core import contest
from sidecar.core.alerts import Alert
from sidecar.core.leadership import Component
from sidecar.core.messages import move, working
from sidecar.core.moment import SECOND, seconds, timestamp
from sidecar.core.policy import Rule, Trigger
from sidecar.core.rules import JOBS
from sidecar.core.text import clean


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
        "{what} led again",
        "{what}: no leader since {began}{formerly}",
        "{what}: {led} at {ended}, no published leader for {lasted}",
    ),
    Trigger.SPLIT: Words(
        "split leadership of {what}: {before} and {after}",
        "{what}: leadership is not split any more",
        "{what}: {before} and {after} take turns since {began}, each deleting what the other published",
        f"{{what}}: settled, no replaced leader has come back for {seconds(contest.CALM)}",
    ),
    Trigger.EPISODES: Words(
        "{count} failovers within {within}",
        "failovers are rare again",
        "{count} failovers within {within}, by {began}",
        "fewer failovers within {within} since {ended}",
    ),
    Trigger.BLIND: Words(
        "this observer cannot see the store",
        "this observer sees the store again",
        "the store is out of sight since {began}: who leads is not known, and what happens is not seen",
        "the store was out of sight for {lasted}, until {ended}: what changed meanwhile is told by itself",
    ),
    Trigger.UNOBSERVED: Words(
        "at least {total} changes of {what} that nobody could see",
        "changes of {what} that nobody could see",
        "{what}: at least {count} unobserved changes before {began}",
        "{what}: at least {count} unobserved changes before {began}",
    ),
    Trigger.NO_STANDBY: Words(
        "no standby is left",
        "there is a standby again",
        "one JobManager is left since {began}: if it goes, nobody takes over",
        "a standby is there again since {ended}, after {lasted}",
    ),
    Trigger.ZXID_HEADROOM: Words(
        "ZooKeeper will soon elect a leader of its own",
        "ZooKeeper has elected a leader of its own",
        "{count} transactions are left until ZooKeeper has to: restart its leader at a quiet time, before it chooses one",
        "ZooKeeper numbers its transactions from the beginning since {ended}",
    ),
}


NO_CLUSTER: Final = Words(
    "no such cluster",
    "the cluster is there",
    "{missing}",
    "something of the cluster is there since {ended}",
)
"""Of what is out of sight because it is not there."""


def headline(rule: Rule, alerts: Sequence[Alert], *, over: bool) -> str:
    """What happened to all of them, in a few words."""
    words = _words(rule, alerts[0])
    return (words.title_over if over else words.title).format_map(_said(rule, alerts))


def line(rule: Rule, alert: Alert) -> str:
    """What happened, to what, when."""
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
    led = f"led by {clean(first.after)} again" if first.after else "its job ended"
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
        "formerly": f" (before: {clean(first.before)})" if first.before else "",
        "led": "led again, or ended" if jobs else led,
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
    """Whom it happened to."""
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
