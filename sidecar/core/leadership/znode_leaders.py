"""Applies observed znodes to one cluster: leader nodes, latches, job stores."""

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import ComponentState, Fewer, contending
from sidecar.core.cluster.draft import Draft
from sidecar.core.failover import failover_machine
from sidecar.core.flink import znode_paths
from sidecar.core.flink.connection_info import Unreadable, decode_connection_info
from sidecar.core.flink.leadership import Blindness, Held, LeaderInformation, Unknown, Vacant, ZNodePosition
from sidecar.core.leadership import unobserved
from sidecar.core.leadership.leadership_changes import Reading, apply, without_leader
from sidecar.core.leadership.store_view import jobs_listed, store_unreadable
from sidecar.core.leadership.transitions import Sight, compare
from sidecar.core.observations import ChildrenObserved, NodeObserved, NodeRefused, NotProcessed, PlaceRemoved
from sidecar.core.records import record_id


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
            apply(draft, component, state, Reading(without_leader(state), position=node.position, path=node.path))
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
        store_unreadable(draft, node.path)
    component = znode_paths.component_of(node.path)
    if component is None:
        return
    state = draft.state_of(component) or draft.newcomer()
    if not isinstance(state.leadership, Held) or state.leadership.position.path == node.path:
        apply(draft, component, state, Reading(Sight.NO_VIEW, path=node.path, obscured_by=node.reason))


def not_processed(draft: Draft, failed: NotProcessed) -> None:
    component = znode_paths.component_of(failed.path)
    state = draft.state_of(component) if component else None
    if component and state:
        apply(draft, component, state, Reading(Sight.NO_VIEW, path=failed.path, obscured_by=failed.reason))


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
        jobs_listed(draft, children.path, znode_paths.job_ids(children.names))


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
