"""What stands in ConfigMaps, applied to one cluster: what was told of a lease, and whom it makes a leader."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core import accounting, configmaps, episodes, leases
from sidecar.core.change import Change, without_leader
from sidecar.core.leadership import Blindness, ComponentId, ConfigMapPosition, Held, LeaderInformation, Unknown, Vacant
from sidecar.core.leases import Clock, Lease, Verdict
from sidecar.core.observations import ConfigMapObserved, NotProcessed
from sidecar.core.recording import Seen
from sidecar.core.state import ComponentState
from sidecar.core.transitions import Sight, compare, kind_of
from sidecar.core.wire import Unreadable


def config_map_observed(change: Change, told: ConfigMapObserved) -> None:
    name = told.name
    if not configmaps.is_leaders(change.cluster_id, name):
        return
    before = change.leases.get(name)
    # Without the ConfigMap nothing is known of the jobs in it: one that is made anew tells which ones have ended.
    listed = configmaps.job_ids(told.data) if told.uid and configmaps.is_job_store(change.cluster_id, name) else None
    if told.uid is None:
        change.leases = {other: lease for other, lease in change.leases.items() if other != name}
    else:
        lease = _taken(change, before, told)
        change.leases = {**change.leases, name: lease}
        looked_at = before is not None and before.seen_at >= change.view.connected_at
        if before and looked_at and lease.stands_as(before) and (listed is None or listed == change.jobs.get(name)):
            return  # a renewal, or a confirmation
    if listed is not None and listed != change.jobs.get(name):
        change.jobs_listed(name, listed)
    for component in _covered(change, name):
        _judge(change, component, complete=change.view.complete)


def not_processed(change: Change, failed: NotProcessed) -> None:
    """Of no leader in that ConfigMap is anything known; the next time it is told of is a first time."""
    components = tuple(_covered(change, failed.path))
    change.leases = {name: lease for name, lease in change.leases.items() if name != failed.path}
    for component in components:
        if known := change.known(component):
            change.apply(component, known, Seen(Sight.NO_VIEW, path=failed.path, reason=failed.reason))


def snapshot_completed(change: Change) -> None:
    """All that exists has been told of: what was known and not told of is gone."""
    told = {name: lease for name, lease in change.leases.items() if lease.seen_at >= change.view.connected_at}
    change.leases = told if len(told) < len(change.leases) else change.leases
    for component in change.before.components:
        _judge(change, component, complete=True)


def _taken(change: Change, before: Lease | None, told: ConfigMapObserved) -> Lease:
    clock = Clock(change.at.steady, change.view.connected_at)
    lease = leases.take(before, told, clock, lambda component: _last(change.known(component)))
    if before and before.uid == lease.uid:
        return lease
    # First sight: an earlier process may have found that this lease counts elections.
    known = (change.known(value.component) for value in lease.written.values())
    counted = (each.elections for each in known if each and each.elections)
    return replace(lease, counts=any(each.uid == lease.uid and each.sure for each in counted) or None)


def _last(known: ComponentState | None) -> Held | None:
    return Held(known.last_known, known.last_position) if known and known.last_known and known.last_position else None


def _covered(change: Change, name: str) -> Iterable[ComponentId]:
    """Whose leaders may stand in the ConfigMap `name`."""
    if owner := configmaps.owner_of(change.cluster_id, name):
        return (owner,)
    lease = change.leases.get(name)
    written = (value.component for value in lease.written.values()) if lease else ()
    return {**change.before.components, **change.components, **dict.fromkeys(written)}


def _judge(change: Change, component: ComponentId, *, complete: bool) -> None:
    """Who leads `component` now, and what happened if that is news. `complete`: everything has been told of since the view came back."""
    known = change.known(component)
    held = known.leadership.position if known and isinstance(known.leadership, Held) else None
    verdict = leases.judge(change.cluster_id, change.leases, component, held)
    if known is None:
        if verdict.leader is None:
            return
        change.ended.discard(component)  # a job whose end and new beginning are one sight begins anew
        known = change.newcomer()
    known = _looked_at(change, known, verdict)
    if verdict.leader is None and isinstance(known.leadership, Unknown) and not complete:
        # One of several places is empty; whether nobody leads is known when all have been looked at.
        _keep(change, component, replace(known, leadership=Unknown()))
        return
    seen = _seen(known, verdict)
    if _is_quiet(known, seen):
        _keep(change, component, known)
    else:
        change.apply(component, known, seen)


def _looked_at(change: Change, known: ComponentState, verdict: Verdict) -> ComponentState:
    """`known`, the same object where there is nothing new: a renewal writes nothing down."""
    if known.seen_at < change.view.connected_at:
        known = replace(known, seen_at=change.at.steady)
    if verdict.position:
        lease = change.leases[verdict.position.name]
        elections = accounting.counted(known.elections, lease.uid, lease.elections, sure=bool(lease.counts))
        if elections != known.elections:
            known = replace(known, elections=elections)
    return known


def _keep(change: Change, component: ComponentId, known: ComponentState) -> None:
    if known != change.known(component):
        change.components[component] = known


def _seen(known: ComponentState, verdict: Verdict) -> Seen:
    match verdict.leader:
        case LeaderInformation() as leader:
            assert verdict.position  # noqa: S101  a leader stands somewhere
            position = replace(verdict.position, returned=_returned(known, leader, verdict.position))
            return Seen(compare(known.leadership, leader), leader, position, verdict.path)
        case Unreadable(reason):
            return Seen(Sight.NO_VIEW, position=verdict.position, path=verdict.path, reason=reason)
        case None:
            return Seen(without_leader(known), position=verdict.position, path=verdict.path, reason=verdict.reason)


def _returned(known: ComponentState, leader: LeaderInformation, position: ConfigMapPosition) -> str | None:
    """What tells this time of `leader` from an earlier one in the same session, so that they are two happenings."""
    if leader.session_id in known.contest.earlier:
        return position.resource_version
    if leader != known.last_known or not isinstance(known.last_position, ConfigMapPosition):
        return None
    # After blindness only its absence remembers that it had left.
    left = isinstance(known.leadership, Vacant) or episodes.is_away(known.absence)
    return position.resource_version if left else known.last_position.returned


def _is_quiet(known: ComponentState, seen: Seen) -> bool:
    """Whether nothing changes at all, not even where the leader stands."""
    if kind_of(known.leadership, seen.sight) is not None:
        return False
    match known.leadership:
        case Held(position=position):
            return isinstance(seen.position, ConfigMapPosition) and seen.position.is_in(position)
        case Unknown(reason, path):
            return (reason, path) == (Blindness.UNREADABLE, seen.path)
        case Vacant():
            return True
