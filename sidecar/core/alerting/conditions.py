"""Which conditions of a rule hold in a cluster now, each as the alert that it would be: CONDITIONS has them by trigger.

A planned failover fires nothing until the rule's `planned_budget` is over, and less long where it is not known to be planned.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from sidecar.core import agreement as agreements
from sidecar.core.alerting.alerts import Alert, Failovers, Pending, PendingKey, new_alert, place_of
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, contending, zxid_headroom
from sidecar.core.failover import assessment, plans, rest_server
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.plans import Intent, Plan
from sidecar.core.failover.recovery_state import Fault
from sidecar.core.flink import znode_paths
from sidecar.core.flink.leadership import Component, ComponentId, ConfigMapPosition, Vacant
from sidecar.core.ha.finding import CheckVerdict
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy, Rule
from sidecar.core.policy.routing import CHECK, PLANNED
from sidecar.core.policy.triggers import Trigger
from sidecar.core.records import record_id
from sidecar.core.sanitize import clean

_GOES_ON: Final = frozenset({Plan.SUSPENSION, Plan.DELETION})
"""Plans that end when somebody wants the cluster again."""


def no_vacancy_until(rule: Rule, cluster: ClusterState, episode_id: str | None, began: Moment) -> int:
    """Until when (steady) a leader that is missing since `began` fires no alert of this rule; 0: it does."""
    until, operated = excused_until(rule, cluster, episode_id), cluster.operated
    if plans.starts_again(operated, began) and operated and operated.wanted_since and not plans.stuck(operated):
        until = max(until, operated.wanted_since.steady + rule.planned_budget)
    if operated and operated.unwanted_since and operated.unread_since:
        return max(until, operated.unread_since.steady + plans.UNREAD)
    return until


def excused_until(rule: Rule, cluster: ClusterState, episode_id: str | None) -> int:
    """Until when (steady) the failover fires no alert of this rule; 0: it is not excused."""
    episode, operated = cluster.failover(episode_id), cluster.operated
    if episode is None or plans.stuck(operated):
        return 0
    opened, intent = episode.opened_at.steady, _intent(cluster, episode)
    if intent is None:
        expected = plans.expected_until(operated, episode.opened_at)
        return min(expected, opened + rule.planned_budget) if expected else 0
    if intent.plan is Plan.ROLLBACK:
        return 0
    if intent.plan in _GOES_ON and operated and operated.wanted_since:
        opened = max(opened, operated.wanted_since.steady)
    return opened + rule.planned_budget


def is_known_to_be_planned(cluster: ClusterState, episode_id: str | None) -> bool:
    """Whether there is a fact that says so."""
    episode = cluster.failover(episode_id)
    return episode is not None and _intent(cluster, episode) is not None


def waiting_alerts(
    pending: Mapping[PendingKey, Pending], rule: Rule, name: str, cluster: ClusterState, now: Moment
) -> dict[PendingKey, Pending]:
    """The events of this rule that wait until it is known whether they were planned. Those that were are dropped."""
    events = {}
    for key, event in pending.items():
        if key[:2] == (rule.alert, name) and event.alert.is_event:
            until = excused_until(rule, cluster, event.alert.episode_id)
            if now.steady >= until:
                events[key] = Pending(min(event.due, now.steady), event.alert)
            elif not is_known_to_be_planned(cluster, event.alert.episode_id):
                events[key] = event
    return events


def _intent(cluster: ClusterState, episode: Episode) -> Intent | None:
    """What says that it was planned, also if that became known after it was closed."""
    intent = episode.facts.intent
    return intent or plans.intent(cluster.operated, episode.opened_at, unseen=episode.facts.unseen)


def labelled(alert: Alert, cluster: ClusterState) -> dict[str, str]:
    """The alert's labels, with that it is planned if that is known now. They stay as they are from when it fires."""
    planned = is_known_to_be_planned(cluster, alert.episode_id)
    return {**alert.labels, PLANNED: "true"} if planned else alert.labels


ZXID_HEADROOM: Final = 1 << 28
"""Transactions left in ZooKeeper's epoch when the rule fires: a sixteenth of all."""
_MOST_UNLED: Final = 3
"""Alerts for jobs that never had a leader while they were observed; one more tells the number of the others."""
_MOST_FAULTS: Final = 100
"""Jobs with an alert of their own."""
_MOST_NAMED: Final = 3
MOST_NAME: Final = 40
"""Characters of a job's name in a message."""
_REST_SERVER: Final = ComponentId(Component.REST_SERVER)
JOBS: Final = ComponentId(Component.JOB)
"""All jobs of a failover, as one subject."""
Holding = Mapping[ComponentId | None, Alert]
"""Conditions that hold, by component; None: of the cluster as a whole."""


class ClusterNow(NamedTuple):
    """One cluster, as rules see it."""

    policy: Policy
    name: str
    cluster: ClusterState
    failovers: Failovers
    now: Moment


def _stop(rule: Rule, seen: ClusterNow) -> Holding:
    """Nobody leads, and nobody wants a leader. The id does not say when: observers have not seen it at the same time."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    operated, own = cluster.operated, cluster.own.values()
    if operated is None or operated.unwanted_since is None or not plans.is_unwanted(operated):
        return {}
    jobs = len(cluster.stored_jobs)
    waits = rule.on is Trigger.STOPPED or (jobs and not plans.keeps_jobs(operated))
    if not waits or not all(isinstance(state.leadership, Vacant) for state in own):
        return {}
    sessions = sorted({str(state.last_known.session_id) for state in own if state.last_known})
    facts = {"count": jobs, "detail": plans.what_was_done(operated)}
    alert = new_alert(policy, rule, name, None, operated.unwanted_since, operated.subject, *sessions, **facts)
    return {None: replace(alert, left_behind=policy.finds is not None and _is_left_behind(cluster))}


def _blindness(rule: Rule, seen: ClusterNow) -> Holding:
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    if cluster.leaders_in_sight:
        if (beyond := cluster.beyond) is None:
            return {}
        # Something of it is not observed. Observers need not share that.
        parts = policy.observer, beyond.since.wall
        return {None: new_alert(policy, rule, name, None, beyond.since, *parts, missing=str(beyond))}
    loss = cluster.view.loss
    began = loss.began if loss and loss.ended is None else cluster.view.turned_at
    missing = str(cluster.missing) if cluster.missing else None
    agreement = None if missing else agreements.agreed_blindness(cluster.peers)
    alert = new_alert(policy, rule, name, None, began, policy.observer, began.wall, missing=missing)
    return {None: replace(alert, agreement=agreement)}


def _failovers(rule: Rule, seen: ClusterNow) -> Holding:
    """There were too many. The id does not name one: an observer that missed some counts others."""
    policy, name, now = seen.policy, seen.name, seen.now
    recent = [failover for failover in seen.failovers.known if now.steady - failover.at <= rule.within]
    count = sum(failover.times for failover in recent)
    if count < rule.count:
        return {}
    return {None: new_alert(policy, rule, name, None, now, count=count, episode_id=recent[-1].episode_id)}


def _no_standby(rule: Rule, seen: ClusterNow) -> Holding:
    """One JobManager contends after there was a standby, or that one leaves again and again."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    standby, number = cluster.standby, contending(cluster.contenders)
    is_alone = standby.alone_since is not None and number == 1
    since = standby.lacking_since or standby.alone_since
    if since is None or not (is_alone or (standby.loops and number)):
        return {}
    # The oldest contender of each latch is the leader, which stays while others come and go.
    leaders = sorted(min(names, key=znode_paths.place_in_latch) for names in cluster.contenders.values() if names)
    count = standby.left if standby.loops else None
    return {None: new_alert(policy, rule, name, None, since, *leaders, count=count)}


def _few_transactions(rule: Rule, seen: ClusterNow) -> Holding:
    left_over = zxid_headroom(seen.cluster)
    if left_over is None or left_over >= ZXID_HEADROOM:
        return {}
    epoch = (seen.cluster.zxid or 0) >> 32
    return {None: new_alert(seen.policy, rule, seen.name, None, seen.now, epoch, count=left_over)}


def _overdue(rule: Rule, seen: ClusterNow) -> Holding:
    """A drill, by the wall clock; none if it is not known since when the cluster is watched."""
    policy, name, cluster, now = seen.policy, seen.name, seen.cluster, seen.now
    last = cluster.drilled.passed_at or cluster.drilled.since
    late = now.wall - last - rule.age
    if not last or late < 0:
        return {}
    since = Moment(now.steady - late, now.wall - late)
    return {None: new_alert(policy, rule, name, None, since, cluster.drilled.passed)}


def _silence(rule: Rule, seen: ClusterNow) -> Holding:
    """The published leader does not answer. One that is not wanted any more may end."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    leader, unanswered = cluster.rest_leader, rest_server.unanswered(cluster)
    if leader is None or unanswered is None or plans.is_unwanted(cluster.operated):
        return {}
    facts = {"before": place_of(leader.address), "reach": unanswered.reach}
    agreement = agreements.agreed_silence(cluster.peers)
    alert = new_alert(
        policy, rule, name, _REST_SERVER, unanswered.since, leader.session_id, **facts, agreement=agreement
    )
    return {_REST_SERVER: alert}


def _not_recovered(rule: Rule, seen: ClusterNow) -> Holding:
    """Jobs have not come back since the cluster is led again."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    led, jobs = assessment.led_since(cluster), assessment.waiting(cluster)
    if led is None or not jobs:
        return {}
    began, episode = led
    names = ", ".join(clean(job, MOST_NAME) for job in sorted(jobs.values())[:_MOST_NAMED])
    about = f"{names}, …" if len(jobs) > _MOST_NAMED else names
    return {None: new_alert(policy, rule, name, None, began, episode, episode_id=episode, about=about, count=len(jobs))}


def _faults(fault: Fault, rule: Rule, seen: ClusterNow) -> Holding:
    """An alert for each job with this fault, but of very many."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    jobs = sorted(job_id for job_id, job in cluster.job_faults.items() if job.fault is fault)[:_MOST_FAULTS]
    holding: dict[ComponentId | None, Alert] = {}
    for job_id in jobs:
        job, component = cluster.job_faults[job_id], ComponentId(Component.JOB, job_id)
        facts = {"episode_id": job.episode_id, "about": job.name and clean(job.name, MOST_NAME)}
        holding[component] = new_alert(policy, rule, name, component, job.since, job.episode_id, **facts)
    return holding


def _vacancies(rule: Rule, seen: ClusterNow) -> Holding:
    """Components without a leader: an alert each, but one for all jobs of a failover."""
    policy, name, cluster = seen.policy, seen.name, seen.cluster
    if plans.is_unwanted(cluster.operated):
        return {}
    vacant = {
        component: state for component, state in cluster.components.items() if isinstance(state.leadership, Vacant)
    }
    unled = {component for component, state in vacant.items() if component.job_id and _never_led(cluster, state)}
    if len(unled) <= _MOST_UNLED:
        unled = set()  # else one alert tells their number
    is_left_behind = policy.finds is not None and _is_left_behind(cluster)
    holding: dict[ComponentId, Alert] = {}
    jobs: defaultdict[str, list[Moment]] = defaultdict(list)
    for component, state in vacant.items():
        episode = state.absence.episode_id if state.absence else None
        if component.job_id and (episode or component in unled):
            jobs[episode or ""].append(state.vacated_at or state.since)
        else:
            holding[component] = _vacancy(rule, policy, name, component, state, episode)
    if jobs:
        holding[JOBS] = _vacancy_of_jobs(rule, policy, name, jobs)
    return {
        component: replace(
            alert,
            labels=labelled(alert, cluster),
            left_behind=is_left_behind,
            agreement=agreements.agreed_vacancy(cluster.peers, component.component),
        )
        for component, alert in holding.items()
    }


def _vacancy(
    rule: Rule, policy: Policy, name: str, component: ComponentId, state: ComponentState, episode: str | None
) -> Alert:
    """One component has no leader."""
    last_leader, began = state.last_known, state.vacated_at or state.since
    subjects = _subjects(rule, name, component, *([JOBS] if component.job_id and not last_leader else []))
    session_id, before = (last_leader.session_id, place_of(last_leader.address)) if last_leader else (None, None)
    alert = new_alert(policy, rule, name, component, began, session_id, before=before, subjects=subjects)
    return replace(alert, certain=last_leader is not None, episode_id=episode)


def _vacancy_of_jobs(rule: Rule, policy: Policy, name: str, jobs: Mapping[str, Sequence[Moment]]) -> Alert:
    """Several jobs have no leader. `jobs`: since when, by their failover, the earliest of which it names."""
    episode, moments = min(jobs.items(), key=lambda item: (min(item[1]), len(item[1])))
    count, subjects = sum(map(len, jobs.values())), _subjects(rule, name, JOBS)
    return new_alert(
        *(policy, rule, name, JOBS, min(moments), episode), count=count, episode_id=episode or None, subjects=subjects
    )


def _is_left_behind(cluster: ClusterState) -> bool:
    """Whether nobody has led in a cluster since it was observed, and nobody contends: what is left of one that ended."""
    return all(_never_led(cluster, state) for state in cluster.own.values()) and not contending(cluster.contenders)


def _never_led(cluster: ClusterState, state: ComponentState) -> bool:
    """Whether there is no leader, and none was alive as far as this observer knows: a lease that was there was never renewed."""
    if not isinstance(state.leadership, Vacant):
        return False
    place = state.last_position
    lease = cluster.leases.get(place.name) if isinstance(place, ConfigMapPosition) else None
    return state.last_known is None or (lease is not None and lease.lapsed and lease.renewed_at is None)


def _subjects(rule: Rule, name: str, *components: ComponentId) -> tuple[str, ...]:
    return tuple(record_id("subject", rule.alert, name, component) for component in components)


def is_in_progress(cluster: ClusterState, episode_id: str | None) -> bool:
    """Whether this failover still has a component without a leader."""
    episode = cluster.episode
    return episode is not None and episode.id == episode_id and bool(episode.away or episode.jobs_away)


def _is_unread(_: Alert, cluster: ClusterState) -> bool:
    """A new process has not read what is wanted yet."""
    operated = cluster.operated
    return operated is not None and bool(operated.unwanted_since and operated.unread_since)


def _is_silent_to_another(alert: Alert, cluster: ClusterState) -> bool:
    """The alert is another sidecar's, and nothing has answered this one yet."""
    if not cluster.picture_request or cluster.rest_server:
        return False
    return cluster.rest_leader is not None and place_of(cluster.rest_leader.address) == alert.before


def _is_still_a_risk(alert: Alert, cluster: ClusterState) -> bool:
    """The check has not passed, and still applies. What cannot be read any more may still be a risk."""
    if cluster.readiness is None:
        return True  # not checked since the sidecar started
    check = cluster.readiness.checks.get(alert.labels.get(CHECK, ""))
    return check is not None and check.result.verdict is not CheckVerdict.PASS


def _lacks_standby(_: Alert, cluster: ClusterState) -> bool:
    standby = cluster.standby
    return standby.alone_since is not None or (standby.loops and standby.lacking_since is not None)


class Condition(NamedTuple):
    """When the rules of one trigger fire, and for how long."""

    holds: Callable[[Rule, ClusterNow], Holding] | None = None
    """The conditions that hold now. None: what happened fires it (`reactions`)."""
    goes_on: Callable[[Alert, ClusterState], bool] | None = None
    """Whether an alert fires on that is not among those that hold: nothing is known of it now, or it is an event that takes time."""


CONDITIONS: Final = {
    Trigger.LEADER_CHANGED: Condition(
        None,
        lambda alert, cluster: is_in_progress(cluster, alert.episode_id) and not plans.is_unwanted(cluster.operated),
    ),
    Trigger.VACANT: Condition(_vacancies),
    Trigger.STOPPED: Condition(_stop, _is_unread),
    Trigger.JOBS_WAIT: Condition(_stop, _is_unread),
    Trigger.BLIND: Condition(_blindness),
    Trigger.SPLIT: Condition(None, lambda alert, cluster: alert.component in cluster.contested),
    Trigger.NO_STANDBY: Condition(_no_standby, _lacks_standby),
    Trigger.EPISODES: Condition(_failovers),
    # Until ZooKeeper has reported its number again since the sidecar started.
    Trigger.ZXID_HEADROOM: Condition(_few_transactions, lambda _, cluster: cluster.zxid is None),
    Trigger.DRILL_OVERDUE: Condition(_overdue),
    Trigger.LEADER_SILENT: Condition(_silence, _is_silent_to_another),
    Trigger.JOB_MISSING: Condition(partial(_faults, Fault.MISSING)),
    Trigger.JOB_RESURRECTED: Condition(partial(_faults, Fault.RESURRECTED)),
    Trigger.NOT_RECOVERED: Condition(_not_recovered),
    Trigger.HA_RISK: Condition(None, _is_still_a_risk),
}
"""By trigger. The others are events, over at once."""
