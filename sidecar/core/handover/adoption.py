"""Continues a state from a handover: facts that this sidecar could not observe itself are left out."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from sidecar.core.alerting import grouping
from sidecar.core.alerting.alerts import Alert, Group, Member
from sidecar.core.cluster.cluster_state import ClusterState, View
from sidecar.core.failover import assessment, plans, rest_server
from sidecar.core.failover.episodes import Episode
from sidecar.core.handover.contents import Handover, with_members
from sidecar.core.moment import Moment
from sidecar.core.pictures import MOST_HELD
from sidecar.core.pods import merged
from sidecar.core.policy.policy import Policy, Source
from sidecar.core.policy.routing import PLANNED
from sidecar.core.policy.triggers import EVENTS
from sidecar.core.rebase import rebased
from sidecar.core.state import State


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
    previous = _with_sources(policy, cluster_id, rebased(handover.cluster, by))
    if current and is_watched(current):
        cluster = _informed(current, previous, handover.observer)
        return state if cluster is current else replace(state, clusters={**state.clusters, cluster_id: cluster}), {}
    own = handover.observer == policy.observer
    cluster = _taken_over(previous, handover.observer, now)
    if not own and not handover.ended:  # it answers another sidecar, in another place, which may still run
        cluster = replace(cluster, rest_server=None)
    if current:
        cluster = _with_earlier(cluster, current, now)
    if cluster.picture:
        room = MOST_HELD - rest_server.held(state.clusters.values())
        picture = cluster.picture.bounded(max(0, room))
        cluster = replace(cluster, picture=picture, picture_kept=picture)
    handed_over = _without_plans(policy, cluster_id, handover.alerts.groups)
    groups = with_members(handed_over, lambda member: _is_adopted(policy, member, own=own))
    adopted = grouping.rerouted(rebased(replace(handover.alerts, groups=groups), by), policy, now)
    alerts = replace(
        state.alerts,
        groups=_merged(state.alerts.groups, adopted.groups),
        failovers={**adopted.failovers, **state.alerts.failovers},
    )
    return replace(state, clusters={**state.clusters, cluster_id: cluster}, alerts=alerts), groups


_DEPARTURE: Final = (
    *("orderly", "left", "withdrawn", "released", "not_renewed_for", "deleted"),
    *("unseen", "opened", "loss", "contended", "quiet_end"),
)
"""The facts about how a failover began."""


def _taken_over(cluster: ClusterState, observer: str, now: Moment) -> ClusterState:
    """The cluster as `observer` handed it over: nothing has been read yet."""
    episode = cluster.episode
    if episode:
        episode = replace(episode, facts=replace(episode.facts, handed_over_by=observer))
    return replace(cluster, view=View(since=now, turned_at=now), episode=episode, handed_over_by=observer)


def _informed(current: ClusterState, previous: ClusterState, observer: str) -> ClusterState:
    """The watched cluster with what only the other sidecar knows: pods, and how the failover in progress began, if that was not observed
    here. The same object if it is nothing."""
    cluster, ours, theirs = current, current.episode, previous.episode
    if ours and theirs and ours.id == theirs.id and ours.facts.unseen and not theirs.facts.unseen:
        how_it_began = {name: getattr(theirs.facts, name) for name in _DEPARTURE}
        facts = replace(ours.facts, **how_it_began, handed_over_by=observer)
        cluster = replace(cluster, episode=replace(ours, facts=facts))
    pods = merged(current.pods, previous.pods)
    return cluster if pods is current.pods else replace(cluster, pods=pods)


def _with_earlier(cluster: ClusterState, current: ClusterState, now: Moment) -> ClusterState:
    """The adopted cluster with what was observed before the handover was read."""
    pods = merged(cluster.pods, current.pods)
    operated, read = cluster.operated, current.operated
    if operated and read:
        operated = plans.observed(operated, read.deployment, now, read.kind, read.name, read.namespace)
    return replace(cluster, pods=pods, ends=current.ends, operated=operated or read)


def _is_adopted(policy: Policy, member: Member, *, own: bool) -> bool:
    """Whether the alert is not about another observer, and one that its rule may fire."""
    alert = member.alert
    kinds = {rule.on in EVENTS for rule in policy.rules if rule.alert == alert.rule}
    return (own or "observer" not in alert.labels) and alert.is_event in (kinds or {alert.is_event})


def _with_sources(policy: Policy, cluster_id: str, cluster: ClusterState) -> ClusterState:
    """The cluster without plans whose source this sidecar does not have. Those that it has expire, unless it observes them itself."""
    planned = cluster_id in policy.plans
    if Source.FLINK_REST not in policy.evidence:
        cluster = assessment.without_rest(cluster)

    def without_foreign_facts(episode: Episode | None) -> Episode | None:
        if episode is None:
            return None
        facts = replace(episode.facts, store=policy.store_of(cluster_id), operated=episode.facts.operated and planned)
        if facts.intent and not planned:
            facts = replace(facts, intent=None)
        return replace(episode, facts=facts)

    return replace(
        cluster,
        episode=without_foreign_facts(cluster.episode),
        last_episode=without_foreign_facts(cluster.last_episode),
        operated=cluster.operated if planned else None,
        disruptions=cluster.disruptions if planned else {},
    )


def _without_plans(policy: Policy, cluster_id: str, groups: Mapping[str, Group]) -> Mapping[str, Group]:
    """The groups, with no alert that is labelled as planned where this sidecar could not know it."""
    if cluster_id in policy.plans:
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
