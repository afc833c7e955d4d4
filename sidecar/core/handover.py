"""The handover: what a sidecar leaves in the store for the one that takes its place, whose folder may be empty.

A sidecar in a Flink pod ends with the pod, and its journal may end with it. What the next one needs is kept outside: who led, the failover
in progress, what was notified and what was not.

Others can write it. Its schema bounds each value (`handover_schema`), its times may not lie in the future, facts that the reader could not
observe itself are left out, its alerts get their labels from the reader's own rules, and messages are composed anew.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from sidecar.core import handover_document as document
from sidecar.core import handover_schema as schema
from sidecar.core.alerting import rerouting
from sidecar.core.alerting.alerts import Alert, Alerts, CountedFailover, Failovers, Group, Member, Reason
from sidecar.core.cluster import leadership_account, rest_server, succession
from sidecar.core.cluster.death import ends
from sidecar.core.cluster.death.ends import NOTHING, Ends
from sidecar.core.cluster.failover import episodes, plans
from sidecar.core.cluster.failover.episodes import Absence, Episode
from sidecar.core.cluster.failover.plans import Disruption, Operated, Plan
from sidecar.core.cluster.leadership_account import Account
from sidecar.core.cluster.recovery import assessment
from sidecar.core.cluster.recovery.recovery_state import Assessed, JobFault
from sidecar.core.cluster.state import ClusterState, ComponentState, Drilled, RestServer, Standby, fresh_cluster
from sidecar.core.cluster.store.leases import Lease
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.flink.configmaps import LeaderElectionRecord
from sidecar.core.flink.leadership import Component, ComponentId, ConfigMapPosition, Position, Unknown
from sidecar.core.handover_document import HandoverError, bounded, bounded_values, unbounded
from sidecar.core.moment import SECOND, Moment
from sidecar.core.pictures import ENDED, MOST_HELD, Picture
from sidecar.core.pods import Pod, merged
from sidecar.core.policy.labels import PLANNED
from sidecar.core.policy.policy import EVENTS, Policy, Source, Store
from sidecar.core.rebase import rebased, steady_times
from sidecar.core.sanitize import clean
from sidecar.core.state import State

MOST_BYTES: Final = 192 << 10
"""Of the document."""
_SIZES: Final = (schema.MOST_JOBS, 4_000, 3_000, 2_000, 1_000, 200, 50, 0)
"""So many jobs are tried to fit, those of the failover in progress first, and so many alerts."""
KEPT: Final = 7 * 24 * 3600 * SECOND
"""One that is older is not taken over."""
CLOCK_SKEW: Final = 2 * 3600 * SECOND
"""By so much the clocks of two nodes may differ."""


_S = TypeVar("_S", bound=Struct)


class Handover(Struct, frozen=True):
    """What one sidecar knew of one cluster when it wrote it."""

    observer: str
    alive: Moment
    """When it was written: until then its writer is known to have watched."""
    ended: bool
    """Whether its writer ended in order after it."""
    cluster: ClusterState
    alerts: Alerts
    jobs_left_out: int = 0

    def gist(self) -> object:
        """What two sidecars that observe the same have in common, to be compared: without times, and without alerts about themselves."""
        components = {
            component: (state.last_known, _term(state.last_position), _part(state.absence), state.registered)
            for component, state in self.cluster.components.items()
        }
        alerts = {
            (fingerprint, key, member.notified, member.alert.ended is None)
            for fingerprint, group in self.alerts.groups.items()
            for key, member in group.members.items()
            if "observer" not in member.alert.labels
        }
        jobs = {(job.id, job.state) for job in self.cluster.picture.jobs} if self.cluster.picture else set()
        failovers = _progress(self.cluster.episode), _progress(self.cluster.last_episode)
        pods = {host: pod.name for host, pod in self.cluster.pods.items()}
        return components, failovers, alerts, pods, jobs, self._ends()

    def _ends(self) -> object:
        """What is known of the ends of JobManagers: as coarse as two sidecars see it alike."""
        cluster_ends = self.cluster.ends
        pods = {
            (uid, len(pod.ends), pod.deleted_at is None, pod.gone_at is None) for uid, pod in cluster_ends.pods.items()
        }
        signs = {(sign.uid, sign.sign) for sign in cluster_ends.signs}
        reasons = {event.reason for event in cluster_ends.operator}
        return pods, signs, reasons, {process.end.ended_at for process in cluster_ends.processes}

    @property
    def leaders(self) -> int:
        """How many leaders it knows."""
        return sum(1 for state in self.cluster.components.values() if state.last_known)


def of(policy: Policy, state: State, cluster_id: str, at: Moment, *, ended: bool = False) -> Handover:
    """What is to be handed over of one cluster now."""
    cluster = succession.hand_over(policy, cluster_id, state.clusters[cluster_id], at)
    undelivered = _with_undelivered(state.alerts.groups, state.outbox.values())
    groups = _with_members(undelivered, lambda member: member.alert.cluster_id == cluster_id)
    failovers = state.alerts.failovers.get(cluster_id)
    alerts = Alerts(groups=groups, failovers={cluster_id: failovers} if failovers else {})
    return Handover(policy.observer, at, ended, cluster, alerts)


def written(cluster_id: str, handover: Handover) -> bytes:
    """The document. As much of a storm as fits: MOST_BYTES."""
    jobs = sorted(
        (item for item in handover.cluster.components.items() if item[0].job_id),
        key=lambda item: not _has_part(item[1], handover.cluster.episode),
    )
    for most in _SIZES:
        content = document.packed(_document(cluster_id, handover, dict(jobs[:most]), most))
        if len(content) <= MOST_BYTES:
            return content
    raise HandoverError(f"{len(content)} bytes are more than the {MOST_BYTES >> 10} KiB that it may have")


def _document(
    cluster_id: str, handover: Handover, jobs: Mapping[ComponentId, ComponentState], most: int
) -> schema.Document:
    """The document with these `jobs` alone, and with at most so many alerts. What its schema does not allow is left out."""
    cluster, alerts = handover.cluster, handover.alerts
    own = {component: state for component, state in cluster.components.items() if not component.job_id}
    components = [*document.components({**own, **jobs}.items())]
    faults = dict([*cluster.job_faults.items()][: schema.MOST_PICTURED])
    counted = alerts.failovers.get(cluster_id, Failovers()).known
    failovers = (bounded(schema.CountedFailover, failover) for failover in counted)
    return schema.Document(
        schema.FORMAT,
        handover.observer,
        handover.alive,
        handover.ended,
        len(cluster.components) - len(components),
        components,
        bounded(schema.Episode, cluster.episode),
        bounded(schema.Episode, cluster.last_episode),
        bounded(schema.Standby, cluster.standby),
        bounded_values(schema.LeaderElectionRecord, {name: lease.record for name, lease in cluster.leases.items()}),
        bounded_values(schema.Pod, cluster.pods),
        bounded(schema.Operated, cluster.operated),
        bounded_values(schema.Disruption, cluster.disruptions),
        _ends(cluster.ends),
        bounded(schema.Picture, _pictured(cluster.picture, most)),
        bounded(schema.Assessed, cluster.assessed),
        bounded_values(schema.JobFault, faults),
        bounded(schema.RestServer, cluster.rest_server),
        bounded(schema.Account, cluster.account),
        _groups(alerts.groups, max(min(most, schema.MOST_ALERTS), 1)),
        tuple(failover for failover in failovers if failover),
        bounded(schema.Drilled, cluster.drilled),
    )


def _ends(cluster_ends: Ends) -> schema.Ends | None:
    """What is known of the ends of JobManagers, without what its schema does not allow."""
    if cluster_ends == NOTHING:
        return None

    def within(kind: type[_S], values: Iterable[object]) -> tuple[_S, ...]:
        return tuple(item for value in values if (item := bounded(kind, value)))

    return schema.Ends(
        bounded_values(schema.KnownPod, cluster_ends.pods),
        within(schema.PodSign, cluster_ends.signs),
        within(schema.OperatorEvent, cluster_ends.operator),
        within(schema.KnownProcessEnd, cluster_ends.processes),
        within(schema.LogRead, cluster_ends.logs),
        within(schema.Rebooted, cluster_ends.reboots),
    )


def _pictured(picture: Picture | None, most: int) -> Picture | None:
    """The picture with its largest jobs that have not ended, and names that can be shown. What its schema does not allow is counted."""
    if picture is None:
        return None
    most = min(most, schema.MOST_PICTURED)
    largest = sorted(picture.jobs, key=lambda job: (job.state in ENDED, -job.total_tasks))
    with_clean_names = (replace(job, name=clean(job.name)) for job in largest[:most])
    jobs = tuple(job for job in with_clean_names if bounded(schema.Job, job))
    registered = picture.task_managers or ()
    managers = tuple(manager for manager in registered[:most] if bounded(schema.TaskManager, manager))
    return replace(
        picture,
        jobs=jobs,
        jobs_beyond=picture.jobs_beyond + len(picture.jobs) - len(jobs),
        task_managers=None if picture.task_managers is None else managers,
        task_managers_beyond=picture.task_managers_beyond + len(registered) - len(managers),
    )


def _groups(groups: Mapping[str, Group], most: int) -> dict[str, schema.Group]:
    """The groups with at most so many alerts in all."""
    kept = {}
    for fingerprint, group in [*groups.items()][: schema.MOST_ALERTS]:
        bounded_members = ((key, bounded(schema.Member, member)) for key, member in [*group.members.items()][:most])
        members = {key: member for key, member in bounded_members if member}
        most -= len(members)
        alone = bounded(schema.Group, replace(group, members={}))
        if alone and (members or not group.members):
            kept[fingerprint] = replace(alone, members=members)
    return kept


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
    handover = document.unpacked(content, cluster_id)
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
    pods = {host: unbounded(Pod, pod, named_at=min(pod.named_at, alive.wall)) for host, pod in content.pods.items()}
    lapsed = {name: unbounded(LeaderElectionRecord, record) for name, record in content.lapsed.items()}
    disruptions = {uid: unbounded(Disruption, disruption) for uid, disruption in content.disruptions.items()}
    picture = unbounded(Picture, content.picture, at=min(content.picture.at, alive.wall)) if content.picture else None
    return replace(
        fresh_cluster(alive),
        components=components,
        contested=frozenset(component for component, state in components.items() if state.contest.since),
        leases={name: Lease(record=record, lapsed=True) for name, record in lapsed.items()},
        episode=_episode(content.episode, components),
        last_episode=_episode(content.last_episode, components),
        standby=unbounded(Standby, content.standby) if content.standby else Standby(),
        pods=merged({}, pods),
        operated=unbounded(Operated, content.operated, unread_since=alive) if content.operated else None,
        disruptions=plans.latest(disruptions),
        ends=unbounded(Ends, content.ends) if content.ends else NOTHING,
        picture=picture,
        picture_kept=picture,
        assessed=unbounded(Assessed, content.assessed, rows=()) if content.assessed else None,
        job_faults={job_id: unbounded(JobFault, fault) for job_id, fault in content.job_faults.items()},
        rest_server=unbounded(RestServer, content.rest_server) if content.rest_server else None,
        drilled=_drills(content),
        account=_account(content.account) if content.account else None,
    )


def _components(content: schema.Document) -> dict[ComponentId, ComponentState]:
    components = dict(fresh_cluster(content.alive).components)
    for key, value in content.components:
        if (key.component is Component.JOB) == (key.job_id is not None):
            state = unbounded(ComponentState, value, leadership=Unknown(), since=content.alive)
            if state.contest.since and not state.contest.returns:
                state = replace(state, contest=replace(state.contest, returns=(state.contest.since.steady,)))
            components[ComponentId(key.component, key.job_id)] = state
    return components


def _drills(content: schema.Document) -> Drilled:
    """What is known of drills: nothing that is later than the document, which would put off a drill that is overdue."""
    if content.drilled is None or max(content.drilled.since, content.drilled.passed_at) > content.alive.wall:
        return Drilled(since=content.alive.wall)
    return unbounded(Drilled, content.drilled)


def _account(written: schema.Account) -> Account | None:
    """The account, if it adds up."""
    account = unbounded(Account, written)
    return account if leadership_account.is_consistent(account) else None


def _episode(episode: schema.Episode | None, components: Mapping[ComponentId, ComponentState]) -> Episode | None:
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
    failovers = tuple(unbounded(CountedFailover, failover) for failover in content.failovers)
    return Alerts(
        groups=_with_members(groups, lambda member: member.alert.cluster_id == cluster_id),
        failovers={cluster_id: Failovers(failovers)} if failovers else {},
    )


def is_watched(cluster: ClusterState | None) -> bool:
    """Whether a cluster has been watched: what a handover says of it is out of date then. A sidecar that was killed before it had read the
    handover leaves a journal with a cluster that was not.
    """
    return cluster is not None and (cluster.ever_led or cluster.view.connection is not None)


def adopt(
    policy: Policy, state: State, cluster_id: str, handover: Handover, now: Moment
) -> tuple[State, Mapping[str, Group]]:
    """The state that goes on from the handover, and the groups that it was left. If this sidecar watches the cluster already, it only
    learns how the failover in progress began.
    """
    current = state.clusters.get(cluster_id)
    if not policy.watches(cluster_id):
        return state, {}
    # The other process's steady clock began elsewhere: between the two, the wall clock says how much time passed.
    by = now.steady - handover.alive.steady - max(0, now.wall - handover.alive.wall)
    if current and is_watched(current):
        theirs = _with_sources(policy, cluster_id, rebased(handover.cluster, by))
        cluster = succession.informed(current, theirs.episode, handover.observer)
        pods, of_ends = merged(current.pods, handover.cluster.pods), ends.merged(current.ends, theirs.ends)
        if pods is not current.pods or of_ends is not current.ends:
            cluster = replace(cluster, pods=pods, ends=of_ends)
        return state if cluster is current else replace(state, clusters={**state.clusters, cluster_id: cluster}), {}
    cluster = _with_sources(policy, cluster_id, rebased(handover.cluster, by))
    cluster = succession.take_over(cluster, handover.observer, now)
    own = handover.observer == policy.observer
    if not own and not handover.ended:  # it answers another sidecar, in another place, which may still run
        cluster = replace(cluster, rest_server=None)
    if current:  # what was observed before the handover was read
        cluster = replace(
            cluster, pods=merged(cluster.pods, current.pods), ends=ends.merged(current.ends, cluster.ends)
        )
    if current and (operated := current.operated):  # read before the handover was
        cluster = replace(cluster, operated=plans.observed(cluster.operated, operated.deployment, now))
    if cluster.picture:
        room = MOST_HELD - rest_server.held(state.clusters.values())
        picture = cluster.picture.within(max(0, room))
        cluster = replace(cluster, picture=picture, picture_kept=picture)
    handed_over = _without_plans(policy, cluster_id, handover.alerts.groups)
    groups = _with_members(handed_over, lambda member: _is_adopted(policy, member, own=own))
    adopted = rerouting.rerouted(rebased(replace(handover.alerts, groups=groups), by), policy, now)
    alerts = replace(
        state.alerts,
        groups=_merged(state.alerts.groups, adopted.groups),
        failovers={**adopted.failovers, **state.alerts.failovers},
    )
    return replace(state, clusters={**state.clusters, cluster_id: cluster}, alerts=alerts), groups


def _term(position: Position | None) -> object:
    if isinstance(position, ConfigMapPosition):
        return position.path, position.uid, position.holder_identity, position.acquire_time
    return position


def _part(absence: Absence | None) -> object:
    return absence and (absence.episode_id, episodes.is_away(absence), absence.leaders)


def _progress(episode: Episode | None) -> object:
    """How far an episode is, and whether it is known how it began."""
    return episode and (episode.id, episode.away, episode.jobs_away, episode.facts.unseen, episode.facts.orderly)


def _has_part(state: ComponentState, episode: Episode | None) -> bool:
    return episode is not None and episodes.has_part(state.absence, episode)


def _with_undelivered(groups: Mapping[str, Group], deliveries: Iterable[Delivery]) -> dict[str, Group]:
    """`groups` as if nothing in the outbox had been notified. Destinations that did get it are known by the ledger.

    An incident that has not been opened yet is not closed: what opens it comes last. One that its group has no more is closed for itself.
    """
    by_key = dict(groups)
    for delivery in sorted(deliveries, key=lambda delivery: not delivery.is_closing):
        if delivery.owed:
            closes = delivery.is_closing or delivery.reason is Reason.CONFIGURATION_CHANGED
            group = by_key.get(delivery.fingerprint)
            is_another = closes and group is not None and group.incident not in {"", delivery.incident}
            key = delivery.incident if is_another else delivery.fingerprint
            group = by_key.get(key) or Group("", delivery.group_labels, incident=delivery.incident)
            if closes:
                opened_at = tuple(dict.fromkeys((*group.opened_at, delivery.destination)))
                group = replace(group, incident=delivery.incident, opened_at=opened_at)
            members = {}
            for owed in delivery.owed:
                member = group.members.get(owed.alert.id, owed)  # it may have ended meanwhile
                members[owed.alert.id] = replace(member, notified=owed.notified, closes=owed.closes)
            due = delivery.next_at if delivery.is_closing else delivery.queued_at.steady
            by_key[key] = replace(
                group,
                members={**group.members, **members},
                flush_at=due if group.flush_at is None else min(due, group.flush_at),
                notified_at=_notified_at(group, delivery),
            )
    return by_key


def _notified_at(group: Group, delivery: Delivery) -> int | None:
    """When the group was notified, so that the next sidecar gives `delivery` the same reason."""
    if delivery.is_closing:
        return group.notified_at
    return None if delivery.reason is Reason.FIRST else group.notified_at or delivery.queued_at.steady


def _with_members(groups: Mapping[str, Group], wanted: Callable[[Member], bool]) -> dict[str, Group]:
    """The groups with these alerts alone. One that has none left is dropped; one that had none stays: it says when it was notified."""
    by_fingerprint = {}
    for fingerprint, group in groups.items():
        members = {key: member for key, member in group.members.items() if wanted(member)}
        if members or not group.members:
            by_fingerprint[fingerprint] = replace(group, members=members)
    return by_fingerprint


def _is_adopted(policy: Policy, member: Member, *, own: bool) -> bool:
    """Whether the alert is not about another observer, and one that its rule may fire."""
    alert = member.alert
    kinds = {rule.on in EVENTS for rule in policy.rules if rule.alert == alert.rule}
    return (own or "observer" not in alert.labels) and alert.is_event in (kinds or {alert.is_event})


def _with_sources(policy: Policy, cluster_id: str, cluster: ClusterState) -> ClusterState:
    """The cluster without plans whose source this sidecar does not have. Those that it has expire, unless it observes them itself."""
    deployments, drains = cluster_id in policy.deployments, cluster_id in policy.drains
    if Source.FLINK_REST not in policy.evidence:
        cluster = assessment.without_rest(cluster)
    of_ends = ends.restarted(cluster.ends)
    if cluster_id not in policy.deaths:
        logs = tuple(log for log in of_ends.logs if not log.pod_uid)
        of_ends = replace(of_ends, pods={}, signs=(), operator=(), logs=logs)

    def without_foreign_facts(episode: Episode | None) -> Episode | None:
        if episode is None:
            return None
        facts = replace(
            episode.facts, store=policy.store_of(cluster_id), operated=episode.facts.operated and deployments
        )
        if facts.intent and not (drains if facts.intent.plan is Plan.DRAIN else deployments):
            facts = replace(facts, intent=None)
        if cluster_id not in policy.deaths:
            facts = replace(facts, restart=None)
        return replace(episode, facts=facts)

    return replace(
        cluster,
        episode=without_foreign_facts(cluster.episode),
        last_episode=without_foreign_facts(cluster.last_episode),
        operated=cluster.operated if deployments else None,
        disruptions=cluster.disruptions if drains else {},
        ends=of_ends,
    )


def _without_plans(policy: Policy, cluster_id: str, groups: Mapping[str, Group]) -> Mapping[str, Group]:
    """The groups, with no alert that is labelled as planned where this sidecar could not know it."""
    if cluster_id in policy.deployments | policy.drains:
        return groups

    def own(alert: Alert) -> Alert:
        return replace(alert, labels={name: text for name, text in alert.labels.items() if name != PLANNED})

    return {
        fingerprint: replace(
            group, members={key: replace(member, alert=own(member.alert)) for key, member in group.members.items()}
        )
        for fingerprint, group in groups.items()
    }


def _merged(groups: Mapping[str, Group], others: Mapping[str, Group]) -> dict[str, Group]:
    """A group may hold alerts of several clusters, each of which is handed over by itself."""
    merged = {**groups, **others}
    for fingerprint in groups.keys() & others.keys():
        group = others[fingerprint]
        merged[fingerprint] = replace(group, members={**group.members, **groups[fingerprint].members})
    return merged
