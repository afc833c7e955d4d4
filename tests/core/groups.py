"""Alerts in groups under a clock: what is notified, second by second."""

from typing import Final, Self

from msgspec.structs import replace

from sidecar.core.alerting import flushing, grouping
from sidecar.core.alerting.alerts import Alert, Alerts, labels_of
from sidecar.core.alerting.suppression import Documents
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.journal_rows import assemble, changes
from sidecar.core.moment import SECOND, Moment
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import InhibitRule, Matcher, Operator, Route, TimeInterval, TimeRange
from sidecar.core.policy.triggers import Trigger
from sidecar.core.state import State
from tests.kit.cluster import CLUSTER, DISPATCHER, REST_SERVER, START
from tests.kit.core_sidecar import POLICY

LOW: Final = Rule("Low", Trigger.VACANT, Severity.INFO)
HIGH: Final = Rule("High", Trigger.VACANT, Severity.CRITICAL)
EVENT: Final = Rule("Event", Trigger.LEADER_CHANGED)
ALL: Final = Route("ops", group_wait=5 * SECOND, group_interval=60 * SECOND, repeat_interval=3600 * SECOND)
NIGHT: Final = TimeInterval("night", (TimeRange(times=((8 * 60, 8 * 60 + 10),)),))
"""The first ten minutes of the scenes."""


def only(rule: Rule) -> tuple[Matcher, ...]:
    return (Matcher("alert", Operator.EQUAL, rule.alert),)


HIGH_SILENCES_LOW: Final = InhibitRule(only(HIGH), only(LOW), ("cluster_id",))


def alert(rule: Rule, component: ComponentId = DISPATCHER, name: str | None = None) -> Alert:
    labels = labels_of(POLICY, rule, CLUSTER, component, ours=False)
    at = Moment(START, START)
    event = rule is EVENT
    key = name or f"{rule.alert} {component}"
    return Alert(key, rule.alert, CLUSTER, labels, at, component, ended=at if event else None, is_event=event)


class Groups:
    """Alerts that come and go, and what was notified of them: (second, receiver, reason, alerts)."""

    def __init__(self, route: Route = ALL, *inhibited: InhibitRule) -> None:
        self.policy: Policy = replace(POLICY, rules=(LOW, HIGH, EVENT), route=route, inhibit_rules=inhibited)
        self.alerts = Alerts()
        self.second = 0
        self.blind: set[str] = set()
        self.documents: Documents = {}
        self.notices: list[tuple[int, str, str, list[str]]] = []
        self.suppressed: list[tuple[int, str, str, str]] = []

    @property
    def now(self) -> Moment:
        at = START + self.second * SECOND
        return Moment(at, at)

    def fires(self, *alerts: Alert) -> Self:
        for firing in alerts:
            self.alerts = grouping.fire(self.alerts, self.policy, firing, self.now)
        return self

    def ends(self, *alerts: Alert) -> Self:
        over = {ended.id for ended in alerts}
        self.alerts = grouping.resolve(self.alerts, self.policy, over, self.now, _as_it_is)
        return self

    def loads(self, policy: Policy) -> Self:
        self.policy = policy
        self.alerts = grouping.rerouted(self.alerts, policy, self.now)
        return self

    def is_killed(self) -> Self:
        state, problems = assemble(changes(State(), State(alerts=self.alerts)))
        assert problems == []
        self.alerts = state.alerts
        return self.loads(self.policy)

    def waits(self, seconds: int) -> Self:
        for _ in range(seconds):
            self.second += 1
            self.alerts, notices, suppressed = flushing.flush(
                self.alerts, self.policy, self.blind, self.now, self.documents
            )
            for notice in notices:
                names = [f"{member.id}{' is over' * (member.ended is not None)}" for member in notice.alerts]
                self.notices.append((self.second, notice.route.receiver, notice.reason.value, names))
            for hidden in suppressed:
                self.suppressed.append((self.second, hidden.route.receiver, hidden.reason.value, hidden.alert.id))
        return self


def _as_it_is(over: Alert) -> Alert:
    return over


D_LOW, R_LOW, D_HIGH, R_HIGH = alert(LOW), alert(LOW, REST_SERVER), alert(HIGH), alert(HIGH, REST_SERVER)
D_EVENT, R_EVENT = alert(EVENT), alert(EVENT, REST_SERVER)


TWO: Final = replace(
    ALL,
    routes=(
        Route("oncall", "{}/0", only(LOW), group_wait=1 * SECOND, group_interval=10 * SECOND, continues=True),
        Route("team", "{}/1", only(LOW), group_wait=2 * SECOND, group_interval=10 * SECOND),
    ),
)
