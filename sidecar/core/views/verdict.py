"""How each cluster is, in one word and one sentence, the worst first: the head of the page, and the command `status`."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.alerting.first_step import first_step
from sidecar.core.cluster import advice
from sidecar.core.cluster.death.deaths import death_of
from sidecar.core.cluster.failover import plans
from sidecar.core.cluster.failover.causes import Cause, Confidence
from sidecar.core.cluster.failover.failover_in_progress import cause_of
from sidecar.core.cluster.state import ClusterState, ComponentState, contending
from sidecar.core.counted import counted, listed
from sidecar.core.flink.leadership import ComponentId, Unknown, Vacant
from sidecar.core.moment import Moment, Timestamp, age, timestamp
from sidecar.core.pods import name_at, process
from sidecar.core.policy.policy import Severity, Trigger
from sidecar.core.sanitize import clean
from sidecar.core.views.alert_view import AlertState, AlertView, alerts
from sidecar.core.views.snapshot import Snapshot


class Level(StrEnum):
    """How well a cluster is, the worst first."""

    DOWN = "down"
    """One of its own components has no leader, or two."""
    BLIND = "blind"
    """It cannot be seen: nothing is known of its leaders now."""
    DEGRADED = "degraded"
    """All of its own components have a leader, and something needs attention."""
    OK = "ok"


class ClusterVerdict(Struct, frozen=True):
    """How one cluster is. `sentence` is printable and bounded, without the cluster's name."""

    cluster_id: str | None
    """Null: the sidecar itself, or its search for clusters."""
    level: str
    sentence: str
    since: Timestamp | None
    """When it began to be down, or could not be seen any more. Null: it is neither, or its beginning is not known."""
    next_step: str | None = None
    """What to do: in one sentence, or first and then."""
    topic: str | None = None
    """The section of docs/how-to/troubleshooting.md about it."""

    def __str__(self) -> str:
        return f"{clean(self.cluster_id or 'this sidecar')}: {self.sentence}"


_LEVELS: Final = tuple(Level)
_LONGEST_REASON: Final = 500
"""Characters of what the store says about a refusal."""
_MOST_NAMED: Final = 3
"""Alerts that a sentence names."""
_URGENT: Final = frozenset({Severity.WARNING.value, Severity.CRITICAL.value})


def verdicts(snapshot: Snapshot) -> list[ClusterVerdict]:
    """How each watched cluster is, and what is wrong with the sidecar itself: the worst first, then by name. Never empty."""
    firing: dict[str, list[AlertView]] = {}
    for alert in alerts(snapshot):
        if alert.state != AlertState.PENDING:
            firing.setdefault(alert.cluster_id, []).append(alert)
    clusters = snapshot.state.clusters
    of_clusters = (_of_cluster(name, cluster, firing.get(name, []), snapshot.at) for name, cluster in clusters.items())
    return sorted([*of_clusters, *_of_sidecar(snapshot)], key=_worst_first)


def _worst_first(verdict: ClusterVerdict) -> tuple[int, str]:
    return _LEVELS.index(Level(verdict.level)), verdict.cluster_id or ""


def _of_cluster(name: str, cluster: ClusterState, firing: Sequence[AlertView], at: Moment) -> ClusterVerdict:
    if not cluster.leaders_in_sight:
        return _blind(name, cluster, at)
    own = {component: state for component, state in cluster.components.items() if component.job_id is None}
    vacant = {component: state for component, state in own.items() if isinstance(state.leadership, Vacant)}
    if vacant and (why := plans.why_unwanted(cluster.operated)):
        return ClusterVerdict(name, Level.OK.value, f"stopped, no leader is wanted: {why}", None)
    if vacant:
        since, sentence = _vacant(cluster, vacant, len(own), at)
        return ClusterVerdict(name, Level.DOWN.value, sentence, since, *_next_step(cluster))
    if cluster.contested:
        components = ", ".join(map(str, sorted(cluster.contested)[:_MOST_NAMED]))
        sentence = f"split leadership: two JobManagers act as leader of {components}"
        return ClusterVerdict(name, Level.DOWN.value, sentence, None, *_advice(Trigger.SPLIT))
    if unreadable := [str(component) for component, state in own.items() if isinstance(state.leadership, Unknown)]:
        sentence = f"the leader data of {', '.join(sorted(unreadable))} cannot be read"
        return ClusterVerdict(name, Level.BLIND.value, sentence, None)
    return _led(name, cluster, firing)


def _blind(name: str, cluster: ClusterState, at: Moment) -> ClusterVerdict:
    view = cluster.view
    if cluster.missing:
        return ClusterVerdict(name, Level.BLIND.value, clean(str(cluster.missing)), None, *_advice(Trigger.BLIND))
    if cluster.refused:
        sentence = f"the store does not let it be read: {clean(cluster.refused, _LONGEST_REASON)}{_last_known(cluster)}"
        return ClusterVerdict(name, Level.BLIND.value, sentence, None, *_advice(Trigger.BLIND))
    if not cluster.ever_led and not view.complete and view.loss is None:
        return ClusterVerdict(name, Level.BLIND.value, "the store has not been read yet: leaders are unknown", None)
    loss = view.loss
    began = loss.began if loss and loss.ended is None else view.turned_at
    for_long = f" for {age(at.steady - began.steady)}" if began.steady else ""
    sentence = f"cannot see it{for_long}: the store cannot be read, so leaders are unknown{_last_known(cluster)}"
    return ClusterVerdict(
        name, Level.BLIND.value, sentence, timestamp(began.wall) if began.steady else None, *_advice(Trigger.BLIND)
    )


def _last_known(cluster: ClusterState) -> str:
    """Who led when it was last seen, of the dispatcher, or of the first component that had a leader."""
    own = sorted(component for component in cluster.components if component.job_id is None)
    last_leaders = (cluster.components[component].last_known for component in own)
    last = next((leader for leader in last_leaders if leader), None)
    return f" (last known: {_process(cluster, last.address)})" if last else ""


def _process(cluster: ClusterState, address: str) -> str:
    """The pod in a leader's address, or the host where the pod is not known."""
    return process(address, name_at(cluster.pods, address))


def _vacant(
    cluster: ClusterState, vacant: Mapping[ComponentId, ComponentState], own: int, at: Moment
) -> tuple[Timestamp | None, str]:
    """Since when there is no leader, and the sentence: for how long, why, and whether another JobManager can take over."""
    began = min((state.vacated_at or state.since for state in vacant.values()), key=lambda moment: moment.steady)
    observed = all(not state.discovered for state in vacant.values())
    at_least = "" if observed else "at least "
    of_which = "" if len(vacant) == own else f" of {', '.join(sorted(map(str, vacant)))}"
    parts = [
        f"no leader{of_which} for {at_least}{age(at.steady - began.steady)}" if cluster.ever_led else "no leader yet"
    ]
    if why := _why(cluster):
        parts.append(why)
    number = contending(cluster.contenders)
    if number is not None:
        # Nobody leads: all that contend can take over, if they live.
        parts.append(
            "no standby" if number == 0 else f"{number} JobManager{'s contend' if number > 1 else ' contends'}"
        )
    return timestamp(began.wall) if observed else None, ", ".join(parts)


def _advice(trigger: Trigger) -> tuple[str, str]:
    """What to do, and the section about it."""
    return advice.TRIGGERS[trigger], advice.anchor(trigger)


def _next_step(cluster: ClusterState) -> tuple[str, str]:
    """What to do first, and only then how to find out why."""
    episode, (step, topic) = cluster.episode, _advice(Trigger.VACANT)
    step = first_step(cluster) or step
    if episode is None:
        return step, topic
    cause, death = cause_of(cluster, episode).cause, death_of(cluster, episode)
    reason = death.reason if death else None
    if cause is Cause.UNKNOWN and not advice.explains(reason, cause):
        return step, topic
    return f"{step} Then: {advice.next_step(cause, _process(cluster, episode.before.address), reason)}", cause.value


def _why(cluster: ClusterState) -> str | None:
    episode = cluster.episode
    if episode is None:
        return None
    verdict, death = cause_of(cluster, episode), death_of(cluster, episode)
    reason = death.reason if death else None
    clause = advice.because(verdict.cause, _process(cluster, episode.before.address), reason)
    confidence = death.confidence if death and advice.explains(reason, verdict.cause) else verdict.confidence
    return clause if not clause or confidence is Confidence.HIGH else f"probably because {clause}"


def _led(name: str, cluster: ClusterState, firing: Sequence[AlertView]) -> ClusterVerdict:
    """All of its own components have a leader."""
    if cluster.beyond:
        since = timestamp(cluster.beyond.since.wall)
        return ClusterVerdict(name, Level.BLIND.value, f"led, but {cluster.beyond}", since, *_advice(Trigger.BLIND))
    jobs = [state for component, state in cluster.components.items() if component.job_id]
    away = sum(isinstance(job.leadership, Vacant) for job in jobs)
    loud = [alert for alert in firing if alert.state == AlertState.FIRING and alert.severity in _URGENT]
    problems = [f"{away} of {len(jobs)} jobs without a leader"] if away else []
    problems += _firing_names([alert.alert for alert in loud])
    alone = cluster.standby.alone_since is not None
    number = contending(cluster.contenders)
    parts = ["all led", *([_standbys(number)] if number else []), *problems]
    suppressed = len(firing) - sum(alert.state == AlertState.FIRING for alert in firing)
    if suppressed:
        parts.append(f"{counted(suppressed, 'alert')} silenced, inhibited or muted")
    sentence = ", ".join(parts)
    if loud or alone:
        worst = Trigger(loud[0].trigger) if loud else Trigger.NO_STANDBY
        return ClusterVerdict(name, Level.DEGRADED.value, sentence, None, *_advice(worst))
    return ClusterVerdict(name, (Level.DEGRADED if problems else Level.OK).value, sentence, None)


def _standbys(contenders: int) -> str:
    return "no standby" if contenders == 1 else counted(contenders - 1, "standby")


def _firing_names(alerts: Sequence[str]) -> list[str]:
    names = sorted(set(alerts))
    return [f"{listed(names, _MOST_NAMED)} fire{'' if len(names) > 1 else 's'}"] if names else []


def _of_sidecar(snapshot: Snapshot) -> Iterator[ClusterVerdict]:
    """What is wrong with the sidecar, and with its search for clusters."""
    finder, health, watched = snapshot.state.finder, snapshot.health, len(snapshot.state.clusters)
    if finder and not finder.connected:
        why = clean(finder.refused, _LONGEST_REASON) or "it cannot be read"
        sentence = f"cannot see which clusters are in {clean(finder.place)}: {why}"
        yield ClusterVerdict(None, Level.BLIND.value, sentence, None)
    elif finder and (problem := finder.problem(watched)):
        level = Level.BLIND if finder.leaves_out else Level.DEGRADED
        yield ClusterVerdict(None, level.value, clean(problem), None)
    elif not watched:
        yield ClusterVerdict(None, Level.BLIND.value, "no cluster is watched yet", None)
    if health.journal_problem:
        sentence = f"the journal cannot be written: {clean(health.journal_problem)}"
        yield ClusterVerdict(None, Level.DEGRADED.value, sentence, None)
    if health.lost_records:
        sentence = f"{health.lost_records} records were lost: neither disk nor memory had room"
        yield ClusterVerdict(None, Level.DEGRADED.value, sentence, None)
    if health.unprocessed:
        sentence = f"{health.unprocessed} observations could not be processed because of an error in the sidecar"
        yield ClusterVerdict(None, Level.DEGRADED.value, sentence, None)
    for line in health.quarantined:
        yield ClusterVerdict(
            None, Level.DEGRADED.value, f"left out because of an error in the sidecar: {clean(line)}", None
        )
    if health.rules_problem:
        sentence = f"the rules on disk cannot be loaded: {clean(health.rules_problem)}"
        yield ClusterVerdict(None, Level.DEGRADED.value, sentence, None)
