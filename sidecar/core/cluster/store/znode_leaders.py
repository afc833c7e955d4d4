"""Applies observed znodes to one cluster: leader nodes, latches, job stores."""

from msgspec.structs import replace

from sidecar.core.cluster.downtime import LastLed
from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.failover import episodes
from sidecar.core.cluster.leadership_changes import Seen, apply, without_leader
from sidecar.core.cluster.leadership_table import Sight, compare
from sidecar.core.cluster.state import ComponentState, Fewer, contending
from sidecar.core.cluster.store import unobserved
from sidecar.core.cluster.store.job_stores import jobs_listed
from sidecar.core.flink import znode_paths
from sidecar.core.flink.connection_info import Unreadable, decode_connection_info
from sidecar.core.flink.leadership import Blindness, Held, LeaderInformation, Unknown, Vacant, ZNodePosition
from sidecar.core.observations import ChildrenObserved, NodeObserved, NodeRefused, NotProcessed, PlaceRemoved
from sidecar.core.records import record_id


def observed(draft: Draft, observation: NodeObserved | PlaceRemoved | NodeRefused | ChildrenObserved) -> None:
    match observation:
        case NodeObserved():
            _node_observed(draft, observation)
        case PlaceRemoved():
            _place_removed(draft, observation)
        case NodeRefused():
            _node_refused(draft, observation)
        case ChildrenObserved():
            _children_observed(draft, observation)


def _node_observed(draft: Draft, node: NodeObserved) -> None:
    component = znode_paths.component_of(node.path)
    if component is None:
        return
    leader = decode_connection_info(node.data) if node.position and node.data else None
    known = draft.known(component)
    if known is None:
        if leader is None:
            return
        known = draft.newcomer()
    if not _speaks_for(known, node):
        return
    if node.position or not known.look or known.look.path == node.path:
        known = replace(known, look=unobserved.look(known.look, node), seen_at=draft.at.steady)
    match leader:
        case LeaderInformation():
            assert node.position  # noqa: S101  a leader is decoded from a node that exists
            position = replace(node.position, returned=_returned(known, leader, node.position))
            apply(draft, component, known, Seen(compare(known.leadership, leader), leader, position, node.path))
        case Unreadable(reason):
            apply(
                draft, component, known, Seen(Sight.NO_VIEW, position=node.position, path=node.path, obscured_by=reason)
            )
        case None if not isinstance(known.leadership, Unknown) or draft.state.view.complete:
            apply(draft, component, known, Seen(without_leader(known), position=node.position, path=node.path))
        case None:
            # One of several paths is empty: whether there is a leader is known when all have been read.
            draft.keep(component, replace(known, leadership=Unknown()))


def _place_removed(draft: Draft, removed: PlaceRemoved) -> None:
    """The leader removed its address itself, if there is no leader there now."""
    component = znode_paths.component_of(removed.path)
    known = draft.known(component) if component else None
    if component is None or known is None or not isinstance(known.leadership, Vacant):
        return
    absence = known.absence
    if absence is None or absence.withdrew:
        return
    led = known.last_led
    if led and led.latest is not None:
        led = LastLed(led.latest, led.latest)
    draft.keep(component, replace(known, absence=replace(absence, withdrew=True), last_led=led))
    episode = draft.state.episode
    if episode and component.job_id is None:
        facts = replace(episode.facts, orderly=True, withdrawn=episode.facts.withdrawn + 1)
        draft.update(episode=replace(episode, facts=facts))


def _node_refused(draft: Draft, node: NodeRefused) -> None:
    component = znode_paths.component_of(node.path)
    if component is None:
        return
    known = draft.known(component) or draft.newcomer()
    if not isinstance(known.leadership, Held) or known.leadership.position.path == node.path:
        apply(draft, component, known, Seen(Sight.NO_VIEW, path=node.path, obscured_by=node.reason))


def not_processed(draft: Draft, failed: NotProcessed) -> None:
    component = znode_paths.component_of(failed.path)
    known = draft.known(component) if component else None
    if component and known:
        apply(draft, component, known, Seen(Sight.NO_VIEW, path=failed.path, obscured_by=failed.reason))


def _children_observed(draft: Draft, seen: ChildrenObserved) -> None:
    if znode_paths.is_latch(seen.path):
        names = znode_paths.contenders(seen.names)
        before = draft.state.contenders.get(seen.path)
        if names != before:
            if before and len(names) < len(before):
                draft.update(fewer=Fewer(len(before), draft.at.steady))
            contenders = {**draft.state.contenders, seen.path: names}
            standby = draft.state.standby.with_contenders(contending(contenders) or 0, draft.at)
            draft.update(contenders=contenders, standby=standby)
            if names or before:
                draft.happened.append(draft.writer.contention(seen.path, names, before))
    elif seen.path in znode_paths.JOB_STORES:
        jobs_listed(draft, seen.path, znode_paths.job_ids(seen.names))


def _speaks_for(known: ComponentState, node: NodeObserved) -> bool:
    """Whether `node` says something of the leadership: in an upgrade, the old layout's place is empty while the new one's is held."""
    match known.leadership:
        case Held(position=ZNodePosition() as held):
            newer = node.position is not None and bool(node.data) and node.position.mzxid > held.mzxid
            return held.path == node.path or newer
        case Unknown(Blindness.UNREADABLE, path):
            return path == node.path or bool(node.data)
    return True


def _returned(known: ComponentState, leader: LeaderInformation, position: ZNodePosition) -> str | None:
    """Distinguishes this observation of a write from an earlier one, if the store went back in time and shows it again.

    It follows from the leader that was there in between, so every observer that saw that one derives the same.
    """
    last, place = known.last_known, known.last_position
    if last is None or not isinstance(place, ZNodePosition):
        return None
    same_write = leader == last and (position.czxid, position.mzxid) == (place.czxid, place.mzxid)
    if same_write and not episodes.is_away(known.absence):
        return place.returned
    known_session = leader.session_id in {last.session_id, *known.contest.earlier}
    went_back = position.mzxid < place.mzxid or place.returned is not None
    if same_write or (known_session and went_back):
        return record_id("returned", last.session_id, place.czxid, place.mzxid, place.mtime, place.returned)
    return None
