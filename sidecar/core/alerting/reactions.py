"""Alerts for what happened in a cluster: a leader changed, a failover is over, a job is back. `rules` are about what holds.

An alert's id is derived from its cause: every observer of the same event computes the same id, so that one of them can notify for all.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting import conditions, grouping
from sidecar.core.alerting.alerts import (
    Alert,
    Alerts,
    CountedFailover,
    Failovers,
    Pending,
    new_alert,
    place_of,
    with_severity,
)
from sidecar.core.alerting.conditions import MOST_NAME
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.draft import Happened
from sidecar.core.failover.causes import Cause
from sidecar.core.failover.episodes import LOOK_BACK, Episode
from sidecar.core.failover.recovery_state import BadRestore
from sidecar.core.flink.leadership import Component, ComponentId
from sidecar.core.leadership.transitions import Transition
from sidecar.core.leadership.unobserved import bounds_in_seconds
from sidecar.core.moment import Moment, in_seconds
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.routing import PLANNED
from sidecar.core.policy.triggers import Trigger
from sidecar.core.quarantine import Quarantine
from sidecar.core.records import AnyRecord, EpisodeRecord, Recovery
from sidecar.core.sanitize import clean

MOST_FAILOVERS: Final = 1000
"""Remembered per cluster."""
_BAD_RESTORES: Final = {"nothing": Trigger.RESTORED_FROM_NOTHING, "older": Trigger.RESTORED_FROM_OLDER}
BY_HAPPENED: Final[Mapping[type, frozenset[Trigger]]] = {
    Transition: frozenset({Trigger.LEADER_CHANGED, Trigger.JOB_LEADER_CHANGED, Trigger.UNOBSERVED, Trigger.SPLIT}),
    EpisodeRecord: frozenset({Trigger.SAME_PROCESS_REELECTION, Trigger.PLANNED_FAILOVER}),
    BadRestore: frozenset(_BAD_RESTORES.values()),
    Recovery: frozenset({Trigger.RECOVERED}),
}
"""What each kind of event may fire. Thousands of jobs may move in one step, and most rules are about something else."""


class Drills(Struct, frozen=True):
    """Which failovers of a cluster are drills: no rule and no title counts them."""

    episodes: frozenset[str] = frozenset()
    expects_one: bool = False
    """Whether a drill's window is open in which none has happened yet: the next one is the drill's."""

    def have(self, episode_id: str | None) -> bool:
        return self.expects_one or episode_id in self.episodes


NO_DRILLS: Final = Drills()


class Circumstances(NamedTuple):
    """All that decides, besides what happened and the rule."""

    policy: Policy
    cluster: ClusterState
    """After it happened."""
    drills: Drills
    at: Moment


def react(alerts: Alerts, happened: AnyRecord | Happened, around: Circumstances, quarantine: Quarantine) -> Alerts:
    """Fire or withdraw alerts for something that happened in a cluster."""
    triggers = BY_HAPPENED.get(type(happened), frozenset())
    match happened:
        case EpisodeRecord(cause=Cause.OBSERVER_BLIND):
            return alerts
        case EpisodeRecord() if not around.drills.have(happened.id):
            alerts = _count_failover(alerts, happened, around)
    for rule in around.policy.rules:
        if rule.on in triggers:
            try:
                alerts = _react_to(happened, alerts, rule, around)
            except Exception as error:  # noqa: BLE001  whatever it is, the other rules go on
                quarantine.leave_out(error, "rule", rule.alert, "of cluster", happened.cluster_id)
    return alerts


def _react_to(happened: AnyRecord | Happened, alerts: Alerts, rule: Rule, around: Circumstances) -> Alerts:
    match happened:
        case Transition():
            return _react_to_transition(alerts, rule, happened, around)
        case EpisodeRecord():
            return _react_to_episode(alerts, rule, happened, around)
        case BadRestore() | Recovery() if alert := _recovery_alert(rule, happened, around):
            return grouping.fire(alerts, around.policy, alert, around.at)
    return alerts


def _react_to_episode(alerts: Alerts, rule: Rule, episode: EpisodeRecord, around: Circumstances) -> Alerts:
    policy, at = around.policy, around.at
    if rule.on is Trigger.SAME_PROCESS_REELECTION and episode.cause == Cause.SAME_PROCESS_REELECTION:
        return grouping.fire(alerts, policy, _episode_alert(rule, episode, around), at)
    said = episode.cause == Cause.CLUSTER_REMOVED and any(other.on is Trigger.STOPPED for other in policy.rules)
    if rule.on is Trigger.PLANNED_FAILOVER and episode.planned and episode.cause != Cause.ROLLBACK and not said:
        alert = _episode_alert(rule, episode, around)
        return grouping.fire(alerts, policy, replace(alert, labels={**alert.labels, PLANNED: "true"}), at)
    return alerts


def _react_to_transition(alerts: Alerts, rule: Rule, transition: Transition, around: Circumstances) -> Alerts:
    cluster, at, episode = around.cluster, around.at, around.cluster.episode
    match rule.on:
        case Trigger.LEADER_CHANGED | Trigger.JOB_LEADER_CHANGED if transition.split:
            # The split has an alert of its own: it replaces those of the changes that revealed it.
            key = (rule.alert, transition.cluster_id, transition.component)
            return grouping.withdraw(alerts, lambda alert: (alert.rule, alert.cluster_id, alert.component) == key)
        case Trigger.JOB_LEADER_CHANGED if episode and transition.episode_id and not transition.component.job_id:
            return _without_jobs_of(episode, alerts, rule, transition.cluster_id, cluster)
    alert = _alert_of_transition(alerts, rule, transition, around)
    if alert is None:
        return alerts
    if rule.on is Trigger.LEADER_CHANGED:
        is_drill = around.drills.have(alert.episode_id)
        alert = replace(alert, count=None if is_drill else _number(alerts, alert, around))
        until = conditions.excused_until(rule, cluster, alert.episode_id)
        if at.steady < until:
            if conditions.is_known_to_be_planned(cluster, alert.episode_id):
                return alerts  # its end is notified
            waits = {(rule.alert, alert.cluster_id, alert.component): Pending(until, alert)}
            return replace(alerts, pending={**alerts.pending, **waits})
        alert = known_alert(alerts, around.policy, alert, cluster)
    return grouping.fire(alerts, around.policy, alert, at)


def _without_jobs_of(episode: Episode, alerts: Alerts, rule: Rule, cluster_id: str, cluster: ClusterState) -> Alerts:
    """Withdraw the alerts of jobs that were the first components to move in this failover. Older alerts are not part of it."""
    moved = {component for component in cluster.parts(episode) if component.job_id}
    since = episode.opened_at.steady - LOOK_BACK
    return grouping.withdraw(
        alerts,
        lambda alert: (
            (alert.rule, alert.cluster_id) == (rule.alert, cluster_id)
            and alert.component in moved
            and alert.began.steady >= since
        ),
    )


def _alert_of_transition(alerts: Alerts, rule: Rule, transition: Transition, around: Circumstances) -> Alert | None:
    policy, at = around.policy, around.at
    component, name, changed = transition.component, transition.cluster_id, transition.is_succession
    leader, last, episode_id = transition.leader, transition.last_known, transition.episode_id
    session_id = leader and leader.session_id
    match rule.on:
        case Trigger.LEADER_CHANGED if changed and not component.job_id:
            # The id names the new leader, not the previous one: an observer that missed a failover knows another previous leader.
            # A leader that returned was notified when it was first elected: then the failover that brought it back is part of the id.
            parts = (session_id, episode_id if transition.returned else None)
            ended = None if conditions.is_in_progress(around.cluster, episode_id) else at
            alert = new_alert(
                policy, rule, name, component, at, *parts, episode_id=episode_id, ended=ended, is_event=True
            )
        case Trigger.JOB_LEADER_CHANGED if changed and component.job_id and not episode_id:
            alert = new_alert(policy, rule, name, component, at, session_id, ended=at, is_event=True)
        case Trigger.UNOBSERVED if transition.gap and (count := transition.gap.at_least):
            alert = new_alert(policy, rule, name, component, at, transition.id, count=count, ended=at, is_event=True)
        case Trigger.SPLIT if transition.split and leader and (rule.alert, name, component) not in alerts.active():
            sessions = sorted((str(last.session_id) if last else "", str(session_id)))
            alert = new_alert(policy, rule, name, component, at, *sessions)
        case _:
            return None
    return _with_leaders(alert, transition)


def _with_leaders(alert: Alert, transition: Transition) -> Alert:
    """The alert with the previous and the new leader, and how long there was none."""
    leader, last = transition.leader, transition.last_known
    return replace(
        alert,
        before=place_of(last.address if last else None),
        after=place_of(leader.address if leader else None),
        vacant_seconds=None if transition.vacant_for is None else in_seconds(transition.vacant_for),
        **bounds_in_seconds(transition.downtime),
    )


def _number(alerts: Alerts, alert: Alert, around: Circumstances) -> int | None:
    """The number of its failover in the longest time in which a rule counts failovers; None: no rule does."""
    within = around.policy.failovers_counted_within()
    if not within:
        return None
    failovers = alerts.failovers.get(alert.cluster_id, Failovers()).known
    earlier = (
        failover
        for failover in failovers
        if alert.began.steady - failover.at <= within and failover.episode_id != alert.episode_id
    )
    episode = around.cluster.failover(alert.episode_id)
    return sum(failover.times for failover in earlier) + max(1, episode.failovers if episode else 0)


def _episode_alert(rule: Rule, episode: EpisodeRecord, around: Circumstances) -> Alert:
    happened = {"episode_id": episode.id, "ended": around.at, "is_event": True}
    alert = new_alert(around.policy, rule, episode.cluster_id, None, around.at, episode.id, **happened)
    return replace(
        alert,
        before=place_of(episode.before_address),
        after=place_of(episode.after_address),
        vacant_seconds=episode.vacant_seconds,
        downtime_seconds_at_least=episode.downtime_seconds_at_least,
        downtime_seconds_at_most=episode.downtime_seconds_at_most,
    )


def _recovery_alert(rule: Rule, happened: BadRestore | Recovery, around: Circumstances) -> Alert | None:
    """The alert that the rule fires for what became of a job, or of all."""
    policy, name, at, episode_id = around.policy, happened.cluster_id, around.at, happened.episode_id
    event = {"episode_id": episode_id, "ended": at, "is_event": True}
    match happened:
        case Recovery(job_id=None, verdict="recovered"):
            return new_alert(policy, rule, name, None, at, episode_id, **event)
        case BadRestore() if rule.on is _BAD_RESTORES.get(happened.origin):
            job, about = ComponentId(Component.JOB, happened.job_id), clean(happened.name, MOST_NAME)
            return new_alert(policy, rule, name, job, at, episode_id, about=about, detail=happened.reason, **event)
    return None


def _count_failover(alerts: Alerts, episode: EpisodeRecord, around: Circumstances) -> Alerts:
    """Remember a failover for as long as a rule counts it."""
    if Trigger.EPISODES not in {rule.on for rule in around.policy.rules}:
        return alerts
    if episode.planned and episode.cause != Cause.ROLLBACK:
        return alerts
    failovers = alerts.failovers.get(episode.cluster_id, Failovers()).known
    # The leaders of a split replace each other endlessly: it has an alert of its own, and counts as one failover.
    times = 1 if episode.cause == Cause.SPLIT_LEADERSHIP else max(1, episode.failovers)
    latest = (*failovers, CountedFailover(episode.id, around.at.steady, times))[-MOST_FAILOVERS:]
    return replace(alerts, failovers={**alerts.failovers, episode.cluster_id: Failovers(latest)})


def known_alert(alerts: Alerts, policy: Policy, alert: Alert, cluster: ClusterState) -> Alert:
    """The alert of another leader with what is known of its failover when it fires: whether it was planned, has lost jobs, and whether
    people know of it.
    """
    episode = cluster.failover(alert.episode_id)
    lost = episode.jobs_lost - episode.jobs_vanished if episode else 0
    alert = replace(alert, jobs_lost=lost, vacancy_notified=_is_vacancy_notified(alerts, policy, alert))
    return replace(alert, labels=with_severity(conditions.labelled(alert, cluster), alert))


def _is_vacancy_notified(alerts: Alerts, policy: Policy, alert: Alert) -> bool:
    """Whether people were notified, as critical, that the component had no leader in this failover."""
    vacant = {rule.alert for rule in policy.rules if rule.on is Trigger.VACANT}
    return alert.episode_id is not None and any(
        member.notified and member.alert.rule in vacant and member.alert.labels["severity"] == Severity.CRITICAL
        for member in alerts.members()
        if (member.alert.episode_id, member.alert.component) == (alert.episode_id, alert.component)
    )
