"""What keeps a firing alert from being notified now: one list, which the record of a notification and the page ask alike."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from sidecar.core.agreement import Agreement
from sidecar.core.alerting.active_silences import Documents, Silence, hiding
from sidecar.core.alerting.alerts import Alert, Alerts, Member, Reason
from sidecar.core.moment import Moment
from sidecar.core.policy.labels import Labels
from sidecar.core.policy.policy import Policy
from sidecar.core.policy.routing import Route, inhibitor


class AlertState(StrEnum):
    """How far an alert has come on its way to people. FIRING: nothing keeps it from being notified."""

    FIRING = "firing"
    SILENCED = "silenced"
    INHIBITED = "inhibited"
    MUTED = "muted"
    """By the time intervals of all of its routes."""
    OUTVOTED = "outvoted"
    """This observer cannot read the store, and others can."""
    PENDING = "pending"
    """Its condition holds, but not for `for` yet."""


class Scene(NamedTuple):
    """All that decides, besides the alert and its route."""

    policy: Policy
    documents: Documents
    firing: Sequence[Labels]
    """The labels of all alerts that fire."""
    now: Moment


def scene(policy: Policy, alerts: Alerts, documents: Documents, now: Moment) -> Scene:
    return Scene(policy, documents, [alert.labels for alert in alerts.active().values()], now)


Members = Mapping[str, Member]
By = Silence | str | Labels | Agreement
"""What suppresses: a silence or drill, the time intervals in words, the alert that inhibits, or the other observers."""


def _silences(scene: Scene, _: Route, members: Members) -> Mapping[str, By]:
    return hiding(scene.policy, scene.documents, members, scene.now)


def _mutes(scene: Scene, route: Route, members: Members) -> Mapping[str, By]:
    why = route.muted_by(scene.now.wall)
    return dict.fromkeys(members, why) if why is not None else {}


def _other_observers(_scene: Scene, _: Route, members: Members) -> Mapping[str, By]:
    alerts = _unsettled(members)
    return {key: alert.agreement for key, alert in alerts.items() if alert.agreement and alert.is_outvoted}


def _inhibitions(scene: Scene, _: Route, members: Members) -> Mapping[str, By]:
    rules, firing = scene.policy.inhibit_rules, scene.firing
    if not rules:
        return {}
    sources = ((key, inhibitor(rules, alert.labels, firing)) for key, alert in _unsettled(members).items())
    return {key: source for key, source in sources if source is not None}


def _unsettled(members: Members) -> Mapping[str, Alert]:
    """Without those that were notified and are over: of that people are notified, whatever else is known."""
    return {key: member.alert for key, member in members.items() if not (member.notified and member.alert.ended)}


class Suppressor(NamedTuple):
    """One reason why alerts are not notified, on the page and in records."""

    state: AlertState
    reason: Reason
    suppressed: Callable[[Scene, Route, Members], Mapping[str, By]]
    """Those of the members that it suppresses on this route, and by what."""


ORDER: Final = (
    Suppressor(AlertState.SILENCED, Reason.SUPPRESSED_BY_SILENCE, _silences),
    Suppressor(AlertState.MUTED, Reason.SUPPRESSED_BY_TIME_INTERVAL, _mutes),
    Suppressor(AlertState.OUTVOTED, Reason.SUPPRESSED_BY_OBSERVERS, _other_observers),
    Suppressor(AlertState.INHIBITED, Reason.SUPPRESSED_BY_INHIBITION, _inhibitions),
)
"""An alert is suppressed by the first that applies."""


class Suppression(NamedTuple):
    """Why one alert is not notified now."""

    place: int
    """In ORDER."""
    by: By

    @property
    def reason(self) -> Reason:
        return ORDER[self.place].reason

    @property
    def silence_id(self) -> str | None:
        return self.by.id if isinstance(self.by, Silence) else None


def suppressions(scene: Scene, route: Route, members: Members) -> Mapping[str, Suppression]:
    """The members of one group that are not notified now, by their keys."""
    hidden: dict[str, Suppression] = {}
    for place, suppressor in enumerate(ORDER):
        rest = {key: member for key, member in members.items() if key not in hidden} if hidden else members
        found = suppressor.suppressed(scene, route, rest)
        hidden |= {key: Suppression(place, by) for key, by in found.items()}
    return hidden
