"""The texts of alerts by trigger: title and line, while firing and when resolved."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.conditions import JOBS
from sidecar.core.cluster.cluster_state import TooOld
from sidecar.core.cluster.record_lines import lasted, move, without_leader
from sidecar.core.counted import counted
from sidecar.core.finder import PARTLY
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.leadership import contenders
from sidecar.core.moment import SECOND, age, seconds, spoken
from sidecar.core.pods import Pods, name_at, spelled
from sidecar.core.policy.labels import CHECK
from sidecar.core.policy.policy import Rule, Trigger
from sidecar.core.reach import Reach
from sidecar.core.sanitize import clean


class Phrases(NamedTuple):
    """Texts with the fields of `_fields`. A title may have those of SHORTENED."""

    title: str
    title_over: str
    line: str
    line_over: str


_ALL_OWN: Final = "JobManager"
"""Its process has all of a cluster's own components: together they are called after it."""
_MOVE: Final = "{move} at {began}{down}"
_MOVED: Final = f"{{what}}: {_MOVE}"
_NOT_ASKED: Final = "the REST server of {before} is not asked any more since {ended}, after {lasted}"
SILENCES: Final[Mapping[Reach | None, Phrases]] = {
    Reach.SILENT: Phrases(
        "the leader does not answer{at}",
        "the leader is not asked any more",
        "{before} leads, and its REST server accepts connections but has answered nothing since {began}",
        _NOT_ASKED,
    ),
    Reach.UNREACHABLE: Phrases(
        "the leader cannot be reached{at}",
        "the leader is not asked any more",
        "{before} leads, and its REST server cannot be reached since {began}: its process ended, or the network is cut",
        _NOT_ASKED,
    ),
    Reach.ANSWERS: Phrases(
        *("the leader answers again{at}",) * 2,
        *("the REST server of {before} answers again since {ended}, after {lasted}",) * 2,
    ),
    None: Phrases(
        *("the silent leader does not lead any more{at}",) * 2,
        *("{before} does not lead any more since {ended}: its REST server had not answered for {lasted}",) * 2,
    ),
}
"""Of a leader that does not answer, by `Alert.reach`."""

PHRASES: Final = {
    Trigger.LEADER_CHANGED: Phrases(
        "{who}failed over{again}{moves}{longest}", "failover of {what} is over{moves}{longest}", _MOVED, _MOVED
    ),
    Trigger.JOB_LEADER_CHANGED: Phrases("leader of {what} changed{moves}", "leader of {what} changed", _MOVED, _MOVED),
    Trigger.SAME_PROCESS_REELECTION: Phrases(
        "a leader lost its leadership and was elected again{moves}", "a leader was elected again", _MOVED, _MOVED
    ),
    Trigger.PLANNED_FAILOVER: Phrases(*("planned failover{moves}{longest}",) * 2, *(f"{_ALL_OWN}: {_MOVE}",) * 2),
    Trigger.STOPPED: Phrases(
        "stopped: {detail}",
        "wanted again",
        "stopped at {began}: {detail}. No leader is wanted",
        "stopped until {ended}",
    ),
    Trigger.JOBS_WAIT: Phrases(
        "stopped, and {jobs} in the store wait",
        "wanted again, or no job waits",
        "stopped at {began}: {detail}. {jobs} in the store wait for a JobManager",
        "wanted again since {ended}, or the jobs are gone",
    ),
    Trigger.VACANT: Phrases(
        "no leader for {what}{left}",
        "leader back for {what}{longest}",
        "{what}: no leader since {began}{formerly}",
        "{what}: {led} at {ended}{down}",
    ),
    Trigger.SPLIT: Phrases(
        "split leadership of {what}{sides}",
        "{what}: split leadership is over",
        "{what}: {before} and {after} replace each other since {began}, each deleting the other's address",
        f"{{what}}: over, no replaced leader has returned for {seconds(contenders.CALM)}",
    ),
    Trigger.EPISODES: Phrases(
        "{count} failovers within {within}",
        "failover rate is back to normal",
        "{count} failovers within {within}, the last one by {latest}",
        "fewer failovers within {within} since {ended}",
    ),
    Trigger.BLIND: Phrases(
        "the store cannot be read",
        "the store can be read again",
        "the store cannot be read since {began}: leaders are unknown, and changes are not observed",
        "the store could not be read for {lasted}, until {ended}: changes in that time are reported separately",
    ),
    Trigger.UNOBSERVED: Phrases(
        "at least {total} unobserved changes of {what}",
        "unobserved changes of {what}",
        "{what}: at least {count} unobserved changes before {began}",
        "{what}: at least {count} unobserved changes before {began}",
    ),
    Trigger.NO_STANDBY: Phrases(
        "no standby JobManager",
        "standby JobManager available again",
        "only one JobManager contends since {began}: if it fails, none can take over",
        "a standby contends again since {ended}, after {lasted}",
    ),
    Trigger.JOB_MISSING: Phrases(
        "{what} missing after a failover",
        "{what} no longer missing",
        "{what}: missing since {began}, Flink does not know it any more",
        "{what}: not reported as missing any more since {ended}: it runs again, or a day has passed",
    ),
    Trigger.JOB_RESURRECTED: Phrases(
        "{what} had ended and runs again after a failover",
        "{what} does not run again any more",
        "{what}: had ended, and was started again by {began}: cancel it if it is not to run (FLINK-39704)",
        "{what}: not reported any more since {ended}: it ended, or a day has passed",
    ),
    Trigger.RESTORED_FROM_NOTHING: Phrases(*("{what} restored from nothing",) * 2, *("{what}: {detail}",) * 2),
    Trigger.RESTORED_FROM_OLDER: Phrases(
        *("{what} restored from an older checkpoint",) * 2, *("{what}: {detail}",) * 2
    ),
    Trigger.NOT_RECOVERED: Phrases(
        "{jobs} not running after a failover",
        "all jobs run, or are not waited for",
        "{jobs} not seen running since all components were led again at {began}: {about}",
        "since {ended} all jobs run, have ended, or are reported as missing; it took {lasted}",
    ),
    Trigger.RECOVERED: Phrases(*("recovered after a failover",) * 2, *("everything came back, proven by {ended}",) * 2),
    Trigger.LEADER_SILENT: SILENCES[Reach.SILENT],
    Trigger.HA_RISK: Phrases(
        "{risks} for high availability",
        "a risk for high availability is gone",
        "{about}: {detail}",
        "{about}: passed by {ended}, or does not apply any more",
    ),
    Trigger.DRILL_OVERDUE: Phrases(
        "no failover drill has passed for {age}",
        "a failover drill has passed",
        "no drill has passed since {passed} (the last one, or since when this cluster is watched): `drill start` begins one",
        "a drill has passed by {ended}",
    ),
    Trigger.ZXID_HEADROOM: Phrases(
        "ZooKeeper will soon elect a new leader of its own",
        "ZooKeeper has elected a new leader of its own",
        "{count} transactions left until ZooKeeper has to: restart its leader at a quiet time before that",
        "ZooKeeper's transaction numbers started over at {ended}",
    ),
}
_SHORTEST_SECONDS: Final = 0.05
"""Less would be shown as 0.0."""
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)
TOO_OLD: Final = Phrases(
    "this Flink is not supported", "a supported Flink runs", "{missing}", "a supported Flink runs since {ended}"
)
PARTLY_OBSERVED: Final = Phrases(
    "not everything is observed", "everything is observed again", "{missing}", "everything is observed since {ended}"
)
NO_CLUSTER: Final = Phrases("no such cluster", "the cluster exists", "{missing}", "the cluster exists since {ended}")


UNSTEADY_STANDBY: Final = Phrases(
    "the standby JobManager stops again and again ({count} times)",
    "the standby JobManager is steady again",
    "the standby JobManager has stopped {count} times since {began}: it may be gone when the leader fails. Look why it ends",
    "a standby has contended without a break since shortly before {ended}; it had stopped {count} times in {lasted}",
)

_UNWANTED: Final = "no leader is wanted since {ended}: {detail}"
UNWANTED: Final = Phrases(
    "no leader", "no leader is wanted for {what}", f"{{what}}: {_UNWANTED}", f"{{what}}: {_UNWANTED}"
)


SHORTENED: Final = ("moves", "left", "sides", "at"), ("longest",), ("who",)
"""Fields that a title leaves out, one group after the other, until it is short enough."""


def headline(
    rule: Rule,
    alerts: Sequence[Alert],
    pods: Mapping[str, Pods],
    *,
    over: bool,
    without: Collection[str] = (),
    counted_within: int = 0,
) -> str:
    """The title of a group of alerts. `pods`: those of each cluster; `without`: fields to leave out; `counted_within`: in which time
    failovers are counted.
    """
    phrases = _phrases(rule, alerts[0])
    fields = _fields(rule, alerts, pods) | {"again": _failover_number(alerts, counted_within)}
    fields |= {name: "" for name in without if name != "who" or fields["what"] == _ALL_OWN}
    return (phrases.title_over if over else phrases.title).format_map(fields)


def line(rule: Rule, alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> str:
    """The line of one alert: what happened, to what, when. Of several, all about what happened to the first one."""
    alert = alerts[0]
    phrases = _phrases(rule, alert)
    fields = _fields(rule, alerts, pods)
    if alert.ended is not None and not alert.is_event:
        return phrases.line_over.format_map(fields)
    return phrases.line.format_map(fields) + (_observers(alert.agreement) if alert.agreement else "")


def _observers(agreement: Agreement) -> str:
    """How many observers share it."""
    others = agreement.known - 1
    if agreement.connected == 1:
        silent = "the other one does not answer" if others == 1 else f"none of the other {others} answers"
        return f" (only this observer: {silent})"
    if agreement.sharing == 1:
        return f" (only this observer, of {agreement.connected} that answer)"
    return f" ({agreement.sharing} of {agreement.connected} observers)"


def _phrases(rule: Rule, alert: Alert) -> Phrases:
    if alert.unwanted:
        return UNWANTED
    if alert.missing == str(TooOld()):
        return TOO_OLD
    if alert.missing and alert.missing.startswith(PARTLY):
        return PARTLY_OBSERVED
    if rule.on is Trigger.NO_STANDBY and alert.count:
        return UNSTEADY_STANDBY
    if rule.on is Trigger.LEADER_SILENT:
        return SILENCES[alert.reach]
    return NO_CLUSTER if alert.missing else PHRASES[rule.on]


def host(host_port: str | None) -> str | None:
    """The host of `host:port`."""
    return (host_port or "").rpartition(":")[0] or host_port


def _fields(rule: Rule, alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> dict[str, str]:
    first, subject = alerts[0], _subject(alerts)
    vacant = seconds(int((first.vacant_seconds or 0) * SECOND))
    bounds = first.downtime_seconds_at_least, first.downtime_seconds_at_most
    down = without_leader(first.vacant_seconds, *bounds)
    return {
        **_leader_fields(alerts, pods),
        "what": subject,
        "who": f"{subject} ",
        "began": spoken(first.began.wall),
        "ended": spoken(first.ended.wall) if first.ended else "",
        "lasted": vacant,
        "longest": f" after {longest}" if (longest := longest_duration(alerts)) else "",
        "down": f", {down}" if down else "",
        "count": str(first.count),
        "jobs": counted(first.count or 0, "job"),
        "risks": counted(len(alerts), "risk"),
        "about": first.about or first.labels.get(CHECK, ""),
        "detail": first.detail,
        "total": str(sum(alert.count or 0 for alert in alerts)),
        "within": age(rule.within),
        "age": age(rule.age),
        "passed": spoken(first.began.wall - rule.age),
        "latest": spoken((first.latest or first.began).wall),
        "missing": first.missing or "",
    }


def _example(alerts: Sequence[Alert]) -> Alert:
    """One whose address stands for that of the process: the port of the REST server says least."""
    return min(alerts, key=lambda alert: alert.component == _REST_SERVER)


def _leader_fields(alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> dict[str, str]:
    """Who led before and after."""
    first = _example(alerts)
    names = pods.get(first.cluster_id, {})
    before, after = (spelled(place, name_at(names, place)) for place in (first.before, first.after))
    led, previous = f"elected {clean(after)}" if after else "its job ended", _previous_leader(alerts, pods)
    return {
        "before": clean(before or "?"),
        "after": clean(after or "?"),
        "move": move(before, after),
        "moves": _moves(alerts, pods),
        "sides": f": {clean(before or '?')} and {clean(after or '?')}",
        "left": f", {previous} led before" if previous else "",
        "at": f": {previous}" if previous else "",
        "formerly": f" (previous leader: {clean(before)})" if before else "",
        "led": "new leaders, or ended" if first.component == JOBS else led,
    }


def _subject(alerts: Sequence[Alert]) -> str:
    """What the alerts are about."""
    components = {alert.component: alert for alert in alerts if alert.component}
    if len(components) == 1:
        [(component, alert)] = components.items()
        name = f"job {alert.about}" if alert.about else str(component)
        return counted(alert.count or 0, "job") if component == JOBS else name
    own = [str(component) for component in components if component.component is not Component.JOB]
    texts = own if len(own) < 2 else [f"{len(own)} components"]
    if len(own) == len(Component) - 1:
        texts = [_ALL_OWN]
    jobs = [alert.count or 1 for component, alert in components.items() if component.component is Component.JOB]
    if jobs:
        texts.append(counted(sum(jobs), "job"))
    return " and ".join(texts) or "the cluster"


def _process(alert: Alert, place: str | None, pods: Mapping[str, Pods]) -> str | None:
    """The pod at `host:port`, or the host where the pod is not known."""
    return name_at(pods.get(alert.cluster_id, {}), place) or host(place)


def _previous_leader(alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> str:
    """The leader that they are about, or the one before it, if it is one process."""
    processes = {_process(alert, alert.before, pods) for alert in alerts if alert.before}
    before, *others = processes or {None}
    return clean(before) if before and not others else ""


def longest_duration(alerts: Sequence[Alert]) -> str:
    """For how long there was no leader, the longest of these: `22 to 33 s`. Empty if nothing is known, or it is zero."""
    own = [alert for alert in alerts if not is_of_a_job(alert)]
    relevant = own or alerts
    at_least = max(map(longest_vacancy, relevant))
    bounded = [alert.downtime_seconds_at_most for alert in relevant if alert.downtime_seconds_at_most is not None]
    at_most = max(*bounded, at_least) if len(bounded) == len(relevant) else None
    if (at_least if at_most is None else at_most) < _SHORTEST_SECONDS:
        return ""
    return lasted(at_least, at_most)


def is_of_a_job(alert: Alert) -> bool:
    """Whether it is about the leader of one job, or of several."""
    return alert.component is not None and alert.component.component is Component.JOB


def longest_vacancy(alert: Alert) -> float:
    """For how many seconds there was no leader at least, as far as is known."""
    return max(alert.vacant_seconds or 0, alert.downtime_seconds_at_least or 0)


def _failover_number(alerts: Sequence[Alert], within: int) -> str:
    """The number of the failover, if it was not the first one in that time."""
    number = max(alert.count or 0 for alert in alerts)
    if number < 2 or not within:
        return ""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f" again ({number}{ending} in {age(within)})"


def _moves(alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> str:
    """From process to process."""
    moves = {tuple(_process(alert, place, pods) for place in (alert.before, alert.after)) for alert in alerts}
    (before, after), *others = moves
    if others:
        return f", in {len(others) + 1} different moves"
    if before == after:  # several processes on one host: only their ports differ, and one pair stands for all
        example = _example(alerts)
        before, after = example.before, example.after
    return f": {move(before, after)}"
