"""What a message about a group of alerts is made of: the alerts, the failover behind them, and what is known of it.

Its jobs are in words already: which have a leader, which have ended, which are lost, and what came back of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from sidecar.core.alerting import phrases
from sidecar.core.alerting.alerts import Alert, Notice, Reason
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.cluster.status import ClusterStatus
from sidecar.core.cluster.status_of import Statuses
from sidecar.core.counted import counted, data_size, shortened
from sidecar.core.failover import assessment, episodes
from sidecar.core.failover.causes import CauseVerdict, is_planned, verdict
from sidecar.core.failover.death_verdict import DeathReason, DeathVerdict
from sidecar.core.failover.deaths import death_of, facts_of, name_of
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.recovery_state import Assessed, RecoverySummary, summary
from sidecar.core.failover.recovery_tables import MOST_OF_A_REASON, known_checkpoints
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import age, micros, seconds
from sidecar.core.pictures import ENDED, Checkpoint, Job, Picture
from sidecar.core.pods import Pods, spelled
from sidecar.core.policy.policy import Policy, Rule, Severity
from sidecar.core.policy.triggers import NO_INCIDENT, Trigger
from sidecar.core.records import Recovery
from sidecar.core.sanitize import clean

MOST_REASONS: Final = 5
_NAME: Final = 60
"""Characters of a job's name."""
MOST_JOBS: Final = 3
"""Jobs of a failover that are named."""
_DELETED: Final = "with the ConfigMap that was deleted"
_VANISHED: Final = "when the plan was removed while nobody led"


class CameBack(NamedTuple):
    """What is known of the recovery, in lines."""

    affected: tuple[str, ...] = ()
    """What ran before. None once all of it runs again."""
    now: tuple[str, ...] = ()
    """How many jobs run by now; in the end the verdict with its proof, or the reasons."""


def came_back(cluster: ClusterState, episode: Episode) -> CameBack:
    """What is known of the recovery from this failover."""
    before = cluster.picture
    if cluster.assessed and assessment.is_judged(cluster, episode):
        return CameBack(now=tuple(_proof(cluster.assessed)))
    if before is None or cluster.recovery is None or cluster.recovery.episode_id != episode.id:
        return CameBack()
    jobs = [job for job in before.jobs if job.state not in ENDED]
    unfinished = assessment.waiting(cluster).keys() | cluster.job_faults.keys()
    running = sum(job.id not in unfinished for job in jobs) if cluster.recovery.led_at else 0
    if running == len(jobs):
        return CameBack()
    so_far = f"{running} of {len(jobs)} jobs seen running again, or ended, so far"
    return CameBack((_affected(before, jobs, episode.opened_at.wall),), (so_far,) if cluster.recovery.led_at else ())


def summary_of(cluster: ClusterState, episode: Episode) -> RecoverySummary | None:
    """The verdict with its jobs; `unproven` without them while it is assessed. None: it was not assessed."""
    if cluster.assessed and assessment.is_judged(cluster, episode):
        return summary(cluster.assessed)
    if cluster.recovery and cluster.recovery.episode_id == episode.id:
        return RecoverySummary("unproven", (), (), is_over=False)
    return None


def _affected(before: Picture, jobs: Sequence[Job], at: int) -> str:
    """How many jobs ran on how many TaskManagers, the largest job, and its last checkpoint."""
    total = len(jobs) + before.jobs_beyond
    largest = max(jobs, key=lambda job: job.total_tasks)
    checkpoints = known_checkpoints(largest.checkpoints)
    last = ""
    if checkpoints:
        last = f", last checkpoint {_checkpoint_text(checkpoints[-1])}, {age(at - checkpoints[-1].ended_at)} before the loss"
    which = "" if total == 1 else "the largest is "
    largest_job = f"{which}{clean(largest.name, _NAME)} with {counted(largest.total_tasks, 'task')}"
    return f"{counted(total, 'job')} ran before{_task_managers(before)}: {largest_job}{last}"


def _task_managers(before: Picture) -> str:
    """` on 4 TaskManagers, 12 of 16 slots taken`. Empty: not known."""
    if before.task_managers is None:
        return ""
    managers = counted(len(before.task_managers) + before.task_managers_beyond, "TaskManager")
    if before.slots_total is None or before.slots_free is None:
        return f" on {managers}"
    return f" on {managers} ({before.slots_total - before.slots_free} of {counted(before.slots_total, 'slot')} taken)"


def _checkpoint_text(checkpoint: Checkpoint) -> str:
    return str(checkpoint.id) if checkpoint.size is None else f"{checkpoint.id} ({data_size(checkpoint.size)})"


def _proof(assessed: Assessed) -> Iterator[str]:
    """`recovered: 5 of 5 jobs RUNNING after 8.2 s, 5 restored from their latest checkpoints`; else why not. The verdict is past: of what it
    could not see, a later message does not say that it is so now."""
    of_cluster, *rows = assessed.rows
    running = [row for row in rows if row.outcome == "running"]
    expected = [row for row in rows if row.outcome not in {"ended", "resurrected"}]
    seen = "seen " if of_cluster.verdict == "unproven" else ""
    ran = f"{len(running)} of {len(expected)} jobs {seen}RUNNING{_slowest_job(running)}" if expected else ""
    latest = sum(row.restored_from == "latest" for row in running)
    restored = (
        f"{latest} restored from {'its' if latest == 1 else 'their'} latest checkpoint{'' if latest == 1 else 's'}"
    )
    yield f"{of_cluster.verdict}: {', '.join(filter(None, (ran, restored if latest else '')))}".removesuffix(": ")
    reasons = [*dict.fromkeys(clean(reason, MOST_OF_A_REASON) for reason in of_cluster.reasons)]
    yield from shortened(reasons, MOST_REASONS)


def _slowest_job(rows: Sequence[Recovery]) -> str:
    latest = max((row.running_after_seconds for row in rows if row.running_after_seconds is not None), default=None)
    return "" if latest is None else f" after {seconds(micros(latest))}"


class MovedJobs(Struct, frozen=True):
    """The jobs of a failover."""

    moved: int
    """How many of `total` lost their leader."""
    away: int
    """How many have no leader now."""
    ended: int
    """How many have ended since. So many of them are `lost`: Flink does not know them any more."""
    lost: int
    total: int
    vanished: int
    """How many of those lost only their plans."""
    ids: tuple[str, ...]
    """The first few jobs that have no leader now; if all have one, of those that lost it."""


def moved_jobs(episode: Episode, cluster: ClusterState) -> MovedJobs:
    parts = [(component.job_id, state) for component, state in cluster.parts(episode).items() if component.job_id]
    away = [job_id for job_id, state in parts if episodes.is_away(state.absence)]
    moved = len(parts) + episode.jobs_ended
    ids = away or [job_id for job_id, _ in parts]
    return MovedJobs(
        *(moved, len(away), episode.jobs_ended, episode.jobs_lost),
        *(max(episode.jobs_total, moved), episode.jobs_vanished),
        tuple(sorted(ids)[:MOST_JOBS]),
    )


def jobs_now(jobs: MovedJobs) -> str:
    """For the title of a failover: how its jobs are now."""
    if not jobs.moved:
        return ""
    if jobs.away:
        return f", {jobs.away} of {jobs.moved} jobs without leader"
    return f", {jobs.moved - jobs.ended} of {jobs.moved} jobs led"


def jobs_line(jobs: MovedJobs) -> str:
    led, ended = jobs.moved - jobs.away - jobs.ended, jobs.ended - jobs.lost
    how = _VANISHED if jobs.vanished == jobs.lost else _DELETED
    them, they_run = "it" if jobs.lost == 1 else "them", "it runs" if led == 1 else "they run"
    parts = {
        f"{jobs.lost} lost {how} (Flink does not know {them} any more)": jobs.lost,
        f"{ended} ended": ended,
        f"{led} led again (which does not say that {they_run})": led,
        f"{jobs.away} without one now": jobs.away,
    }
    now = ", ".join(text for text, number in parts.items() if number)
    more = (jobs.away or jobs.moved) - len(jobs.ids)
    ids = ", ".join(f"{job_id[:8]}…" for job_id in jobs.ids)
    which = f": {ids}{f' and {more} more' if more else ''}" if jobs.ids else ""
    return f"jobs: {jobs.moved} of {jobs.total} lost their leader, {now}{which}"


WORST_FIRST: Final = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
WITH_JOBS: Final = frozenset({Trigger.LEADER_CHANGED, Trigger.PLANNED_FAILOVER})
"""Triggers about one failover: their titles say how its jobs are. So does the end of a vacancy."""


class Headline(NamedTuple):
    """What a title is about: alerts of one rule."""

    rule: Rule
    severity: Severity
    alerts: Sequence[Alert]
    over: bool
    """Whether it says that they are resolved."""
    others: int
    """How many other alerts have changed."""
    still: int
    """How many alerts fire that it does not name; of those that have just begun to only if it says that something is resolved."""
    goes_on: bool
    """Whether something of the group still fires, though it says that something is resolved."""

    lost: str = ""
    """Which jobs the failover has lost."""

    @property
    def label(self) -> str:
        return (Severity.INFO if self.over else self.severity).value.upper()

    def with_lost(self, jobs: int, of: int) -> "Headline":
        """The headline of a failover that has lost jobs: that is said first, and is critical."""
        if not jobs or not (self.rule.on in WITH_JOBS or self.is_end_of_vacancy):
            return self
        own = [alert for alert in self.alerts if not phrases.is_of_a_job(alert)]
        return self._replace(lost=f"{jobs} of {of} jobs lost", severity=Severity.CRITICAL, alerts=own or self.alerts)

    @property
    def is_end_of_vacancy(self) -> bool:
        return self.over and self.rule.on is Trigger.VACANT


def chosen_headline(notice: Notice, rules: Mapping[str, Rule]) -> Headline:
    """What has just changed in the group: what fires now, else the worst of what happened or was resolved. Of a repetition: what fires.

    That a vacancy is over says what a failover came to; that anything else is over comes after what happened.
    """
    changed = notice.changed or notice.alerts
    unchanged = len(notice.alerts) - len(changed)
    first = min(changed, key=lambda alert: _rank(alert, rules[alert.rule]))
    alike = [alert for alert in changed if alert.rule == first.rule and bool(alert.ended) == bool(first.ended)]
    is_closing = notice.reason is Reason.RESOLVED and not notice.news
    over = is_closing or (first.ended is not None and not first.is_event)
    begun = len([alert for alert in changed if alert.ended is None]) if over else 0
    named = {*map(_named, alike)}
    others = sum([_named(alert) not in named for alert in changed if alert.ended or not over])
    worst = min([_severity(alert, rules[alert.rule]) for alert in alike], key=WORST_FIRST.index)
    return Headline(rules[first.rule], worst, alike, over, others, unchanged + begun, over and notice.goes_on)


def _named(alert: Alert) -> tuple[str, ComponentId | str]:
    """What a headline names: a component of which it says one thing needs no mention of another."""
    return alert.cluster_id, alert.component or alert.id


def _severity(alert: Alert, rule: Rule) -> Severity:
    return Severity(alert.labels.get("severity") or rule.severity)


def _rank(alert: Alert, rule: Rule) -> tuple[bool, bool, int, bool]:
    """The lowest is what a headline is about."""
    lasts = alert.ended is None and not alert.is_event
    is_late = alert.ended is not None and not alert.is_event and rule.on is not Trigger.VACANT
    return not lasts, is_late, WORST_FIRST.index(_severity(alert, rule)), alert.is_event


_OF_A_LOSS: Final = frozenset({Trigger.LEADER_CHANGED, Trigger.VACANT})
"""Triggers of alerts that say why the previous leader ended."""


class Failover(NamedTuple):
    """The failover that the alerts belong to."""

    episode: Episode
    verdict: CauseVerdict
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


def subject(
    notice: Notice, policy: Policy, clusters: Mapping[str, ClusterState], statuses: Statuses | None = None
) -> Subject:
    """What is known of what `notice` is about; `statuses` None: nothing of the status."""
    rules = {rule.alert: rule for rule in policy.rules}
    headline = chosen_headline(notice, rules)
    cluster = clusters.get(headline.alerts[0].cluster_id)
    episode = _episode(cluster, headline.alerts) or _episode(cluster, notice.alerts)
    failover = None
    if cluster and episode:
        facts, jobs = facts_of(cluster, episode), moved_jobs(episode, cluster)
        is_of_loss = not _OF_A_LOSS.isdisjoint([rules[alert.rule].on for alert in notice.alerts])
        failover = Failover(
            *(episode, verdict(facts), facts.failed, _death(cluster, episode) if is_of_loss else None),
            *(_successor(cluster, episode), jobs, came_back(cluster, episode), summary_of(cluster, episode)),
        )
        headline = headline.with_lost(jobs.lost - jobs.vanished, jobs.moved)
    pods = {name: cluster.pods for name, cluster in clusters.items()}
    is_of_incident = not NO_INCIDENT.issuperset([rules[alert.rule].on for alert in notice.changed or notice.alerts])
    status = _status(headline, cluster, statuses) if statuses and is_of_incident else None
    return Subject(headline, notice, policy, rules, pods, cluster, failover, status)


def _status(headline: Headline, cluster: ClusterState | None, statuses: Statuses) -> ClusterStatus | None:
    """The status of the cluster that the headline is about, also where an alert about no incident is the headline: what was said of the
    incident before would stand otherwise."""
    names = {alert.cluster_id for alert in headline.alerts}
    if cluster is None or len(names) > 1:
        return None
    return statuses.status_of(names.pop(), cluster)


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
