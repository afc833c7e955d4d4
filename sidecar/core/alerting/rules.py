"""Rules: transitions fire event alerts, and the state of a cluster decides which conditions hold.

An alert's id is derived from its cause: every observer of the same event computes the same id, so that one of them can notify for all.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import excuses, grouping, ha_risks
from sidecar.core.alerting.alerts import Alert, Alerts, CountedFailover, Failovers, Pending, PendingKey
from sidecar.core.alerting.conditions import MOST_NAME, Holding, conditions
from sidecar.core.alerting.new_alert import new_alert, place_of, with_severity
from sidecar.core.cluster import rest_server
from sidecar.core.cluster.downtime import bounds_in_seconds
from sidecar.core.cluster.draft import Happened
from sidecar.core.cluster.failover import plans
from sidecar.core.cluster.failover.causes import Cause
from sidecar.core.cluster.failover.episodes import LOOK_BACK, Episode, has_part
from sidecar.core.cluster.recovery.recovery_state import BadRestore
from sidecar.core.cluster.state import ClusterState
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Component, ComponentId, Held
from sidecar.core.moment import Moment, in_seconds
from sidecar.core.policy.labels import PLANNED
from sidecar.core.policy.policy import Policy, Rule, Severity, Trigger
from sidecar.core.quarantine import STRICT, Quarantine
from sidecar.core.records import AnyRecord, EpisodeRecord, Recovery
from sidecar.core.sanitize import clean

MOST_FAILOVERS: Final = 1000
"""Remembered per cluster."""
_BAD_RESTORES: Final = {"nothing": Trigger.RESTORED_FROM_NOTHING, "older": Trigger.RESTORED_FROM_OLDER}


_COUNTED: Final = frozenset({Trigger.EPISODES, Trigger.BUDGET_BURN})
"""Their messages have the number of now, not that of the beginning."""


def react(
    alerts: Alerts,
    policy: Policy,
    happened: AnyRecord | Happened,
    cluster: ClusterState,
    at: Moment,
    quarantine: Quarantine = STRICT,
) -> Alerts:
    """Fire or withdraw alerts for something that happened in `cluster`."""
    match happened:
        case Transition():
            for rule in policy.rules:
                with quarantine.guard("rule", rule.alert, "of cluster", happened.cluster_id):
                    alerts = _react_to_transition(alerts, policy, rule, happened, cluster, at)
        case BadRestore() | Recovery(job_id=None, verdict="recovered"):
            for rule in policy.rules:
                with quarantine.guard("rule", rule.alert, "of cluster", happened.cluster_id):
                    if alert := _of_recovery(policy, rule, happened, at):
                        alerts = grouping.fire(alerts, policy, alert, at)
        case EpisodeRecord() if happened.cause != Cause.OBSERVER_BLIND:
            alerts = _count_failover(alerts, policy, happened, at)
            for rule in policy.rules:
                with quarantine.guard("rule", rule.alert, "of cluster", happened.cluster_id):
                    alerts = _react_to_episode(alerts, policy, rule, happened, at)
    return alerts


def _react_to_episode(alerts: Alerts, policy: Policy, rule: Rule, episode: EpisodeRecord, at: Moment) -> Alerts:
    if rule.on is Trigger.SAME_PROCESS_REELECTION and episode.cause == Cause.SAME_PROCESS_REELECTION:
        return grouping.fire(alerts, policy, _of_episode(policy, rule, episode, at), at)
    if rule.on is Trigger.PLANNED_FAILOVER and episode.planned and episode.cause != Cause.ROLLBACK:
        alert = _of_episode(policy, rule, episode, at)
        return grouping.fire(alerts, policy, replace(alert, labels={**alert.labels, PLANNED: "true"}), at)
    return alerts


def _react_to_transition(
    alerts: Alerts, policy: Policy, rule: Rule, transition: Transition, cluster: ClusterState, at: Moment
) -> Alerts:
    episode = cluster.episode
    match rule.on:
        case Trigger.LEADER_CHANGED | Trigger.JOB_LEADER_CHANGED if transition.split:
            # The split has an alert of its own: it replaces those of the changes that revealed it.
            key = (rule.alert, transition.cluster_id, transition.component)
            return grouping.withdraw(alerts, lambda alert: (alert.rule, alert.cluster_id, alert.component) == key)
        case Trigger.JOB_LEADER_CHANGED if episode and transition.episode_id and not transition.component.job_id:
            return _without_jobs_of(episode, alerts, rule, transition.cluster_id, cluster)
    alert = _alert_of_transition(alerts, policy, rule, transition, cluster, at)
    if alert is None:
        return alerts
    if rule.on is Trigger.LEADER_CHANGED:
        until = excuses.excused_until(rule, cluster, alert.episode_id)
        if at.steady < until:
            if excuses.is_known_to_be_planned(cluster, alert.episode_id):
                return alerts  # its end is notified
            waits = {(rule.alert, alert.cluster_id, alert.component): Pending(until, alert)}
            return replace(alerts, pending={**alerts.pending, **waits})
        alert = _as_known(alerts, policy, alert, cluster)
    return grouping.fire(alerts, policy, alert, at)


def _without_jobs_of(episode: Episode, alerts: Alerts, rule: Rule, cluster_id: str, cluster: ClusterState) -> Alerts:
    """Withdraw the alerts of jobs that were the first components to move in this failover. Older alerts are not part of it."""
    moved = {job for job, known in cluster.components.items() if job.job_id and has_part(known.absence, episode)}
    since = episode.opened_at.steady - LOOK_BACK
    return grouping.withdraw(
        alerts,
        lambda alert: (
            (alert.rule, alert.cluster_id) == (rule.alert, cluster_id)
            and alert.component in moved
            and alert.began.steady >= since
        ),
    )


def _alert_of_transition(
    alerts: Alerts, policy: Policy, rule: Rule, transition: Transition, cluster: ClusterState, at: Moment
) -> Alert | None:
    """The alert that the rule fires for this transition."""
    component, name, changed = transition.component, transition.cluster_id, transition.is_succession
    leader, last, episode_id = transition.leader, transition.last_known, transition.episode_id
    session_id = leader and leader.session_id
    match rule.on:
        case Trigger.LEADER_CHANGED if changed and not component.job_id:
            # The id names the new leader, not the previous one: an observer that missed a failover knows another previous leader.
            # A leader that returned was notified when it was first elected: then the failover that brought it back is part of the id.
            what = (session_id, episode_id if transition.returned else None)
            ended = None if _in_progress(cluster, episode_id) else at
            alert = new_alert(
                policy, rule, name, component, at, *what, episode_id=episode_id, ended=ended, is_event=True
            )
            alert = replace(alert, count=_number(alerts, policy, cluster, alert))
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
    """The alert with the leaders of before and after, and how long there was none."""
    leader, last = transition.leader, transition.last_known
    return replace(
        alert,
        before=place_of(last.address if last else None),
        after=place_of(leader.address if leader else None),
        vacant_seconds=None if transition.vacant_for is None else in_seconds(transition.vacant_for),
        **bounds_in_seconds(transition.downtime),
    )


def _number(alerts: Alerts, policy: Policy, cluster: ClusterState, alert: Alert) -> int | None:
    """The number of its failover in the longest time in which a rule counts failovers; None: no rule does."""
    within = policy.failovers_counted_within()
    if not within:
        return None
    failovers = alerts.failovers.get(alert.cluster_id, Failovers()).known
    earlier = (
        failover
        for failover in failovers
        if alert.began.steady - failover.at <= within and failover.episode_id != alert.episode_id
    )
    episode = excuses.episode_of(cluster, alert.episode_id)
    return sum(failover.times for failover in earlier) + max(1, episode.failovers if episode else 0)


def _of_episode(policy: Policy, rule: Rule, episode: EpisodeRecord, at: Moment) -> Alert:
    name, happened = episode.cluster_id, episode.id
    alert = new_alert(policy, rule, name, None, at, happened, episode_id=happened, ended=at, is_event=True)
    return replace(
        alert,
        before=place_of(episode.before_address),
        after=place_of(episode.after_address),
        vacant_seconds=episode.vacant_seconds,
        downtime_seconds_at_least=episode.downtime_seconds_at_least,
        downtime_seconds_at_most=episode.downtime_seconds_at_most,
    )


def _of_recovery(policy: Policy, rule: Rule, happened: BadRestore | Recovery, at: Moment) -> Alert | None:
    """The alert that the rule fires for what became of a job, or of all."""
    name, episode_id = happened.cluster_id, happened.episode_id
    event = {"episode_id": episode_id, "ended": at, "is_event": True}
    match happened:
        case Recovery() if rule.on is Trigger.RECOVERED:
            return new_alert(policy, rule, name, None, at, episode_id, **event)
        case BadRestore() if rule.on is _BAD_RESTORES.get(happened.origin):
            job, about = ComponentId(Component.JOB, happened.job_id), clean(happened.name, MOST_NAME)
            return new_alert(policy, rule, name, job, at, episode_id, about=about, detail=happened.reason, **event)
    return None


def _count_failover(alerts: Alerts, policy: Policy, episode: EpisodeRecord, at: Moment) -> Alerts:
    """Remember a failover for as long as a rule counts it."""
    if not any(rule.on is Trigger.EPISODES for rule in policy.rules):
        return alerts
    if episode.planned and episode.cause != Cause.ROLLBACK:
        return alerts
    known = alerts.failovers.get(episode.cluster_id, Failovers()).known
    # The leaders of a split replace each other endlessly: it has an alert of its own, and counts as one failover.
    times = 1 if episode.cause == Cause.SPLIT_LEADERSHIP else max(1, episode.failovers)
    latest = (*known, CountedFailover(episode.id, at.steady, times))[-MOST_FAILOVERS:]
    return replace(alerts, failovers={**alerts.failovers, episode.cluster_id: Failovers(latest)})


def evaluate(
    alerts: Alerts,
    policy: Policy,
    clusters: Mapping[str, ClusterState],
    now: Moment,
    quarantine: Quarantine = STRICT,
) -> Alerts:
    """Fire conditions that have held for `for`; resolve those that no longer hold.

    While a cluster cannot be read nothing about its leaders fires or resolves, only `blind` does. Alerts of a cluster that cannot be
    evaluated are forgotten: those that still hold fire anew.
    """
    for name, cluster in clusters.items():
        if alerts.evaluated.get(name) is not cluster or name in alerts.failovers:
            with quarantine.guard("alerts of cluster", name) as guard:
                alerts = _evaluate_cluster(alerts, policy, name, cluster, now, quarantine)
            if guard.raised:
                alerts = _without_cluster(alerts, name)
    triggers = {rule.alert: rule.on for rule in policy.rules}

    def is_due(key: PendingKey, pending: Pending) -> bool:
        if pending.alert.is_event:
            return pending.due <= now.steady
        until = _trusted_until(policy, triggers.get(key[0]), clusters.get(key[1]), now)
        return until is not None and pending.due <= until

    due = {key: pending.alert for key, pending in alerts.pending.items() if is_due(key, pending)}
    if due:
        alerts = replace(alerts, pending={key: held for key, held in alerts.pending.items() if key not in due})
    for alert in due.values():
        with quarantine.guard("alert", alert.rule, "of cluster", alert.cluster_id):
            alerts = grouping.fire(
                alerts, policy, _now_known(alerts, policy, alert, clusters.get(alert.cluster_id), now), now
            )
    return alerts


def _now_known(alerts: Alerts, policy: Policy, alert: Alert, cluster: ClusterState | None, now: Moment) -> Alert:
    """An event that waited, as it fires."""
    if cluster is None or not alert.is_event:
        return alert
    ended = None if _in_progress(cluster, alert.episode_id) else now
    return replace(_as_known(alerts, policy, alert, cluster), ended=ended)


def _as_known(alerts: Alerts, policy: Policy, alert: Alert, cluster: ClusterState) -> Alert:
    """The alert of another leader with what is known of its failover when it fires: whether it was planned, has lost jobs, and whether
    people know of it.
    """
    episode = excuses.episode_of(cluster, alert.episode_id)
    lost = episode.jobs_lost - episode.jobs_vanished if episode else 0
    alert = replace(alert, jobs_lost=lost, vacancy_notified=_is_vacancy_notified(alerts, policy, alert))
    return replace(alert, labels=with_severity(excuses.labelled(alert, cluster), alert))


def _is_vacancy_notified(alerts: Alerts, policy: Policy, alert: Alert) -> bool:
    """Whether people were notified, as critical, that the component had no leader in this failover."""
    vacant = {rule.alert for rule in policy.rules if rule.on is Trigger.VACANT}
    return alert.episode_id is not None and any(
        member.notified and member.alert.rule in vacant and member.alert.labels["severity"] == Severity.CRITICAL
        for group in alerts.groups.values()
        for member in group.members.values()
        if (member.alert.episode_id, member.alert.component) == (alert.episode_id, alert.component)
    )


def forget(alerts: Alerts, policy: Policy, name: str, now: Moment) -> Alerts:
    """Resolve all alerts of a cluster that was removed, and forget what was counted of it."""
    firing = {alert.id for alert in _lasting(alerts, name)}
    return _without_counts(grouping.resolve(alerts, policy, firing, now, lambda alert: alert), name)


def _without_cluster(alerts: Alerts, name: str) -> Alerts:
    """The alerts without those of a cluster, and without what was counted of it."""
    groups = {
        fingerprint: replace(
            group, members={key: member for key, member in group.members.items() if member.alert.cluster_id != name}
        )
        for fingerprint, group in alerts.groups.items()
    }
    return _without_counts(replace(alerts, groups=groups), name)


def _without_counts(alerts: Alerts, name: str) -> Alerts:
    return replace(
        alerts,
        pending={key: waiting for key, waiting in alerts.pending.items() if key[1] != name},
        failovers={other: known for other, known in alerts.failovers.items() if other != name},
        evaluated={other: known for other, known in alerts.evaluated.items() if other != name},
    )


def _trusted_until(policy: Policy, trigger: Trigger | None, cluster: ClusterState | None, now: Moment) -> int | None:
    """Until when (steady) what a condition is about is known; None: not at all. A condition fires only if it held for `for` by then."""
    if cluster is None or trigger is Trigger.BLIND:
        return now.steady
    if trigger is Trigger.LEADER_SILENT:
        return rest_server.proven_until(cluster)
    if cluster.confirmed is None:
        return now.steady
    return min(now.steady, cluster.confirmed.at.steady + policy.trust_window)


def _evaluate_cluster(
    alerts: Alerts, policy: Policy, name: str, cluster: ClusterState, now: Moment, quarantine: Quarantine
) -> Alerts:
    """Resolve the cluster's conditions that no longer hold; those that hold and are not firing become pending."""
    alerts = _without_old_failovers(alerts, policy, name, now)
    lasting = _lasting(alerts, name)
    pending = {key: other for key, other in alerts.pending.items() if key[1] != name}
    over: set[str] = set()
    for rule in policy.rules:
        with quarantine.guard("rule", rule.alert, "of cluster", name):
            if rule.on is Trigger.LEADER_CHANGED:
                pending |= excuses.waiting(alerts.pending, rule, name, cluster, now)
            if cluster.leaders_in_sight or rule.on is Trigger.BLIND:
                of_rule = [alert for alert in lasting if alert.rule == rule.alert]
                alerts, waiting, ended = _evaluate_rule(alerts, policy, rule, name, cluster, of_rule, now)
                pending |= waiting
                over |= ended
    if over:
        alerts = grouping.resolve(alerts, policy, over, now, lambda alert: _completed(alert, cluster, now))
    if pending == alerts.pending and alerts.evaluated.get(name) is cluster:
        return alerts
    return replace(alerts, pending=pending, evaluated={**alerts.evaluated, name: cluster})


def _lasting(alerts: Alerts, name: str) -> list[Alert]:
    """The alerts of a cluster that fire."""
    members = (member.alert for group in alerts.groups.values() for member in group.members.values())
    return [alert for alert in members if alert.cluster_id == name and not alert.ended]


def _evaluate_rule(
    alerts: Alerts,
    policy: Policy,
    rule: Rule,
    name: str,
    cluster: ClusterState,
    lasting: Sequence[Alert],
    now: Moment,
) -> tuple[Alerts, dict[PendingKey, Pending], set[str]]:
    """The alerts with what is known now of those that are `lasting`, the conditions that hold and do not fire, and the ids of alerts that
    are over.
    """
    if rule.on is Trigger.HA_RISK:
        for alert in ha_risks.new_risks(rule, policy, name, cluster, lasting):
            alerts = grouping.fire(alerts, policy, alert, now)
    holding = conditions(rule, policy, name, cluster, alerts, now)
    firing = {alert.component: alert for alert in lasting}
    pending: dict[PendingKey, Pending] = {}
    for component, alert in holding.items():
        if fires := firing.get(component):
            count = alert.count if rule.on in _COUNTED else fires.count
            alerts = grouping.updated(alerts, fires, count, alert.agreement, now)
        else:
            key, waiting = (rule.alert, name, component), Pending(_due(rule, cluster, alert), alert)
            before = alerts.pending.get(key)
            pending[key] = before if before == waiting else waiting
    return alerts, pending, {alert.id for alert in lasting if not _still_holds(rule, alert, holding, cluster)}


def _due(rule: Rule, cluster: ClusterState, alert: Alert) -> int:
    """When (steady) a condition that holds fires."""
    due = alert.began.steady + rule.hold_for
    return max(due, excuses.no_vacancy_until(rule, cluster, alert.episode_id)) if rule.on is Trigger.VACANT else due


def _still_holds(rule: Rule, alert: Alert, holding: Holding, cluster: ClusterState) -> bool:
    match rule.on:
        case Trigger.LEADER_CHANGED:
            return _in_progress(cluster, alert.episode_id)
        case Trigger.SPLIT:
            return alert.component in cluster.contested
        case Trigger.NO_STANDBY:
            return cluster.standby.alone_since is not None
        case Trigger.LEADER_SILENT if cluster.picture_request and cluster.rest_server is None:
            # Another sidecar's, and nothing has answered this one yet.
            return cluster.rest_leader is not None and place_of(cluster.rest_leader.address) == alert.before
    return alert.component in holding or _is_not_over(rule, alert, cluster)


def _is_not_over(rule: Rule, alert: Alert, cluster: ClusterState) -> bool:
    """Whether a condition goes on of which nothing is known now."""
    match rule.on:
        case Trigger.HA_RISK:
            return not ha_risks.is_over(alert, cluster)
        case Trigger.ZXID_HEADROOM:
            return cluster.zxid is None  # ZooKeeper has not reported it since the sidecar started
    return False


def _in_progress(cluster: ClusterState, episode_id: str | None) -> bool:
    """Whether this failover still has a component without a leader."""
    episode = cluster.episode
    return episode is not None and episode.id == episode_id and bool(episode.away or episode.jobs_away)


def _completed(alert: Alert, cluster: ClusterState, now: Moment) -> Alert:
    """The alert with its new leader and its duration; an event stays as it is."""
    if alert.is_event:
        return alert
    known = cluster.components.get(alert.component) if alert.component else None
    address = known.leadership.leader.address if known and isinstance(known.leadership, Held) else None
    if address is None and plans.is_unwanted(cluster.operated):
        alert = replace(alert, unwanted=True)
    lasted = now.steady - alert.began.steady
    if alert.reach:
        unwanted, reach = plans.is_unwanted(cluster.operated), rest_server.reach_after(cluster, alert.reach)
        lasting = in_seconds(lasted)
        return replace(alert, after=place_of(address), reach=reach, unwanted=unwanted, vacant_seconds=lasting)
    absence = known.absence if known and address is not None else None
    # Of several vacancies in one failover the bounds are those of all together.
    is_only_one = absence is not None and absence.vacant is not None and absence.vacant <= lasted
    down = absence.downtime if absence and is_only_one else None
    return replace(alert, after=place_of(address), vacant_seconds=in_seconds(lasted), **bounds_in_seconds(down))


def _without_old_failovers(alerts: Alerts, policy: Policy, name: str, now: Moment) -> Alerts:
    """Drop the failovers that no rule counts any more."""
    if name not in alerts.failovers:
        return alerts
    longest = policy.failovers_counted_within()
    failovers = alerts.failovers[name].known
    left = tuple(failover for failover in failovers if now.steady - failover.at <= longest)
    if len(left) == len(failovers):
        return alerts
    rest = {other: counted for other, counted in alerts.failovers.items() if other != name}
    return replace(alerts, failovers={**rest, name: Failovers(left)} if left else rest, evaluated={})
