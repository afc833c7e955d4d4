"""Applies observed znodes (leader nodes, latches, job stores) and ConfigMaps (leases and addresses) to one cluster: who leads by them."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ClusterState, ComponentState, Fewer, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import failover_machine
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import (
    Blindness,
    ComponentId,
    ConfigMapPosition,
    Held,
    LeaderInformation,
    Unknown,
    Unreadable,
    Vacant,
    ZNodePosition,
    decode_connection_info,
)
from sidecar.core.leadership import leases, store_view, unobserved
from sidecar.core.leadership.leadership_changes import Reading, apply, sight_of_nobody
from sidecar.core.leadership.leases import Lease, LeaseClock, LeaseVerdict
from sidecar.core.leadership.transitions import Sight, compare, kind_of
from sidecar.core.observations import (
    ChildrenObserved,
    ConfigMapObserved,
    NodeObserved,
    NodeRefused,
    NotProcessed,
    PlaceRemoved,
)
from sidecar.core.policy.policy import Store
from sidecar.core.records import record_id


def not_processed(draft: Draft, failed: NotProcessed) -> None:
    """The leader at that path becomes unknown, or all in that ConfigMap, whose next observation counts as the first."""
    if draft.policy.store_of(draft.cluster_id) is Store.KUBERNETES:
        components = tuple(_components_in(draft, failed.path))
        draft.update(leases={name: lease for name, lease in draft.state.leases.items() if name != failed.path})
    else:
        component = znode_paths.component_of(failed.path)
        components = (component,) if component else ()
    for component in components:
        if state := draft.state_of(component):
            apply(draft, component, state, Reading(Sight.NO_VIEW, path=failed.path, obscured_by=failed.reason))


def node_observed(draft: Draft, node: NodeObserved) -> None:
    component = znode_paths.component_of(node.path)
    if component is None:
        return
    leader = decode_connection_info(node.data) if node.position and node.data else None
    state = draft.state_of(component)
    if state is None:
        if leader is None:
            return
        state = draft.newcomer()
    if not _speaks_for(state, node):
        return
    if node.position or not state.look or state.look.path == node.path:
        state = replace(state, look=unobserved.look(state.look, node), seen_at=draft.at.steady)
    match leader:
        case LeaderInformation():
            assert node.position  # noqa: S101  a leader is decoded from a node that exists
            position = replace(node.position, returned=_returned(state, leader, node.position))
            apply(draft, component, state, Reading(compare(state.leadership, leader), leader, position, node.path))
        case Unreadable(reason):
            apply(
                draft,
                component,
                state,
                Reading(Sight.NO_VIEW, position=node.position, path=node.path, obscured_by=reason),
            )
        case None if not isinstance(state.leadership, Unknown) or draft.state.view.complete:
            apply(draft, component, state, Reading(sight_of_nobody(state), position=node.position, path=node.path))
        case None:
            # One of several paths is empty: whether there is a leader is known when all have been read.
            draft.keep(component, replace(state, leadership=Unknown()))


def place_removed(draft: Draft, removed: PlaceRemoved) -> None:
    """The leader removed its address itself, if there is no leader there now."""
    component = znode_paths.component_of(removed.path)
    state = draft.state_of(component) if component else None
    if component and state and isinstance(state.leadership, Vacant):
        after = failover_machine.withdrew(draft, component, state)
        if after is not state:
            draft.keep(component, after)


def node_refused(draft: Draft, node: NodeRefused) -> None:
    if node.path in znode_paths.JOB_STORES:
        jobs = {path: job_ids for path, job_ids in draft.state.jobs.items() if path != node.path}
        draft.update(jobs=jobs)  # those in this store are not known any more
    component = znode_paths.component_of(node.path)
    if component is None:
        return
    state = draft.state_of(component) or draft.newcomer()
    if not isinstance(state.leadership, Held) or state.leadership.position.path == node.path:
        apply(draft, component, state, Reading(Sight.NO_VIEW, path=node.path, obscured_by=node.reason))


def children_observed(draft: Draft, children: ChildrenObserved) -> None:
    if znode_paths.is_latch(children.path):
        names = znode_paths.contenders(children.names)
        before = draft.state.contenders.get(children.path)
        if names != before:
            if before and len(names) < len(before):
                draft.update(fewer=Fewer(len(before), draft.at.steady))
            contenders = {**draft.state.contenders, children.path: names}
            standby = draft.state.standby.with_contenders(contending(contenders) or 0, draft.at)
            draft.update(contenders=contenders, standby=standby)
            if names or before:
                draft.happened.append(draft.writer.contention(children.path, names, before))
    elif children.path in znode_paths.JOB_STORES:
        store_view.jobs_listed(draft, children.path, znode_paths.job_ids(children.names))


def _speaks_for(state: ComponentState, node: NodeObserved) -> bool:
    """Whether `node` says something of the leadership: in an upgrade, the old layout's place is empty while the new one's is held."""
    match state.leadership:
        case Held(position=ZNodePosition() as held):
            newer = node.position is not None and bool(node.data) and node.position.mzxid > held.mzxid
            return held.path == node.path or newer
        case Unknown(Blindness.UNREADABLE, path):
            return path == node.path or bool(node.data)
    return True


def _returned(state: ComponentState, leader: LeaderInformation, position: ZNodePosition) -> str | None:
    """Distinguishes this observation of a write from an earlier one, if the store went back in time and shows it again.

    It follows from the leader that was there in between, so every observer that saw that one derives the same.
    """
    last, place = state.last_known, state.last_position
    if last is None or not isinstance(place, ZNodePosition):
        return None
    same_write = leader == last and (position.czxid, position.mzxid) == (place.czxid, place.mzxid)
    if same_write and not state.is_away:
        return place.returned
    known_session = leader.session_id in {last.session_id, *state.contest.earlier}
    went_back = position.mzxid < place.mzxid or place.returned is not None
    if same_write or (known_session and went_back):
        return record_id("returned", last.session_id, place.czxid, place.mzxid, place.mtime, place.returned)
    return None


# -- ConfigMaps --------------------------------------------------------------------------------------------------------


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
        store_view.jobs_listed(draft, name, listed)
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


def config_maps_read(draft: Draft) -> None:
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
            position = replace(verdict.position, returned=_returned_to_lease(state, leader, verdict.position))
            return Reading(compare(state.leadership, leader), leader, position, verdict.path)
        case Unreadable(reason):
            return Reading(Sight.NO_VIEW, position=verdict.position, path=verdict.path, obscured_by=reason)
        case None:
            return Reading(
                sight_of_nobody(state), position=verdict.position, path=verdict.path, vacancy=verdict.vacancy
            )


def _returned_to_lease(state: ComponentState, leader: LeaderInformation, position: ConfigMapPosition) -> str | None:
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
