"""Alerts, as a rule makes them, and the groups they are notified in, in Alertmanager's terms; see `grouping`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from sidecar.core.agreement import Agreement
from sidecar.core.counted import Count
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import Moment, Steady
from sidecar.core.pods import host_port
from sidecar.core.policy.policy import Destination, Policy, Rule, Severity
from sidecar.core.policy.routing import Route
from sidecar.core.policy.triggers import ABOUT_OBSERVER
from sidecar.core.reach import Reach
from sidecar.core.records import RecordId, record_id

NO_RANK = -1
"""Less than any severity: nothing fires, or it is not known."""
SilenceId = Annotated[str, Meta(max_length=36)]


class Reason(StrEnum):
    """Why a group is notified now, or why an alert is suppressed: log field, metric label and audit column."""

    FIRST = "FIRST"
    GREW = "GREW"
    SHRANK = "SHRANK"
    """Some of its alerts are resolved, not all."""
    REPEAT_INTERVAL_ELAPSED = "REPEAT_INTERVAL_ELAPSED"
    RESOLVED = "RESOLVED"
    CONFIGURATION_CHANGED = "CONFIGURATION_CHANGED"
    """Alerts of an open incident that another configuration does not notify in it any more. Whether they are resolved is not known."""
    RESEND = "RESEND"
    """Everything that fires, once more, to a feed. Recorded only if it does not arrive."""
    HEARTBEAT = "HEARTBEAT"
    """The sidecar is running and can read the store."""
    DRILL = "DRILL"
    """The message of a drill, to each receiver that a critical alert of the cluster would reach."""
    SUPPRESSED_BY_INHIBITION = "SUPPRESSED_BY_INHIBITION"
    SUPPRESSED_BY_SILENCE = "SUPPRESSED_BY_SILENCE"
    SUPPRESSED_BY_TIME_INTERVAL = "SUPPRESSED_BY_TIME_INTERVAL"
    SUPPRESSED_BY_OBSERVERS = "SUPPRESSED_BY_OBSERVERS"
    """This observer cannot read the store, and most of those that can be asked can."""


MOST_OWED: Final = 50
"""Alerts of a message that are remembered: for a sidecar that takes over before it is delivered, or until its incident ends."""


class Alert(Struct, frozen=True):
    """One alert of one rule."""

    id: str
    """Every observer of one event gives it the same id."""
    rule: str
    cluster_id: str
    labels: dict[str, str]
    began: Moment
    component: ComponentId | None = None
    """None: the cluster as a whole. A job without an id: the jobs of a failover."""
    before: str | None = None
    """`host:port` of the leader last known before."""
    after: str | None = None
    vacant_seconds: float | None = None
    """For how long no leader was published before the new one."""
    downtime_seconds_at_least: float | None = None
    """How long no leader worked before the new one: bounds, as in records."""
    downtime_seconds_at_most: float | None = None
    count: int | None = None
    """How many of what the rule counts; of another leader: the number of this failover in the time in which failovers are counted."""
    latest: Moment | None = None
    """When the last of them was counted."""
    episode_id: str | None = None
    jobs_lost: int = 0
    """How many jobs its failover has lost: it is critical then, whatever the rule says."""
    vacancy_notified: bool = False
    """Whether people were notified, as critical, that there was none before this leader. It is information then, no warning."""
    ended: Moment | None = None
    missing: str | None = None
    """The message if the observer is blind because there is no such cluster."""
    unwanted: bool = False
    """It is resolved because no leader is wanted any more."""
    is_event: bool = False
    """True: an event, notified even if it is already over. False: a condition, firing while it holds."""
    subjects: tuple[str, ...] = ()
    """Its own subject, then wider ones. An observer that does not know when a condition began compares these instead of ids."""
    certain: bool = True
    """Whether the id includes when the condition began. A sidecar that started later does not know."""
    about: str | None = None
    """The name of the job that it is about, or of the first ones. None: not known."""
    detail: str = ""
    """What else is known of that job, one line."""
    reach: Reach | None = None
    """How far requests to a leader get that does not answer. When it is resolved: ANSWERS, or None if that leader is not published any
    more; unchanged if it is not asked any more.
    """
    agreement: Agreement | None = None
    """How many observers share a condition. None: no other observer is known, or they are not asked about it."""
    left_behind: bool = False
    """Its cluster was found, nobody has led or contended in it since, and it shares one group with others of that kind."""

    @property
    def is_outvoted(self) -> bool:
        """Whether it is about this observer alone: it cannot read the store, and others can. Of Flink each observer is believed."""
        return "observer" in self.labels and self.agreement is not None and self.agreement.is_outvoted


class Member(Struct, frozen=True, rename={"notified": "told", "suppressed_by": "held_back"}):
    """An alert in a group."""

    alert: Alert
    notified: bool = False
    suppressed_by: Reason | None = None
    """Why it was suppressed when its group was last flushed."""
    silence: SilenceId | None = None
    """The silence that suppressed it then."""
    closes: bool = False
    """It only closes its incident: it was over when it was notified. Its group waits until its cluster is as it should be, or, after a
    handover, for a time.
    """


class Group(Struct, frozen=True, rename={"notified_at": "told_at"}):
    """Alerts that are notified together."""

    route: str
    labels: dict[str, str]
    members: Mapping[str, Member] = {}
    flush_at: Steady | None = None
    notified_at: Steady | None = None
    thread: str = ""
    """Identifies its messages from the first one until it is forgotten. The same for observers that began with the same alerts."""
    incident: str = ""
    """The key of its incident from the first message until it is forgotten, also if another configuration would give it another one."""
    worst: int = NO_RANK
    """The worst severity of what fires, or has just happened, by its last message: 0 is the least one."""
    hastened_at: Steady | None = None
    """When it was last notified sooner than after `group_interval`, because it had got worse (steady)."""
    opened_at: tuple[str, ...] = ()
    """The names of the destinations that were last sent a message, and show its incident until they are notified of its end."""


PendingKey = tuple[str, str, ComponentId | None]
"""Rule, cluster, component."""


class Pending(Struct, frozen=True):
    """A condition that has not held for `for` yet."""

    due: Steady
    alert: Alert


class CountedFailover(Struct, frozen=True):
    """A closed episode, for rules that count failovers."""

    episode_id: RecordId
    at: Steady
    times: Count


class Failovers(Struct, frozen=True):
    """The latest failovers of one cluster, the oldest first."""

    known: tuple[CountedFailover, ...] = ()


class Alerts(Struct, frozen=True):
    """The state of all rules and groups."""

    pending: Mapping[PendingKey, Pending] = {}
    groups: Mapping[str, Group] = {}
    """By fingerprint."""
    failovers: Mapping[str, Failovers] = {}
    """By cluster."""
    evaluated: Mapping[str, object] = {}
    """By cluster: its state when the rules were last evaluated."""
    beats: Mapping[str, int] = {}
    """By destination: when the last heartbeat or resend was queued (steady)."""

    def members(self) -> list[Member]:
        """Those of all groups: an alert that is in several comes as often."""
        return [member for group in self.groups.values() for member in group.members.values()]

    def firing(self) -> list[Alert]:
        """The alerts that fire, as often as they are in a group."""
        return [member.alert for member in self.members() if member.alert.ended is None]

    def active(self) -> dict[PendingKey, Alert]:
        return {(alert.rule, alert.cluster_id, alert.component): alert for alert in self.firing()}


class Notice(Struct, frozen=True):
    """A notification of one group that is due now."""

    fingerprint: str
    """The identity of the group."""
    route: Route
    reason: Reason
    alerts: tuple[Alert, ...]
    """New alerts first, then resolved ones, then those that are still firing."""
    news: int = 1
    """How many of them are new."""
    labels: dict[str, str] = {}
    """Those of the group."""
    thread: str = ""
    """That of the group. Likewise `incident`."""
    incident: str = ""
    goes_on: bool = False
    """Whether an alert of the group that was notified still fires, also if it is suppressed or cannot be observed now; or is over, and
    hidden by what suppresses it, so that nobody was told.
    """
    closes: bool = False
    """Whether it only closes an incident, whose alerts were over when they were notified."""
    settles: bool = False
    """Whether it says how that incident ended: its cluster is as it should be again."""
    awaits_status: bool = False
    """Whether its cluster is not as it should be yet. The incident stays open until it is."""
    closing: tuple[Alert, ...] = ()
    """Alerts that people were notified to be over, if their incident ends with what is new."""

    def is_for(self, destination: Destination) -> bool:
        """Whether it is sent to `destination`: with `send_resolved: false` not if it has resolved alerts only."""
        if self.closes and not destination.keeps_incidents:
            return self.settles and destination.send_resolved and destination.feed is None
        return destination.send_resolved or self.news > 0 or self.reason not in {Reason.RESOLVED, Reason.SHRANK}

    def owed(self, most: int) -> tuple[Member, ...]:
        """At most so many of the alerts that it notifies of, as they were in their group before."""
        owed = [
            Member(alert, notified=place >= self.news)
            for place, alert in enumerate(self.alerts[:most])
            if place < self.news or alert.ended
        ]
        return (*owed, *(Member(alert, notified=True, closes=True) for alert in self.closing[: most - len(owed)]))

    @property
    def changed(self) -> tuple[Alert, ...]:
        """Those that are new, or resolved."""
        return (*self.alerts[: self.news], *[alert for alert in self.alerts[self.news :] if alert.ended])


class Suppressed(Struct, frozen=True):
    """An alert that was resolved before it could be notified, or that a silence matches from now on."""

    fingerprint: str
    route: Route
    reason: Reason
    alert: Alert
    silence: SilenceId | None = None


def new_alert(
    policy: Policy, rule: Rule, name: str, component: ComponentId | None, began: Moment, *parts: object, **facts: Any
) -> Alert:
    """An alert whose id is derived from `parts`; `facts` are further fields of `Alert`."""
    return Alert(
        id=record_id("alert", rule.alert, name, component or "", *parts),
        rule=rule.alert,
        cluster_id=name,
        labels=labels_of(policy, rule, name, component, ours=rule.on in ABOUT_OBSERVER),
        began=began,
        component=component,
        **facts,
    )


def labels_of(
    policy: Policy, rule: Rule, cluster_id: str, component: ComponentId | None, *, ours: bool
) -> dict[str, str]:
    """The labels of an alert. `ours`: about this observer, not about Flink."""
    own = {
        "alert": rule.alert,
        "severity": rule.severity.value,
        "cluster_id": cluster_id,
        "store": policy.store_of(cluster_id).value,
    }
    if component:
        own["component"] = component.component.value
        if component.job_id:
            own["job_id"] = component.job_id
    if ours:
        own["observer"] = policy.observer
    return {**policy.external_labels, **own}


def with_severity(labels: dict[str, str], alert: Alert) -> dict[str, str]:
    """The labels with the severity that the alert has by what is known of it."""
    if alert.jobs_lost:
        return {**labels, "severity": Severity.CRITICAL.value}
    if alert.vacancy_notified and labels["severity"] == Severity.WARNING:
        return {**labels, "severity": Severity.INFO.value}
    return labels


def place_of(address: str | None) -> str | None:
    """Host and port of an address."""
    return host_port(address) if address is not None else None
