"""Applies observed ConfigMaps to one cluster: their leases and addresses, and who leads by them."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import failover_machine
from sidecar.core.flink import configmaps
from sidecar.core.flink.connection_info import Unreadable
from sidecar.core.flink.leadership import (
    Blindness,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Unknown,
    Vacant,
)
from sidecar.core.leadership import leases, store_view, unobserved
from sidecar.core.leadership.leadership_changes import Reading, apply, without_leader
from sidecar.core.leadership.leases import Lease, LeaseClock, LeaseVerdict
from sidecar.core.leadership.store_view import jobs_listed
from sidecar.core.leadership.transitions import Sight, compare, kind_of
from sidecar.core.observations import ConfigMapObserved, NotProcessed


def config_map_observed(draft: Draft, config_map: ConfigMapObserved) -> None:
    name = config_map.name
    if not configmaps.is_leaders(draft.cluster_id, name):
        return
    before = draft.state.leases.get(name)
    listed = _other_jobs(draft, config_map)
    if config_map.uid is None:
        if before:
            failover_machine.ended_for_good(draft)
        draft.update(leases={other: lease for other, lease in draft.state.leases.items() if other != name})
    else:
        if draft.state.gone:
            draft.update(gone=None)
        lease = _lease_after(draft, before, config_map)
        draft.update(leases={**draft.state.leases, name: lease})
        if before and before.seen_at >= draft.state.view.connected_at and lease.stands_as(before) and listed is None:
            return  # a renewal, or a confirmation
    if listed is not None:
        jobs_listed(draft, name, listed)
    for component in _components_in(draft, name):
        _judge(draft, component, complete=draft.state.view.complete)


def _other_jobs(draft: Draft, config_map: ConfigMapObserved) -> frozenset[str] | None:
    """The jobs of a job store, if they are others than before. Without the ConfigMap they are not known: when it is created again, it shows
    which ones have ended.
    """
    if not config_map.uid or not configmaps.is_job_store(draft.cluster_id, config_map.name):
        return None
    job_ids = configmaps.job_ids(config_map.data)
    return None if job_ids == draft.state.jobs.get(config_map.name) else job_ids


def not_processed(draft: Draft, failed: NotProcessed) -> None:
    """All leaders in that ConfigMap become unknown; its next observation counts as the first."""
    components = tuple(_components_in(draft, failed.path))
    draft.update(leases={name: lease for name, lease in draft.state.leases.items() if name != failed.path})
    for component in components:
        if state := draft.state_of(component):
            apply(draft, component, state, Reading(Sight.NO_VIEW, path=failed.path, obscured_by=failed.reason))


def snapshot_completed(draft: Draft) -> None:
    """Everything that exists has been observed: a known ConfigMap that was not is gone."""
    cluster = draft.state
    current = {name: lease for name, lease in cluster.leases.items() if lease.seen_at >= cluster.view.connected_at}
    if len(current) < len(cluster.leases):
        draft.update(leases=current)
    for component in draft.before.components:
        _judge(draft, component, complete=True)


def _lease_after(draft: Draft, before: Lease | None, config_map: ConfigMapObserved) -> Lease:
    clock = LeaseClock(draft.at.steady, draft.state.view.connected_at)
    lease = leases.take(before, config_map, clock, lambda component: _last_held(draft.state_of(component)))
    if before and before.uid == lease.uid:
        return lease
    # First sight: an earlier process may have found that this lease counts elections.
    components = (draft.state_of(value.component) for value in lease.written.values())
    elections = (state.elections for state in components if state and state.elections)
    return replace(lease, counts=any(term.uid == lease.uid and term.sure for term in elections) or None)


def _last_held(state: ComponentState | None) -> Held | None:
    return Held(state.last_known, state.last_position) if state and state.last_known and state.last_position else None


def _components_in(draft: Draft, name: str) -> Iterable[ComponentId]:
    """The components whose leaders may be in the ConfigMap `name`."""
    if owner := configmaps.owner_of(draft.cluster_id, name):
        return (owner,)
    lease = draft.state.leases.get(name)
    written = (value.component for value in lease.written.values()) if lease else ()
    return {**draft.components(), **dict.fromkeys(written)}


def _judge(draft: Draft, component: ComponentId, *, complete: bool) -> None:
    """Determine who leads `component` and apply it. `complete`: everything has been read since the last reconnect."""
    state = draft.state_of(component)
    held = state.leadership.position if state and isinstance(state.leadership, Held) else None
    verdict = leases.judge(draft.cluster_id, draft.state.leases, component, held)
    if state is None:
        if verdict.leader is None:
            return
        state = draft.newcomer()
    hidden = draft.state.may_be_beyond(component)
    state = _state_after_read(draft, state, verdict)
    is_empty = verdict.leader is None and not hidden
    if is_empty and (_is_left_behind(draft.state, component, state) or _is_gone(draft, component, state)):
        state = replace(state, registered=False)
    if verdict.leader is None and isinstance(state.leadership, Unknown) and (not complete or hidden):
        # One of several places is empty: whether there is a leader is known when all have been read.
        _keep(draft, component, replace(state, leadership=Unknown()))
        return
    reading = _reading(state, verdict)
    if _is_quiet(state, reading):
        _keep(draft, component, state)
    else:
        apply(draft, component, state, reading)


def _is_left_behind(cluster: ClusterState, component: ComponentId, state: ComponentState) -> bool:
    """Whether a job had ended before we observed it: up to Flink 1.14 its ConfigMap stays. The job stores do not have it, and its lease has
    expired without having been renewed once."""
    place = state.last_position
    if not component.job_id or state.registered or not isinstance(place, ConfigMapPosition):
        return False
    stored = any(component.job_id in job_ids for job_ids in cluster.jobs.values())
    lease = cluster.leases.get(place.name)
    return bool(cluster.jobs) and not stored and lease is not None and lease.lapsed and lease.renewed_at is None


def _is_gone(draft: Draft, component: ComponentId, state: ComponentState) -> bool:
    """Whether a job ended without having been observed in a job store. That is known at once where the store is read together with the
    leaders: in a snapshot, or since Flink 1.15 in one ConfigMap.
    """
    together = not draft.state.view.complete or configmaps.cluster_config_map(draft.cluster_id) in draft.state.jobs
    is_unregistered = store_view.is_unregistered(draft.state, component, state)
    return together and is_unregistered and not store_view.has_place(draft, component)


def _state_after_read(draft: Draft, state: ComponentState, verdict: LeaseVerdict) -> ComponentState:
    """`state` after this read: the same object if nothing is new, so that a renewal writes nothing to the journal."""
    if state.seen_at < draft.state.view.connected_at:
        state = replace(state, seen_at=draft.at.steady)
    if verdict.position:
        lease = draft.state.leases[verdict.position.name]
        elections = unobserved.elections_after(state.elections, lease.uid, lease.elections, sure=bool(lease.counts))
        if elections != state.elections:
            state = replace(state, elections=elections)
    return state


def _keep(draft: Draft, component: ComponentId, state: ComponentState) -> None:
    if state != draft.state_of(component):
        draft.keep(component, state)


def _reading(state: ComponentState, verdict: LeaseVerdict) -> Reading:
    match verdict.leader:
        case LeaderInformation() as leader:
            assert verdict.position  # noqa: S101  a leader stands somewhere
            position = replace(verdict.position, returned=_returned(state, leader, verdict.position))
            return Reading(compare(state.leadership, leader), leader, position, verdict.path)
        case Unreadable(reason):
            return Reading(Sight.NO_VIEW, position=verdict.position, path=verdict.path, obscured_by=reason)
        case None:
            return Reading(without_leader(state), position=verdict.position, path=verdict.path, vacancy=verdict.vacancy)


def _returned(state: ComponentState, leader: LeaderInformation, position: ConfigMapPosition) -> str | None:
    """Distinguishes this term of `leader` from an earlier one in the same session, so that they are two events."""
    if leader.session_id in state.contest.earlier:
        return position.resource_version
    if leader != state.last_known or not isinstance(state.last_position, ConfigMapPosition):
        return None
    # After blindness only its absence remembers that it had left.
    was_away = isinstance(state.leadership, Vacant) or state.is_away
    return position.resource_version if was_away else state.last_position.returned


def _is_quiet(state: ComponentState, reading: Reading) -> bool:
    """Whether nothing changes at all, not even where the leader stands."""
    if kind_of(state.leadership, reading.sight) is not None:
        return False
    match state.leadership:
        case Held(position=position):
            return isinstance(reading.position, ConfigMapPosition) and reading.position.is_in(position)
        case Unknown(reason, path):
            return (reason, path) == (Blindness.UNREADABLE, reading.path)
        case Vacant():
            return True
