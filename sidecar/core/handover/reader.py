"""The handover in a document that others may have written: nothing of it is later than the document, and all of it adds up."""

from collections.abc import Mapping
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alerts, Failovers, Group
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, Drilled, RestServer, fresh_cluster
from sidecar.core.failover import episodes, plans
from sidecar.core.failover.episodes import Episode
from sidecar.core.failover.plans import Operated
from sidecar.core.failover.recovery_state import Assessed
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.deployments import FlinkDeployment
from sidecar.core.flink.leadership import Component, ComponentId, Unknown
from sidecar.core.handover import document, schema
from sidecar.core.handover.contents import Handover, with_members
from sidecar.core.handover.document import HandoverError, unbounded
from sidecar.core.leadership.leadership_account import Standby
from sidecar.core.leadership.leases import Lease
from sidecar.core.leadership.transitions import Contest
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pictures import Picture, TaskManager
from sidecar.core.pods import merged
from sidecar.core.policy.policy import Store
from sidecar.core.rebase import steady_times

KEPT: Final = 7 * 24 * 3600 * SECOND
"""The greatest age at which a handover is still taken over."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""The greatest difference expected between the clocks of two nodes."""


def read(content: bytes, cluster_id: str, now: Moment) -> Handover | None:
    """The handover in a document; None if there is none. Raises HandoverError: not ours, from a newer version, or not of this time."""
    if not content:
        return None
    try:
        return _read(content, cluster_id, now)
    except HandoverError:
        raise
    except Exception as error:
        raise HandoverError(f"{document.NOT_OURS} ({type(error).__name__})") from error


def _read(content: bytes, cluster_id: str, now: Moment) -> Handover:
    handover = document.unpacked(content)
    alive = handover.alive
    if alive.wall > now.wall + CLOCK_SKEW:
        raise HandoverError("it says that it was written in the future: check the clocks of the nodes")
    if alive.wall < now.wall - KEPT:
        raise HandoverError(f"it is older than {KEPT // (24 * 3600 * SECOND)} days")
    if sum(len(group.members) for group in handover.groups.values()) > schema.MOST_ALERTS:
        raise HandoverError(f"it holds more than {schema.MOST_ALERTS} alerts")
    cluster, alerts = _cluster(handover), _alerts(handover, cluster_id)
    without_flush = replace(alerts, groups={key: replace(group, flush_at=None) for key, group in alerts.groups.items()})
    if any(time > alive.steady for time in (*steady_times(cluster), *steady_times(without_flush))):
        raise HandoverError("it has times that are later than itself")
    return Handover(handover.observer, alive, handover.ended, cluster, alerts, handover.jobs_left_out)


def _cluster(content: schema.Document) -> ClusterState:
    """The cluster of a document, of which nothing has been read yet."""
    alive, components = content.alive, _components(content)
    pods = {host: replace(pod, named_at=min(pod.named_at, alive.wall)) for host, pod in content.pods.items()}
    lapsed = {name: unbounded(LeaderElectionRecord, record) for name, record in content.lapsed.items()}
    picture = _picture(content.picture, alive) if content.picture else None
    return replace(
        fresh_cluster(alive),
        components=components,
        contested=frozenset(component for component, state in components.items() if state.contest.since),
        leases={name: Lease(record=record, lapsed=True) for name, record in lapsed.items()},
        episode=_episode(content.episode, components),
        last_episode=_episode(content.last_episode, components),
        standby=content.standby or Standby(),
        pods=merged({}, pods),
        operated=_operated(content.operated, alive) if content.operated else None,
        disruptions=plans.latest(content.disruptions),
        picture=picture,
        picture_kept=picture,
        assessed=unbounded(Assessed, content.assessed, rows=()) if content.assessed else None,
        job_faults=content.job_faults,
        rest_server=_rest_server(content.rest_server) if content.rest_server else None,
        drilled=_drills(content),
    )


def _components(content: schema.Document) -> dict[ComponentId, ComponentState]:
    components = dict(fresh_cluster(content.alive).components)
    for key, value in content.components:
        if (key.component is Component.JOB) == (key.job_id is not None):
            since = value.split_since
            contest = Contest((), (since.steady,), since) if since else Contest()
            state = unbounded(ComponentState, value, leadership=Unknown(), since=content.alive, contest=contest)
            if key.job_id is None:
                state = replace(state, registered=None, unregistered_at=None)  # it cannot end, as a job does
            components[ComponentId(key.component, key.job_id)] = state
    return components


def _picture(picture: schema.HandedPicture, alive: Moment) -> Picture:
    ids = picture.task_managers
    managers = None if ids is None else tuple(map(TaskManager, ids))
    return unbounded(Picture, picture, at=min(picture.at, alive.wall), task_managers=managers)


def _operated(operated: schema.HandedOperated, alive: Moment) -> Operated:
    """What makes the JobManagers, which the reader has not read yet."""
    deployment = None
    if operated.uid:
        known = operated.generation, None, None, operated.reconciled_at, operated.unwanted_since is not None
        deployment = FlinkDeployment(operated.uid, *known, kind=operated.kind, name=operated.name)
    return unbounded(Operated, operated, deployment=deployment, unread_since=alive)


def _rest_server(server: schema.HandedRestServer) -> RestServer:
    """The server, without the number of requests: the reader proves a silence by its own."""
    unanswered = server.unanswered and replace(server.unanswered, requests=0)
    return unbounded(RestServer, server, unanswered=unanswered)


def _drills(content: schema.Document) -> Drilled:
    """The drills of the document, without times later than the document: those would put off an overdue drill."""
    if content.drilled is None or max(content.drilled.since, content.drilled.passed_at) > content.alive.wall:
        return Drilled(since=content.alive.wall)
    return content.drilled


def _episode(episode: schema.HandedEpisode | None, components: Mapping[ComponentId, ComponentState]) -> Episode | None:
    """The failover, with as many components away as there are."""
    if episode is None:
        return None
    facts = {**to_builtins(episode.facts), "store": Store.ZOOKEEPER}  # the reader knows its store
    away = [
        component
        for component, state in components.items()
        if state.absence and state.absence.episode_id == episode.id and episodes.is_away(state.absence)
    ]
    jobs = sum(1 for component in away if component.job_id)
    return unbounded(Episode, episode, facts=facts, away=len(away) - jobs, jobs_away=jobs)


def _alerts(content: schema.Document, cluster_id: str) -> Alerts:
    groups = {fingerprint: unbounded(Group, group) for fingerprint, group in content.groups.items()}
    failovers = content.failovers
    return Alerts(
        groups=with_members(groups, lambda member: member.alert.cluster_id == cluster_id),
        failovers={cluster_id: Failovers(failovers)} if failovers else {},
    )
