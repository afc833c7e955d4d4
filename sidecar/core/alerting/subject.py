"""What a message about a group of alerts is made of: the alerts, the failover behind them, and what is known of it."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sidecar.core.alerting import recovery_lines, title
from sidecar.core.alerting.alerts import NO_INCIDENT, Alert, Notice
from sidecar.core.alerting.recovery_lines import CameBack, MovedJobs, moved_jobs
from sidecar.core.alerting.title import Headline
from sidecar.core.cluster.death.death_verdict import DeathReason, DeathVerdict
from sidecar.core.cluster.death.deaths import death_of, name_of
from sidecar.core.cluster.failover import episodes
from sidecar.core.cluster.failover.causes import Verdict, is_planned, verdict
from sidecar.core.cluster.failover.episodes import Episode
from sidecar.core.cluster.failover.failover_in_progress import facts_of
from sidecar.core.cluster.recovery.recovery_state import RecoverySummary
from sidecar.core.cluster.state import ClusterState
from sidecar.core.cluster.status import SHOWN, ClusterStatus
from sidecar.core.cluster.status_of import status_of
from sidecar.core.moment import Moment
from sidecar.core.pods import Pods, spelled
from sidecar.core.policy.policy import Policy, Rule, Trigger

_OF_A_LOSS: Final = frozenset({Trigger.LEADER_CHANGED, Trigger.VACANT})
"""Triggers of alerts that say why the previous leader ended."""


class Failover(NamedTuple):
    """The failover that the alerts belong to."""

    episode: Episode
    verdict: Verdict
    failed: tuple[str, ...]
    """What became of JobManagers that took over and ended since, a sentence each."""
    death: DeathVerdict | None
    """Why the previous leader ended, if an alert is about that, and if that is known."""
    successor: str | None
    """Its pod or `host:port`. None: there is none yet."""
    jobs: MovedJobs
    came_back: CameBack
    recovery: RecoverySummary | None
    """None: it is not assessed."""

    @property
    def planned(self) -> str | None:
        """As the label: `true` or `false`; None: not known."""
        planned = is_planned(self.episode.facts)
        return None if planned is None else str(planned).lower()


class Subject(NamedTuple):
    """What a message is about."""

    headline: Headline
    notice: Notice
    policy: Policy
    rules: Mapping[str, Rule]
    """By name."""
    pods: Mapping[str, Pods]
    """By cluster."""
    cluster: ClusterState | None
    """That of the headline."""
    failover: Failover | None
    status: ClusterStatus | None = None
    """That of its cluster. None: it is about no incident, or about several clusters, or not known."""


def subject(notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState], now: Moment | None = None) -> Subject:
    """What is known of what `notice` is about; `now` None: nothing of the status."""
    rules = {rule.alert: rule for rule in policy.rules}
    headline = title.headline(notice, rules)
    cluster = clusters.get(headline.alerts[0].cluster_id)
    episode = _episode(cluster, headline.alerts) or _episode(cluster, notice.alerts)
    failover = None
    if cluster and episode:
        failover = _failover(cluster, episode, of_a_loss=any(rules[a.rule].on in _OF_A_LOSS for a in notice.alerts))
        jobs = failover.jobs
        headline = headline.with_lost(jobs.lost - jobs.vanished, jobs.moved)
    pods = {name: cluster.pods for name, cluster in clusters.items()}
    is_of_incident = any(rules[alert.rule].on not in NO_INCIDENT for alert in notice.changed or notice.alerts)
    status = _status(headline, policy, cluster, now) if now and is_of_incident else None
    return Subject(headline, notice, policy, rules, pods, cluster, failover, status)


def _status(headline: Headline, policy: Policy, cluster: ClusterState | None, now: Moment) -> ClusterStatus | None:
    """The status of the cluster that the headline is about. None too where it is calmer than a headline that is about no incident."""
    names = {alert.cluster_id for alert in headline.alerts}
    if cluster is None or len(names) > 1:
        return None
    status = status_of(policy, names.pop(), cluster, now)
    is_calm = SHOWN[status.status].kind in {"success", "info"}
    return None if is_calm and headline.rule.on in NO_INCIDENT else status


def _failover(cluster: ClusterState, episode: Episode, *, of_a_loss: bool) -> Failover:
    facts = facts_of(cluster, episode)
    return Failover(
        episode,
        verdict(facts),
        facts.failed,
        _death(cluster, episode) if of_a_loss else None,
        _successor(cluster, episode),
        moved_jobs(episode, cluster),
        recovery_lines.came_back(cluster, episode),
        recovery_lines.summary_of(cluster, episode),
    )


def _episode(cluster: ClusterState | None, alerts: Sequence[Alert]) -> Episode | None:
    """The failover that the alerts belong to, if it is the current or the last one."""
    if cluster is None:
        return None
    episode_ids = {alert.episode_id for alert in alerts if alert.episode_id}
    for episode in (cluster.episode, cluster.last_episode):
        if episode and (episode.id in episode_ids or episodes.concerns(episode, (alert.began for alert in alerts))):
            return episode
    return None


def _death(cluster: ClusterState, episode: Episode) -> DeathVerdict | None:
    death = death_of(cluster, episode)
    return death if death and (death.reason is not DeathReason.UNKNOWN or death.fault) else None


def _successor(cluster: ClusterState, episode: Episode) -> str | None:
    if episode.after is None or episode.away:
        return None
    return name_of(cluster, episode.after.address) or spelled(episode.after.address, None)
