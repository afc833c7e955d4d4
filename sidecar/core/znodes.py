"""What stands in ZooKeeper, applied to one cluster: values of leaders' znodes, contenders, the jobs in a store."""

from msgspec.structs import replace

from sidecar.core import accounting, episodes, layout
from sidecar.core.change import Change, without_leader
from sidecar.core.downtime import LastLed
from sidecar.core.leadership import Blindness, Held, LeaderInformation, Unknown, Vacant, ZNodePosition
from sidecar.core.observations import ChildrenObserved, NodeObserved, NodeRefused, NotProcessed, PlaceRemoved
from sidecar.core.recording import Seen
from sidecar.core.records import record_id
from sidecar.core.state import ComponentState, Fewer, contending
from sidecar.core.transitions import Sight, compare
from sidecar.core.wire import Unreadable, decode_connection_info


def observed(change: Change, told: NodeObserved | PlaceRemoved | NodeRefused | ChildrenObserved) -> None:
    match told:
        case NodeObserved():
            _node_observed(change, told)
        case PlaceRemoved():
            _place_removed(change, told)
        case NodeRefused():
            _node_refused(change, told)
        case ChildrenObserved():
            _children_observed(change, told)


def _node_observed(change: Change, node: NodeObserved) -> None:
    component = layout.component_of(node.path)
    if component is None:
        return
    leader = decode_connection_info(node.data) if node.position and node.data else None
    known = change.known(component)
    if known is None:
        if leader is None:
            return
        known = change.newcomer()
    if not _speaks_for(known, node):
        return
    if node.position or not known.look or known.look.path == node.path:
        known = replace(known, look=accounting.look(known.look, node), seen_at=change.at.steady)
    match leader:
        case LeaderInformation():
            assert node.position  # noqa: S101  a leader is decoded from a node that exists
            position = replace(node.position, returned=_returned(known, leader, node.position))
            change.apply(component, known, Seen(compare(known.leadership, leader), leader, position, node.path))
        case Unreadable(reason):
            change.apply(component, known, Seen(Sight.NO_VIEW, position=node.position, path=node.path, reason=reason))
        case None if not isinstance(known.leadership, Unknown) or change.view.complete:
            change.apply(component, known, Seen(without_leader(known), position=node.position, path=node.path))
        case None:
            # One of several places is empty; whether nobody leads is known when all have been looked at.
            change.components[component] = replace(known, leadership=Unknown())


def _place_removed(change: Change, removed: PlaceRemoved) -> None:
    """The leader took its address away itself, if nobody leads there by now."""
    component = layout.component_of(removed.path)
    known = change.known(component) if component else None
    if component is None or known is None or not isinstance(known.leadership, Vacant):
        return
    absence = known.absence
    if absence is None or absence.withdrew:
        return
    led = known.last_led and LastLed(known.last_led.latest, known.last_led.latest)
    change.components[component] = replace(known, absence=replace(absence, withdrew=True), last_led=led)
    if change.episode and component.job_id is None:
        facts = change.episode.facts
        facts = replace(facts, orderly=True, withdrawn=facts.withdrawn + 1)
        change.episode = replace(change.episode, facts=facts)


def _node_refused(change: Change, node: NodeRefused) -> None:
    component = layout.component_of(node.path)
    if component is None:
        return
    known = change.known(component) or change.newcomer()
    if not isinstance(known.leadership, Held) or known.leadership.position.path == node.path:
        change.apply(component, known, Seen(Sight.NO_VIEW, path=node.path, reason=node.reason))


def not_processed(change: Change, failed: NotProcessed) -> None:
    component = layout.component_of(failed.path)
    known = change.known(component) if component else None
    if component and known:
        change.apply(component, known, Seen(Sight.NO_VIEW, path=failed.path, reason=failed.reason))


def _children_observed(change: Change, seen: ChildrenObserved) -> None:
    if layout.is_latch(seen.path):
        before = change.contenders.get(seen.path)
        if seen.names != before:
            if before and len(seen.names) < len(before):
                change.fewer = Fewer(len(before), change.at.steady)
            change.contenders = {**change.contenders, seen.path: seen.names}
            change.standby = change.standby.with_contenders(contending(change.contenders) or 0, change.at)
            if seen.names or before:
                change.records.append(change.scribe.contention(seen.path, seen.names, before))
    elif seen.path in layout.JOB_STORES:
        change.jobs_listed(seen.path, layout.job_ids(seen.names))


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
    """What tells this sight of a write from an earlier one, where the store went back in time and shows it again.

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
