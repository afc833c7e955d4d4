"""What is on its way to being told: alerts, and the groups that they wait in. Alertmanager's words; see `grouping`."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from sidecar.core.leadership import ComponentId
from sidecar.core.moment import Moment
from sidecar.core.policy import Destination
from sidecar.core.routing import Route


class Reason(StrEnum):
    """Why a group is told now, or why an alert is not. The same word is the log field, the metric label and the audit column."""

    FIRST = "FIRST"
    GREW = "GREW"
    SHRANK = "SHRANK"
    """Some of its alerts are over, not all."""
    REPEAT_INTERVAL_ELAPSED = "REPEAT_INTERVAL_ELAPSED"
    RESOLVED = "RESOLVED"
    HEARTBEAT = "HEARTBEAT"
    """Somebody watches."""
    SUPPRESSED_BY_INHIBITION = "SUPPRESSED_BY_INHIBITION"
    SUPPRESSED_BY_TIME_INTERVAL = "SUPPRESSED_BY_TIME_INTERVAL"


class Alert(Struct, frozen=True):
    """One thing that a rule has to say."""

    id: str
    """The same for every observer that sees the same."""
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
    """For how long no leader worked before the new one: bounds, as in records."""
    downtime_seconds_at_most: float | None = None
    count: int | None = None
    """Of what the rule counts."""
    episode_id: str | None = None
    ended: Moment | None = None
    missing: str | None = None
    """Out of sight because there is no such cluster: in words."""
    is_event: bool = False
    """Something happened, and is told also when it is over by then. Else something is so, and is told while it is."""
    subjects: tuple[str, ...] = ()
    """What it may be the same as, for whoever does not know since when it holds: its own subject, then those that include it."""
    certain: bool = True
    """Whether its id says since when it holds. A sidecar that starts in the middle of it does not know."""


class Member(Struct, frozen=True):
    """An alert in a group."""

    alert: Alert
    told: bool = False
    held_back: Reason | None = None
    """Why it was not told when its group was due."""


class Group(Struct, frozen=True):
    """Alerts that are told together."""

    route: str
    labels: dict[str, str]
    members: Mapping[str, Member] = {}
    flush_at: int | None = None
    told_at: int | None = None


PendingKey = tuple[str, str, ComponentId | None]
"""What a rule looks at: rule, cluster, component."""


class Pending(Struct, frozen=True):
    """Something that has not been so for long enough yet."""

    due: int
    alert: Alert


class Failover(Struct, frozen=True):
    """A failover that is over, as far as it counts."""

    episode_id: str
    at: int
    times: int


class Failovers(Struct, frozen=True):
    """The latest failovers of one cluster, the oldest first."""

    known: tuple[Failover, ...] = ()


class Alerts(Struct, frozen=True):
    """Everything that is on its way to being told."""

    pending: Mapping[PendingKey, Pending] = {}
    groups: Mapping[str, Group] = {}
    """By fingerprint."""
    failovers: Mapping[str, Failovers] = {}
    """By cluster."""
    evaluated: Mapping[str, object] = {}
    """By cluster: its state when the rules last looked at it."""
    beats: Mapping[str, int] = {}
    """By destination: when it was last told that somebody watches (steady)."""

    def active(self) -> dict[PendingKey, Alert]:
        """The alerts that are not over, by what their rule looks at."""
        found = (member.alert for group in self.groups.values() for member in group.members.values())
        return {(alert.rule, alert.cluster_id, alert.component): alert for alert in found if alert.ended is None}


class Notice(Struct, frozen=True):
    """What is to be told now of one group."""

    fingerprint: str
    """The identity of the group, as long as it lives and after."""
    route: Route
    reason: Reason
    alerts: tuple[Alert, ...]
    """The news first, then what is over, then what still holds and was told before."""
    has_news: bool = True
    """Whether any of them has not been told before."""

    def is_for(self, destination: Destination) -> bool:
        """Whether it is told there: not everybody wants to hear that something is over."""
        all_clear = self.reason in {Reason.RESOLVED, Reason.SHRANK} and not self.has_news
        return destination.send_resolved or not all_clear

    @property
    def lasting(self) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.alerts if alert.ended is None)


class Suppressed(Struct, frozen=True):
    """An alert that was over before it could be told."""

    fingerprint: str
    route: Route
    reason: Reason
    alert: Alert
