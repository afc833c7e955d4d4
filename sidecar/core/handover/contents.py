"""The contents of a cluster's handover, and when two handovers are equal."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from sidecar.core.alerting.alerts import Alerts, Group, Member, Reason
from sidecar.core.alerting.outbox import Delivery
from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, fresh_cluster, last_known_state
from sidecar.core.failover import assessment, episodes, plans
from sidecar.core.failover.episodes import Absence, Episode
from sidecar.core.flink.leadership import ConfigMapPosition, Held, Position, Vacant
from sidecar.core.leadership import unobserved
from sidecar.core.leadership.leadership_account import Standing, changed, opened
from sidecar.core.leadership.unobserved import Downtime, Gone, LastLed
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy
from sidecar.core.state import State


class Handover(Struct, frozen=True):
    """The state of one cluster as one sidecar knew it when it wrote the handover."""

    observer: str
    alive: Moment
    """When the handover was written: until then its writer is known to have watched."""
    ended: bool
    """Whether its writer ended in order after it."""
    cluster: ClusterState
    alerts: Alerts
    jobs_left_out: int = 0

    def gist(self) -> object:
        """The comparable part, equal for two sidecars that observe the same: without times, and without alerts about themselves."""
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
        return components, failovers, alerts, pods, jobs

    @property
    def leaders(self) -> int:
        return sum(1 for state in self.cluster.components.values() if state.last_known)


def cluster_handover(policy: Policy, state: State, cluster_id: str, at: Moment, *, ended: bool = False) -> Handover:
    cluster = _handed_over(policy, cluster_id, state.clusters[cluster_id], at)
    undelivered = _with_undelivered(state.alerts.groups, state.outbox.values())
    groups = with_members(undelivered, lambda member: member.alert.cluster_id == cluster_id)
    failovers = state.alerts.failovers.get(cluster_id)
    alerts = Alerts(groups=groups, failovers={cluster_id: failovers} if failovers else {})
    return Handover(policy.observer, at, ended, cluster, alerts)


def _handed_over(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterState:
    """The state that the next sidecar needs: the last leaders, until when at the earliest they led, and the failover in progress. The view
    is left out: each sidecar has its own.
    """
    last = cluster.last_episode
    if last and last.death:  # it is recorded
        last = replace(last, closed_at=None)
    return replace(
        fresh_cluster(now),
        components={
            component: _component_handed_over(policy, cluster_id, cluster, state, now)
            for component, state in cluster.components.items()
        },
        leases={name: lease for name, lease in cluster.leases.items() if lease.lapsed},
        episode=cluster.episode,
        last_episode=last,
        standby=cluster.standby,
        contested=cluster.contested,
        pods=cluster.pods,
        operated=plans.unread(cluster.operated, now),
        disruptions=cluster.disruptions,
        picture=assessment.expected(cluster),
        assessed=assessment.handed_over(cluster, now),
        job_faults=cluster.job_faults,
        rest_server=cluster.rest_server,
        drilled=cluster.drilled,
        account=changed(cluster.account or opened(now.steady), Standing.UNOBSERVED, now.steady, now.steady),
    )


def _component_handed_over(
    policy: Policy, cluster_id: str, cluster: ClusterState, state: ComponentState, now: Moment
) -> ComponentState:
    last_led, absence = state.last_led, state.absence
    match state.leadership:
        case Held(_, position):
            gone = Gone(position, now.steady, state.published_at, None, in_sight=cluster.is_in_sight)
            timeout = policy.session_timeouts.get(cluster_id)
            last_led = LastLed(unobserved.last_led(gone, timeout, cluster.view.loss, cluster.leases).earliest, None)
        case Vacant() if absence and last_led and last_led.latest is not None:
            # What was observed of the vacancy counts; another leader may follow before the next sidecar looks.
            observed = Downtime(now.steady - last_led.latest, 0)
            absence = replace(absence, downtime=absence.downtime + observed)
            last_led = LastLed(last_led.earliest, None)
    return replace(last_known_state(state, now), last_led=last_led, absence=absence, seen_at=0)


def with_members(groups: Mapping[str, Group], wanted: Callable[[Member], bool]) -> dict[str, Group]:
    """The groups with these alerts alone. One that has none left is dropped; one that had none stays: it says when it was notified."""
    by_fingerprint = {}
    for fingerprint, group in groups.items():
        members = {key: member for key, member in group.members.items() if wanted(member)}
        if members or not group.members:
            by_fingerprint[fingerprint] = replace(group, members=members)
    return by_fingerprint


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


def _term(position: Position | None) -> object:
    if isinstance(position, ConfigMapPosition):
        return position.path, position.uid, position.holder_identity, position.acquire_time
    return position


def _part(absence: Absence | None) -> object:
    return absence and (absence.episode_id, episodes.is_away(absence), absence.leaders)


def _progress(episode: Episode | None) -> object:
    """The progress of an episode, and whether its beginning is known."""
    return episode and (episode.id, episode.away, episode.jobs_away, episode.facts.unseen, episode.facts.orderly)
