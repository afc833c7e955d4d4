"""The texts of alerts by trigger: title and line, while firing and when resolved."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Alert
from sidecar.core.alerting.conditions import JOBS
from sidecar.core.cluster.cluster_state import TooOld
from sidecar.core.cluster.record_lines import lasted, leaderless, move
from sidecar.core.counted import counted
from sidecar.core.finder import PARTLY
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.leadership.transitions import CALM
from sidecar.core.moment import SECOND, age, seconds, spoken
from sidecar.core.pods import Pods, name_at, spelled
from sidecar.core.policy.policy import Rule
from sidecar.core.policy.routing import CHECK
from sidecar.core.policy.triggers import ALL_OWN, TRIGGERS, Phrases, Trigger
from sidecar.core.reach import Reach
from sidecar.core.sanitize import clean

_NOT_ASKED: Final = "the REST server of {before} is not asked any more since {ended}, after {lasted}"
SILENCES: Final[Mapping[Reach | None, Phrases]] = {
    Reach.SILENT: TRIGGERS[Trigger.LEADER_SILENT].phrases,
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
"""The words for a leader that does not answer, by `Alert.reach`."""

_SHORTEST_SECONDS: Final = 0.05
"""Less would be shown as 0.0."""
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)
_TOO_OLD: Final = str(TooOld())
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
    phrases, fields = _phrases(rule, alerts[0]), _Fields(rule, alerts, pods)
    fields["again"] = _failover_number(alerts, counted_within)
    fields |= {name: "" for name in without if name != "who" or fields["what"] == ALL_OWN}
    return (phrases.title_over if over else phrases.title).format_map(fields)


def line(rule: Rule, alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> str:
    """The line of one alert: what happened, to what, when. Of several, all about what happened to the first one."""
    alert = alerts[0]
    phrases, fields = _phrases(rule, alert), _Fields(rule, alerts, pods)
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
    if alert.missing:
        return (
            TOO_OLD
            if alert.missing == _TOO_OLD
            else PARTLY_OBSERVED
            if alert.missing.startswith(PARTLY)
            else NO_CLUSTER
        )
    if rule.on is Trigger.NO_STANDBY and alert.count:
        return UNSTEADY_STANDBY
    if rule.on is Trigger.LEADER_SILENT:
        return SILENCES[alert.reach]
    return TRIGGERS[rule.on].phrases


def host(host_port: str | None) -> str | None:
    return (host_port or "").rpartition(":")[0] or host_port


class _Fields(dict[str, str]):
    """The fields of a text, each formed when the text has it."""

    def __init__(self, rule: Rule, alerts: Sequence[Alert], pods: Mapping[str, Pods]) -> None:
        super().__init__()
        self.rule, self.alerts, self.pods, self.first = rule, alerts, pods, alerts[0]

    def __missing__(self, name: str) -> str:
        text = self[name] = _FIELDS[name](self)
        return text

    @cached_property
    def places(self) -> tuple[str, str]:
        """Who led before and after."""
        alert = _example(self.alerts)
        pods = self.pods.get(alert.cluster_id) or {}
        before, after = (
            (alert.before and name_at(pods, alert.before), alert.after and name_at(pods, alert.after))
            if pods
            else (None, None)
        )
        return spelled(alert.before, before), spelled(alert.after, after)

    @property
    def previous(self) -> str:
        """The leader that they are about, or the one before it, if it is one process."""
        processes = {self.process(alert, alert.before) for alert in self.alerts if alert.before}
        before, *others = processes or {None}
        return clean(before) if before and not others else ""

    @property
    def led(self) -> str:
        if self.first.component == JOBS:
            return "new leaders, or ended"
        return f"elected {clean(self.places[1])}" if self.places[1] else "its job ended"

    @property
    def moves(self) -> str:
        moves = {(self.process(alert, alert.before), self.process(alert, alert.after)) for alert in self.alerts}
        (before, after), *others = moves
        if others:
            return f", in {len(others) + 1} different moves"
        if before == after:  # several processes on one host: only their ports differ, and one pair stands for all
            example = _example(self.alerts)
            before, after = example.before, example.after
        return f": {move(before, after)}"

    @property
    def down(self) -> str:
        alert = self.first
        down = leaderless(alert.vacant_seconds, alert.downtime_seconds_at_least, alert.downtime_seconds_at_most)
        return f", {down}" if down else ""

    def process(self, alert: Alert, place: str | None) -> str | None:
        """The pod at `host:port`, or the host where the pod is not known."""
        pods = self.pods.get(alert.cluster_id)
        return (pods and name_at(pods, place)) or host(place)


def _affixed(prefix: str, text: str, suffix: str = "") -> str:
    return f"{prefix}{text}{suffix}" if text else ""


_FIELDS: Final[Mapping[str, Callable[[_Fields], str]]] = {
    "what": lambda of: _subject(of.alerts),
    "who": lambda of: f"{of['what']} ",
    "began": lambda of: spoken(of.first.began.wall),
    "ended": lambda of: spoken(of.first.ended.wall) if of.first.ended else "",
    "lasted": lambda of: seconds(int((of.first.vacant_seconds or 0) * SECOND)),
    "longest": lambda of: _affixed(" after ", longest_duration(of.alerts)),
    "down": lambda of: of.down,
    "count": lambda of: str(of.first.count),
    "jobs": lambda of: counted(of.first.count or 0, "job"),
    "risks": lambda of: counted(len(of.alerts), "risk"),
    "about": lambda of: of.first.about or of.first.labels.get(CHECK, ""),
    "detail": lambda of: of.first.detail,
    "total": lambda of: str(sum(alert.count or 0 for alert in of.alerts)),
    "within": lambda of: age(of.rule.within),
    "age": lambda of: age(of.rule.age),
    "passed": lambda of: spoken(of.first.began.wall - of.rule.age),
    "latest": lambda of: spoken((of.first.latest or of.first.began).wall),
    "missing": lambda of: of.first.missing or "",
    "before": lambda of: clean(of.places[0] or "?"),
    "after": lambda of: clean(of.places[1] or "?"),
    "move": lambda of: move(*of.places),
    "moves": lambda of: of.moves,
    "sides": lambda of: f": {of['before']} and {of['after']}",
    "left": lambda of: _affixed(", ", of.previous, " led before"),
    "at": lambda of: _affixed(": ", of.previous),
    "formerly": lambda of: _affixed(" (previous leader: ", clean(of.places[0]), ")"),
    "led": lambda of: of.led,
    "calm": lambda _: seconds(CALM),
}


def _example(alerts: Sequence[Alert]) -> Alert:
    """One whose address stands for that of the process: the port of the REST server says least."""
    for alert in alerts:
        if alert.component != _REST_SERVER:
            return alert
    return alerts[0]


def _subject(alerts: Sequence[Alert]) -> str:
    """What the alerts are about."""
    components = {alert.component: alert for alert in alerts if alert.component}
    if len(components) == 1:
        [(component, alert)] = components.items()
        name = f"job {alert.about}" if alert.about else str(component)
        return counted(alert.count or 0, "job") if component == JOBS else name
    own = [component for component in components if component.component is not Component.JOB]
    texts = [*map(str, own)] if len(own) < 2 else [f"{len(own)} components"]
    if len(own) == len(Component) - 1:
        texts = [ALL_OWN]
    if len(own) < len(components):
        jobs = [alert.count or 1 for component, alert in components.items() if component.component is Component.JOB]
        texts.append(counted(sum(jobs), "job"))
    return " and ".join(texts) or "the cluster"


def longest_duration(alerts: Sequence[Alert]) -> str:
    """For how long there was no leader, the longest of these: `22 to 33 s`. Empty if nothing is known, or it is zero."""
    relevant = [alert for alert in alerts if not is_of_a_job(alert)] or alerts
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
    number = max([alert.count or 0 for alert in alerts]) if within else 0
    if number < 2:
        return ""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f" again ({number}{ending} in {age(within)})"
