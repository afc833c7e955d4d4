"""Rules: transitions fire event alerts, and the state of a cluster decides which conditions hold.

An alert has an id that follows from what happened: the same for every observer that sees the same, so that one of them can speak for all.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Alert, Alerts, CountedFailover, Failovers, Pending
from sidecar.core.alerting.grouping import labels_of
from sidecar.core.cluster.causes import Cause
from sidecar.core.cluster.downtime import bounds_in_seconds
from sidecar.core.cluster.episodes import LOOK_BACK, Episode, has_part
from sidecar.core.cluster.state import ClusterState, ComponentState, contending, zxid_headroom
from sidecar.core.cluster.transitions import Transition
from sidecar.core.flink.leadership import Component, ComponentId, Held, Vacant, host_port
from sidecar.core.moment import SECOND, Moment, in_seconds
from sidecar.core.policy.policy import Policy, Rule, Trigger
from sidecar.core.records import AnyRecord, EpisodeRecord, record_id

ZXID_HEADROOM: Final = 1 << 28
"""So many transactions before ZooKeeper has to elect a leader of its own: a sixteenth of them all."""
MOST_FAILOVERS: Final = 1000
"""Of one cluster that are remembered."""

JOBS: Final = ComponentId(Component.JOB)
"""All jobs of a failover, as one subject."""


# -- events --------------------------------------------------------------------------------------------------------


def react(
    alerts: Alerts, policy: Policy, happened: AnyRecord | Transition, cluster: ClusterState, at: Moment
) -> Alerts:
    """Fire or withdraw alerts for something that happened in `cluster`."""
    match happened:
        case Transition():
            for rule in policy.rules:
                alerts = _transition(alerts, policy, rule, happened, cluster, at)
        case EpisodeRecord() if happened.cause != Cause.OBSERVER_BLIND:
            alerts = _counted(alerts, policy, happened, at)
            for rule in policy.rules:
                if rule.on is Trigger.SAME_PROCESS_REELECTION and happened.cause == Cause.SAME_PROCESS_REELECTION:
                    alert = _alert(policy, rule, happened.cluster_id, None, at, happened.id, episode_id=happened.id)
                    before, after = _place(happened.before_address), _place(happened.after_address)
                    event = replace(
                        alert,
                        before=before,
                        after=after,
                        vacant_seconds=happened.vacant_seconds,
                        downtime_seconds_at_least=happened.downtime_seconds_at_least,
                        downtime_seconds_at_most=happened.downtime_seconds_at_most,
                    )
                    alerts = grouping.fire(alerts, policy, replace(event, ended=at, is_event=True), at)
    return alerts


def _transition(
    alerts: Alerts, policy: Policy, rule: Rule, transition: Transition, cluster: ClusterState, at: Moment
) -> Alerts:
    episode = cluster.episode
    match rule.on:
        case Trigger.LEADER_CHANGED | Trigger.JOB_LEADER_CHANGED if transition.split:
            # Reported as what it is; the changes that showed it to be a split are withdrawn.
            key = (rule.alert, transition.cluster_id, transition.component)
            return grouping.withdraw(alerts, lambda alert: (alert.rule, alert.cluster_id, alert.component) == key)
        case Trigger.JOB_LEADER_CHANGED if episode and transition.episode_id and not transition.component.job_id:
            return _without_jobs_of(episode, alerts, rule, transition.cluster_id, cluster)
    alert = _raised(alerts, policy, rule, transition, cluster, at)
    return grouping.fire(alerts, policy, alert, at) if alert else alerts


def _without_jobs_of(episode: Episode, alerts: Alerts, rule: Rule, cluster_id: str, cluster: ClusterState) -> Alerts:
    """Withdraw alerts of jobs that turn out to have been the first to move in a failover. Earlier ones were of their own."""
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


def _raised(
    alerts: Alerts, policy: Policy, rule: Rule, transition: Transition, cluster: ClusterState, at: Moment
) -> Alert | None:
    """The alert that the rule raises for this transition."""
    component, name, changed = transition.component, transition.cluster_id, transition.is_succession
    leader, last = transition.leader, transition.last_known
    match rule.on:
        case Trigger.LEADER_CHANGED if changed and not component.job_id:
            # By whom it is led, not by what was before: an observer that missed a failover knows another leader before.
            # One that was replaced and is back was notified already, when it came first: then it is the failover that brings it back.
            led_by = (leader and leader.session_id, transition.episode_id if transition.returned else None)
            alert = _alert(policy, rule, name, component, at, *led_by, episode_id=transition.episode_id)
            alert = replace(alert, ended=None if _is_going_on(alert, cluster) else at, is_event=True)
        case Trigger.JOB_LEADER_CHANGED if changed and component.job_id and not transition.episode_id:
            alert = _alert(policy, rule, name, component, at, leader and leader.session_id)
            alert = replace(alert, ended=at, is_event=True)
        case Trigger.UNOBSERVED if transition.gap and transition.gap.at_least:
            alert = _alert(policy, rule, name, component, at, transition.id, count=transition.gap.at_least)
            alert = replace(alert, ended=at, is_event=True)
        case Trigger.SPLIT if transition.split and leader and (rule.alert, name, component) not in alerts.active():
            sessions = sorted((str(last.session_id) if last else "", str(leader.session_id)))
            alert = _alert(policy, rule, name, component, at, *sessions)
        case _:
            return None
    return replace(
        alert,
        before=_place(last.address if last else None),
        after=_place(leader.address if leader else None),
        vacant_seconds=None if transition.vacant_for is None else in_seconds(transition.vacant_for),
        **bounds_in_seconds(transition.downtime),
    )


def _counted(alerts: Alerts, policy: Policy, episode: EpisodeRecord, at: Moment) -> Alerts:
    """Remember a failover for as long as a rule counts it."""
    if not any(rule.on is Trigger.EPISODES for rule in policy.rules):
        return alerts
    known = alerts.failovers.get(episode.cluster_id, Failovers()).known
    # Leaders of a split replace each other without end: it is notified as a split, and counts as one failover.
    times = 1 if episode.cause == Cause.SPLIT_LEADERSHIP else max(1, episode.failovers)
    latest = (*known, CountedFailover(episode.id, at.steady, times))[-MOST_FAILOVERS:]
    return replace(alerts, failovers={**alerts.failovers, episode.cluster_id: Failovers(latest)})


# -- conditions --------------------------------------------------------------------------------------------------------


def evaluate(alerts: Alerts, policy: Policy, clusters: Mapping[str, ClusterState], now: Moment) -> Alerts:
    """Fire conditions that have held for `for`; resolve those that no longer hold.

    While a cluster cannot be read nothing about its leaders fires or resolves, only `blind` does.
    """
    for name, cluster in clusters.items():
        if alerts.evaluated.get(name) is not cluster or name in alerts.failovers:
            alerts = _evaluated(alerts, policy, name, cluster, now)
    blindness = {rule.alert for rule in policy.rules if rule.on is Trigger.BLIND}
    due = {
        key: pending.alert
        for key, pending in alerts.pending.items()
        if pending.due <= (now.steady if key[0] in blindness else _known_until(policy, clusters.get(key[1]), now))
    }
    if due:
        waiting = {key: pending for key, pending in alerts.pending.items() if key not in due}
        alerts = replace(alerts, pending=waiting)
    for alert in due.values():
        alerts = grouping.fire(alerts, policy, alert, now)
    return alerts


def _known_until(policy: Policy, cluster: ClusterState | None, now: Moment) -> int:
    """Until when (steady) what is known of a cluster is trusted to be so: what lasts is not decided on an older view than that."""
    if cluster is None or cluster.confirmed is None:
        return now.steady
    return min(now.steady, cluster.confirmed.at.steady + policy.trust_window)


def _evaluated(alerts: Alerts, policy: Policy, name: str, cluster: ClusterState, now: Moment) -> Alerts:
    alerts = _forgotten(alerts, policy, name, now)
    members = (member.alert for group in alerts.groups.values() for member in group.members.values())
    active = [alert for alert in members if alert.cluster_id == name and not alert.ended]
    pending = {key: waiting for key, waiting in alerts.pending.items() if key[1] != name}
    over: set[str] = set()
    begun: list[Alert] = []
    for rule in policy.rules:
        lasting = [alert for alert in active if alert.rule == rule.alert]
        firing = {alert.component: alert for alert in lasting}
        in_sight = cluster.leaders_in_sight or rule.on is Trigger.BLIND
        found = _found(rule, policy, name, cluster, alerts, now) if in_sight else {}
        known_until = now.steady if rule.on is Trigger.BLIND else _known_until(policy, cluster, now)
        for component, alert in found.items():
            due = alert.began.steady + rule.hold_for
            if component in firing:
                if rule.on is Trigger.EPISODES and alert.count != firing[component].count:
                    alerts = grouping.recounted(alerts, firing[component].id, alert.count)
                continue
            if known_until >= due:
                begun.append(alert)
            else:
                key, waiting = (rule.alert, name, component), Pending(due, alert)
                before = alerts.pending.get(key)
                pending[key] = before if before == waiting else waiting
        if in_sight:
            over |= {alert.id for alert in lasting if not _lasts(rule, alert, found, cluster)}
    if over:
        alerts = grouping.end(
            alerts, policy, lambda alert: alert.id in over, now, lambda alert: _ended(alert, cluster, now)
        )
    for alert in begun:
        alerts = grouping.fire(alerts, policy, alert, now)
    kept = alerts.pending if pending == alerts.pending else pending
    if kept is alerts.pending and alerts.evaluated.get(name) is cluster:
        return alerts
    return replace(alerts, pending=kept, evaluated={**alerts.evaluated, name: cluster})


def _found(
    rule: Rule, policy: Policy, name: str, cluster: ClusterState, alerts: Alerts, now: Moment
) -> dict[ComponentId | None, Alert]:
    """The conditions that hold now, by component."""
    match rule.on:
        case Trigger.VACANT:
            return _vacancies(rule, policy, name, cluster)
        case Trigger.BLIND if not cluster.leaders_in_sight:
            loss = cluster.view.loss
            began = loss.began if loss and loss.ended is None else cluster.view.turned_at
            alert = _alert(policy, rule, name, None, began, policy.observer, began.wall)
            return {None: replace(alert, missing=str(cluster.missing) if cluster.missing else None)}
        case Trigger.NO_STANDBY if (since := cluster.standby.alone_since) and contending(cluster.contenders) == 1:
            left = sorted(other for names in cluster.contenders.values() for other in names)
            return {None: _alert(policy, rule, name, None, since, *left)}
        case Trigger.EPISODES:
            known = alerts.failovers.get(name, Failovers()).known
            recent = [failover for failover in known if now.steady - failover.at <= rule.within]
            count = sum(failover.times for failover in recent)
            if count >= rule.count:
                latest = recent[-1].episode_id
                # Whichever was the last: who was away counts others.
                return {None: _alert(policy, rule, name, None, now, count=count, episode_id=latest)}
        case Trigger.ZXID_HEADROOM if (left_over := zxid_headroom(cluster)) is not None and left_over < ZXID_HEADROOM:
            epoch = (cluster.zxid or 0) >> 32
            return {None: _alert(policy, rule, name, None, now, epoch, count=left_over)}
    return {}


def _vacancies(rule: Rule, policy: Policy, name: str, cluster: ClusterState) -> dict[ComponentId | None, Alert]:
    found: dict[ComponentId | None, Alert] = {}
    waiting: dict[str, tuple[Moment, int]] = {}
    for component, known in cluster.components.items():
        if isinstance(known.leadership, Vacant):
            began = known.vacated_at or known.since
            if component.job_id and known.absence and (episode := known.absence.episode_id):
                since, count = waiting.get(episode, (began, 0))
                waiting[episode] = (min(since, began), count + 1)
                continue
            left = known.last_known
            alert = _alert(policy, rule, name, component, began, left and left.session_id)
            subjects = [component, JOBS] if component.job_id and not left else [component]
            found[component] = replace(
                alert,
                before=_place(left.address) if left else None,
                subjects=tuple(_subject(rule, name, about) for about in subjects),
                certain=left is not None,
            )
    if waiting:
        episode, (since, _) = min(waiting.items(), key=lambda item: item[1])
        count = sum(number for _, number in waiting.values())
        alert = _alert(policy, rule, name, JOBS, since, episode, count=count, episode_id=episode)
        found[JOBS] = replace(alert, subjects=(_subject(rule, name, JOBS),))
    return found


def _subject(rule: Rule, name: str, component: ComponentId) -> str:
    return record_id("subject", rule.alert, name, component)


def _lasts(rule: Rule, alert: Alert, found: Mapping[ComponentId | None, Alert], cluster: ClusterState) -> bool:
    """Whether an alert that fires still holds."""
    match rule.on:
        case Trigger.LEADER_CHANGED:
            return _is_going_on(alert, cluster)
        case Trigger.SPLIT:
            return alert.component in cluster.contested
        case Trigger.NO_STANDBY:
            return cluster.standby.alone_since is not None
        case Trigger.ZXID_HEADROOM if cluster.zxid is None:
            return True  # ZooKeeper has not reported it since the sidecar started
    return alert.component in found


def _is_going_on(alert: Alert, cluster: ClusterState) -> bool:
    """Whether the failover of this alert still has a component without a leader."""
    episode = cluster.episode
    return episode is not None and episode.id == alert.episode_id and bool(episode.away or episode.jobs_away)


def _ended(alert: Alert, cluster: ClusterState, now: Moment) -> Alert:
    """An alert that is over, with what is known of how."""
    if alert.is_event:
        return alert
    known: ComponentState | None = cluster.components.get(alert.component) if alert.component else None
    held = known.leadership if known and isinstance(known.leadership, Held) else None
    lasted = round((now.steady - alert.began.steady) / SECOND, 6)
    return replace(alert, after=_place(held.leader.address) if held else None, vacant_seconds=lasted)


def _forgotten(alerts: Alerts, policy: Policy, name: str, now: Moment) -> Alerts:
    """Without the failovers of so long ago that no rule counts them."""
    if name not in alerts.failovers:
        return alerts
    longest = max((rule.within for rule in policy.rules if rule.on is Trigger.EPISODES), default=0)
    known = alerts.failovers[name].known
    left = tuple(failover for failover in known if now.steady - failover.at <= longest)
    if len(left) == len(known):
        return alerts
    rest = {other: found for other, found in alerts.failovers.items() if other != name}
    return replace(alerts, failovers={**rest, name: Failovers(left)} if left else rest, evaluated={})


def _alert(
    policy: Policy,
    rule: Rule,
    name: str,
    component: ComponentId | None,
    began: Moment,
    *what: object,
    count: int | None = None,
    episode_id: str | None = None,
) -> Alert:
    """An alert whose id follows from `what` happened."""
    return Alert(
        id=record_id("alert", rule.alert, name, component or "", *what),
        rule=rule.alert,
        cluster_id=name,
        labels=labels_of(policy, rule, name, component, ours=rule.on in _OURS),
        began=began,
        component=component,
        count=count,
        episode_id=episode_id,
    )


_OURS: Final = frozenset({Trigger.BLIND, Trigger.UNOBSERVED})
"""What is about this observer, not about Flink."""


def _place(address: str | None) -> str | None:
    return host_port(address) if address is not None else None
