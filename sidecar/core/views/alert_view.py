"""What fires, what is suppressed and why, and what will fire soon: for the page, `GET /api/v1/alerts` and the command `alerts`."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Final

from msgspec import Struct

from sidecar.core.alerting import active_silences
from sidecar.core.alerting.active_silences import Silence
from sidecar.core.alerting.alerts import Alert, Group, Member, Pending
from sidecar.core.alerting.grouping import is_observable, is_outvoted
from sidecar.core.alerting.phrases import headline, line
from sidecar.core.cluster.status import Status
from sidecar.core.cluster.status_of import status_of
from sidecar.core.moment import Timestamp, timestamp
from sidecar.core.policy.labels import Labels
from sidecar.core.policy.policy import Rule, Severity
from sidecar.core.policy.routing import Route, inhibitor, matching
from sidecar.core.sanitize import clean
from sidecar.core.views.snapshot import Snapshot


class AlertState(StrEnum):
    """Whether an alert is notified, and what keeps it from that. The first that applies."""

    FIRING = "firing"
    SILENCED = "silenced"
    INHIBITED = "inhibited"
    MUTED = "muted"
    """By the time intervals of all of its routes."""
    OUTVOTED = "outvoted"
    """This observer cannot read the store, and others can."""
    PENDING = "pending"
    """Its condition holds, but not for `for` yet."""


class AlertView(Struct, frozen=True):
    """One alert. Its texts are printable and bounded, except `labels`."""

    id: str
    alert: str
    """The name of its rule."""
    trigger: str
    state: str
    severity: str
    cluster_id: str
    status: str
    """That of its cluster now: `DOWN`, `UNCHECKED`, `OK`, …"""
    component: str | None
    """Null: the cluster as a whole."""
    job_id: str | None
    since: Timestamp
    """When its condition began to hold, or its event happened."""
    summary: str
    """What happened, as in a message."""
    reason: str | None
    """Why it is not notified (now). Null: it is."""
    receivers: Sequence[str]
    """Where it is notified, or would be."""
    notified: bool
    """Whether a notification of it was queued."""
    observed: bool
    """False: its cluster cannot be read now, so that it is not known whether the alert still fires."""
    fires_at: Timestamp | None
    """`pending`: when it fires, if its condition still holds then."""
    silence_id: str | None
    episode_id: str | None
    labels: dict[str, str]


_STATES: Final = tuple(AlertState)
_SEVERITIES: Final = tuple(reversed(Severity))


class AlertGroup(Struct, frozen=True):
    """Alerts of one rule and one cluster that are in the same state for the same reason."""

    first: AlertView
    """The oldest."""
    number: int
    headline: str
    """What they are about together, as in the title of a message."""


def alerts(snapshot: Snapshot) -> list[AlertView]:
    """The alerts that fire or are pending: by state, then the most severe first, then the oldest first."""
    return [view for view, _ in _sorted(_Views(snapshot))]


def grouped(snapshot: Snapshot) -> list[AlertGroup]:
    """The same, one for all subjects of a rule in a cluster, in the same order."""
    views = _Views(snapshot)
    groups: dict[tuple[str | None, ...], list[tuple[AlertView, Alert]]] = {}
    for view, alert in _sorted(views):
        groups.setdefault((view.alert, view.cluster_id, view.state, view.reason), []).append((view, alert))
    return [
        AlertGroup(together[0][0], len(together), views.headline([alert for _, alert in together]))
        for together in groups.values()
    ]


def _sorted(views: "_Views") -> list[tuple[AlertView, Alert]]:
    return sorted([*views.active(), *views.pending()], key=lambda pair: _order(pair[0]))


def _order(view: AlertView) -> tuple[int, int, str, str]:
    return _STATES.index(AlertState(view.state)), _SEVERITIES.index(Severity(view.severity)), view.since, view.id


class _Views:
    """Makes the views of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._at, self._policy, self._state = snapshot.at, snapshot.policy, snapshot.state
        self._rules = {rule.alert: rule for rule in snapshot.policy.rules}
        self._pods = {name: cluster.pods for name, cluster in self._state.clusters.items()}
        self._blind = {name for name, cluster in self._state.clusters.items() if not cluster.leaders_in_sight}

    def active(self) -> Iterator[tuple[AlertView, Alert]]:
        """The alerts that fire, each once, in however many groups it is."""
        members = [member for member in self._state.alerts.members() if member.alert.rule in self._rules]
        by_id = {member.alert.id: member.alert for member in members if member.alert.ended is None}
        notified = {member.alert.id for member in members if member.notified and member.alert.ended is None}
        everything = Group("", {}, {key: Member(alert) for key, alert in by_id.items()})
        hidden = active_silences.hiding(self._policy, self._state.silences, everything, self._at)
        firing = [alert.labels for alert in by_id.values()]
        for key, alert in by_id.items():
            routes = matching(self._policy.route, alert.labels)
            state, reason = self._suppression(alert, hidden.get(key), firing, routes)
            was_notified = key in notified
            yield self._view(alert, routes, state, reason, notified=was_notified, silence_id=hidden.get(key)), alert

    def pending(self) -> Iterator[tuple[AlertView, Alert]]:
        """The alerts whose conditions hold, and that will fire."""
        for pending in self._state.alerts.pending.values():
            if rule := self._rules.get(pending.alert.rule):
                fires_at = timestamp(self._at.wall + pending.due - self._at.steady)
                why = _why_it_waits(rule, pending)
                routes = matching(self._policy.route, pending.alert.labels)
                view = self._view(pending.alert, routes, AlertState.PENDING, why, fires_at=fires_at)
                yield view, pending.alert

    def headline(self, alerts: Sequence[Alert]) -> str:
        """What alerts of one rule are about together."""
        return headline(self._rules[alerts[0].rule], alerts, self._pods, over=False)

    def _suppression(
        self, alert: Alert, silence_id: str | None, firing: Sequence[Labels], routes: Sequence[Route]
    ) -> tuple[AlertState, str | None]:
        if silence_id is not None:
            by_id = self._state.silences[self._policy.silences_of(alert.cluster_id) or ""].known
            return AlertState.SILENCED, _silenced(by_id[silence_id])
        if source := inhibitor(self._policy.inhibit_rules, alert.labels, firing):
            return AlertState.INHIBITED, f"inhibited by {clean(source['alert'])} of {clean(source['cluster_id'])}"
        muted = [route.muted_by(self._at.wall) for route in routes]
        if muted and all(muted):
            return AlertState.MUTED, f"its notifications are muted: {clean(muted[0])}"
        if is_outvoted(alert) and alert.agreement:
            others = alert.agreement.connected - alert.agreement.sharing
            return (
                AlertState.OUTVOTED,
                f"{'another observer' if others == 1 else f'{others} other observers'} can read it",
            )
        return AlertState.FIRING, None

    @cache  # noqa: B019  it lives as long as one answer
    def _status(self, cluster_id: str) -> str:
        cluster = self._state.clusters.get(cluster_id)
        current = status_of(self._policy, cluster_id, cluster, self._at).status if cluster else Status.BLIND
        return current.value

    def _view(
        self,
        alert: Alert,
        routes: Sequence[Route],
        state: AlertState,
        reason: str | None,
        *,
        notified: bool = False,
        fires_at: Timestamp | None = None,
        silence_id: str | None = None,
    ) -> AlertView:
        rule, component = self._rules[alert.rule], alert.component
        return AlertView(
            id=alert.id,
            alert=alert.rule,
            trigger=rule.on.value,
            state=state.value,
            severity=rule.severity.value,
            cluster_id=alert.cluster_id,
            status=self._status(alert.cluster_id),
            component=component.component.value if component else None,
            job_id=component.job_id if component else None,
            since=timestamp(alert.began.wall),
            summary=line(rule, [alert], self._pods),
            reason=reason,
            receivers=list(dict.fromkeys(route.receiver for route in routes)),
            notified=notified,
            observed=is_observable(alert, self._blind),
            fires_at=fires_at,
            silence_id=silence_id,
            episode_id=alert.episode_id,
            labels=alert.labels,
        )


def _silenced(silence: Silence) -> str:
    until = timestamp(silence.over_at)
    return f"silenced by {clean(silence.author)} until {until[:16].replace('T', ' ')} UTC: {clean(silence.comment)}"


def _why_it_waits(rule: Rule, pending: Pending) -> str | None:
    if pending.alert.is_event:
        return "waits until it is known whether the failover was planned"
    if pending.due > pending.alert.began.steady + rule.hold_for:
        return "the failover is planned: it may take as long as planned_budget"
    return None
