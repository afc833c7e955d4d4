"""Until when a planned failover fires nothing: the rule's `planned_budget`, and less where it is not known to be planned."""

from collections.abc import Mapping
from typing import Final

from sidecar.core.alerting.alerts import Alert, Pending, PendingKey
from sidecar.core.cluster.failover import plans
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.failover.plans import Intent, Plan
from sidecar.core.cluster.state import ClusterState
from sidecar.core.moment import Moment
from sidecar.core.policy.labels import PLANNED
from sidecar.core.policy.policy import Rule

_GOES_ON: Final = frozenset({Plan.SUSPENSION, Plan.DELETION})
"""Plans that end when somebody wants the cluster again."""


def episode_of(cluster: ClusterState, episode_id: str | None) -> Episode | None:
    """The failover, if it is the current or the last one."""
    latest = (cluster.episode, cluster.last_episode)
    return next((episode for episode in latest if episode and episode.id == episode_id), None)


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
    episode, operated = episode_of(cluster, episode_id), cluster.operated
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
    episode = episode_of(cluster, episode_id)
    return episode is not None and _intent(cluster, episode) is not None


def waiting(
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
