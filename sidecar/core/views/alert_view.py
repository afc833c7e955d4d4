"""What fires, what is suppressed and why, what will fire soon, and silences: for the page, the API and commands."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.alerts import Alert, Member, Pending
from sidecar.core.alerting.grouping import is_observable
from sidecar.core.alerting.phrases import headline, line
from sidecar.core.alerting.silence_document import StoredSilence
from sidecar.core.alerting.suppression import (
    ORDER,
    AlertState,
    By,
    Silence,
    Suppression,
    hiding,
    suppressions,
    surroundings,
)
from sidecar.core.cluster.status import Status
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.moment import Moment, Timestamp, timestamp
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import every, matching
from sidecar.core.sanitize import clean
from sidecar.core.state import State
from sidecar.core.views.snapshot import Snapshot


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
    """The alerts, one for all subjects of a rule in a cluster, in the same order."""
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
        self._statuses = Statuses(snapshot.policy, snapshot.at)
        self._rules = {rule.alert: rule for rule in snapshot.policy.rules}
        self._pods = {name: cluster.pods for name, cluster in self._state.clusters.items()}
        self._blind = {name for name, cluster in self._state.clusters.items() if not cluster.leaders_in_sight}

    def active(self) -> Iterator[tuple[AlertView, Alert]]:
        """The alerts that fire, each once, in however many groups it is."""
        routes = {route.key: route for route in every(self._policy.route)}
        around = surroundings(self._policy, self._state.alerts, self._state.silences, self._at)
        by_id: dict[str, list[tuple[Member, Suppression | None]]] = {}
        for group in self._state.alerts.groups.values():
            firing = {
                key: member
                for key, member in group.members.items()
                if member.alert.ended is None and member.alert.rule in self._rules
            }
            hidden = suppressions(around, routes.get(group.route, self._policy.route), firing)
            for key, member in firing.items():
                by_id.setdefault(member.alert.id, []).append((member, hidden.get(key)))
        for members in by_id.values():
            alert, reasons = members[-1][0].alert, [suppression for _, suppression in members if suppression]
            # It is notified where one of its groups is not suppressed; else it is shown by what all of them share.
            last = max(reasons, key=lambda suppression: suppression.place) if len(reasons) == len(members) else None
            notified = any(member.notified for member, _ in members)
            yield self._view(alert, notified=notified, suppression=last), alert

    def pending(self) -> Iterator[tuple[AlertView, Alert]]:
        """The alerts whose conditions hold, and that will fire."""
        for pending in self._state.alerts.pending.values():
            if rule := self._rules.get(pending.alert.rule):
                fires_at = timestamp(self._at.wall + pending.due - self._at.steady)
                why = _why_it_waits(rule, pending)
                yield self._view(pending.alert, fires_at=fires_at, why=why), pending.alert

    def headline(self, alerts: Sequence[Alert]) -> str:
        """What alerts of one rule are about together."""
        return headline(self._rules[alerts[0].rule], alerts, self._pods, over=False)

    def _status(self, cluster_id: str) -> str:
        cluster = self._state.clusters.get(cluster_id)
        return (self._statuses.status_of(cluster_id, cluster).status if cluster else Status.BLIND).value

    def _view(
        self,
        alert: Alert,
        *,
        notified: bool = False,
        suppression: Suppression | None = None,
        fires_at: Timestamp | None = None,
        why: str | None = None,
    ) -> AlertView:
        rule, component = self._rules[alert.rule], alert.component
        state = AlertState.PENDING if fires_at else ORDER[suppression.place].state if suppression else AlertState.FIRING
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
            reason=_suppressed_by(suppression.by) if suppression else why,
            receivers=list(dict.fromkeys(route.receiver for route in matching(self._policy.route, alert.labels))),
            notified=notified,
            observed=is_observable(alert, self._blind),
            fires_at=fires_at,
            silence_id=suppression.silence_id if suppression else None,
            episode_id=alert.episode_id,
            labels=alert.labels,
        )


def _suppressed_by(by: By) -> str:
    match by:
        case Silence(over_at=until, author=author, comment=comment):
            return f"silenced by {clean(author)} until {timestamp(until)[:16].replace('T', ' ')} UTC: {clean(comment)}"
        case str(intervals):
            return f"its notifications are muted: {clean(intervals)}"
        case Agreement(connected=connected, sharing=sharing):
            others = connected - sharing
            return f"{'another observer' if others == 1 else f'{others} other observers'} can read it"
        case _:
            return f"inhibited by {clean(by['alert'])} of {clean(by['cluster_id'])}"


def _why_it_waits(rule: Rule, pending: Pending) -> str | None:
    if pending.alert.is_event:
        return "waits until it is known whether the failover was planned"
    if pending.due > pending.alert.began.steady + rule.hold_for:
        return "the failover is planned: it may take as long as planned_budget"
    return None


class SilenceView(Struct, frozen=True):
    """One silence. Its texts are as somebody wrote them."""

    id: str
    state: str
    """`active`, `pending` (it starts later) or `expired`."""
    matchers: Sequence[str]
    starts_at: Timestamp
    ends_at: Timestamp
    author: str
    comment: str
    clusters: Sequence[str]
    """The clusters in whose stores it is; `all-clusters`: all that are found."""
    hid: int | None
    """Alerts that it has hidden since this sidecar knows it. Null: a command found no records."""
    drill: str | None
    """What it expects, if it is a drill: it hides of the alerts that it matches only what a failover causes. Null: a silence."""
    hides: int | UnsetType = UNSET
    """Alerts that it hides now. Commands do not know it."""


def silences(snapshot: Snapshot) -> list[SilenceView]:
    """All silences that are known, active ones first, of these the one that ends next first."""
    by_id: dict[str, Silence] = {}
    clusters: dict[str, list[str]] = {}
    for name, document in sorted(snapshot.state.silences.items()):
        for key, silence in document.known.items():
            by_id[key] = silence
            clusters.setdefault(key, []).append(name)
    known = snapshot.policy, snapshot.state, snapshot.at
    hides, hid = hidden_now(*known), hidden(*known)
    views = [
        silence_view(silence, _state(silence, snapshot.at), clusters[key], hid[key], hides[key])
        for key, silence in by_id.items()
    ]
    return sorted(views, key=lambda view: (view.state != "active", view.ends_at, view.id))


def hidden(policy: Policy, state: State, at: Moment) -> Counter[str]:
    """By silence: how many alerts it has hidden, those that it hides now included."""
    hid = Counter[str]()
    for document in state.silences.values():
        hid.update({key: silence.hid for key, silence in document.known.items()})
    return hid | hidden_now(policy, state, at)


def hidden_now(policy: Policy, state: State, at: Moment) -> Counter[str]:
    """By silence: the alerts that fire and that it matches, as the alerts are shown; also before a notification of them is due."""
    firing = {member.alert.id: member for member in state.alerts.members() if member.alert.ended is None}
    return Counter(silence.id for silence in hiding(policy, state.silences, firing, at).values())


def problems(snapshot: Snapshot) -> dict[str, str]:
    """By cluster: why its silences are not up to date."""
    return {name: document.problem for name, document in sorted(snapshot.state.silences.items()) if document.problem}


def silence_view(
    silence: StoredSilence, state: str, clusters: Sequence[str], hid: int | None, hides: int | UnsetType = UNSET
) -> SilenceView:
    return SilenceView(
        silence.id,
        state,
        [*map(str, silence.matchers)],
        timestamp(silence.starts_at),
        timestamp(silence.over_at),
        silence.author,
        silence.comment,
        clusters,
        hid,
        silence.drill.value if silence.drill else None,
        hides,
    )


def _state(silence: Silence, at: Moment) -> str:
    if silence.is_over(at.wall) or at.steady >= silence.until:
        return "expired"
    return "active" if silence.is_active(at) else "pending"
