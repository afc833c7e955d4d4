"""Applies observed ConfigMaps to one cluster: their leases and addresses, and who leads by them."""

from collections.abc import Iterable

from msgspec.structs import replace

from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.failover import episodes
from sidecar.core.cluster.leadership_changes import Seen, apply, without_leader
from sidecar.core.cluster.leadership_table import Sight, compare, kind_of
from sidecar.core.cluster.state import ClusterState, ComponentState
from sidecar.core.cluster.store import leases, unobserved
from sidecar.core.cluster.store.job_stores import jobs_listed
from sidecar.core.cluster.store.leases import Lease, LeaseClock, LeaseVerdict
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
from sidecar.core.observations import ConfigMapObserved, NotProcessed


def config_map_observed(draft: Draft, observed: ConfigMapObserved) -> None:
    name = observed.name
    if not configmaps.is_leaders(draft.cluster_id, name):
        return
    before = draft.state.leases.get(name)
    listed = _other_jobs(draft, observed)
    if observed.uid is None:
        draft.update(leases={other: lease for other, lease in draft.state.leases.items() if other != name})
    else:
        if draft.state.gone:
            draft.update(gone=None)
        lease = _taken(draft, before, observed)
        draft.update(leases={**draft.state.leases, name: lease})
        if before and before.seen_at >= draft.state.view.connected_at and lease.stands_as(before) and listed is None:
            return  # a renewal, or a confirmation
    if listed is not None:
        jobs_listed(draft, name, listed)
    for component in _covered(draft, name):
        _judge(draft, component, complete=draft.state.view.complete)


def _other_jobs(draft: Draft, observed: ConfigMapObserved) -> frozenset[str] | None:
    """The jobs of a job store, if they are others than before. Without the ConfigMap they are not known: when it is created again, it shows
    which ones have ended.
    """
    if not observed.uid or not configmaps.is_job_store(draft.cluster_id, observed.name):
        return None
    job_ids = configmaps.job_ids(observed.data)
    return None if job_ids == draft.state.jobs.get(observed.name) else job_ids


def not_processed(draft: Draft, failed: NotProcessed) -> None:
    """All leaders in that ConfigMap become unknown; its next observation counts as the first."""
    components = tuple(_covered(draft, failed.path))
    draft.update(leases={name: lease for name, lease in draft.state.leases.items() if name != failed.path})
    for component in components:
        if known := draft.known(component):
            apply(draft, component, known, Seen(Sight.NO_VIEW, path=failed.path, obscured_by=failed.reason))


def snapshot_completed(draft: Draft) -> None:
    """Everything that exists has been observed: a known ConfigMap that was not is gone."""
    state = draft.state
    current = {name: lease for name, lease in state.leases.items() if lease.seen_at >= state.view.connected_at}
    if len(current) < len(state.leases):
        draft.update(leases=current)
    for component in draft.before.components:
        _judge(draft, component, complete=True)


def _taken(draft: Draft, before: Lease | None, observed: ConfigMapObserved) -> Lease:
    clock = LeaseClock(draft.at.steady, draft.state.view.connected_at)
    lease = leases.take(before, observed, clock, lambda component: _last(draft.known(component)))
    if before and before.uid == lease.uid:
        return lease
    # First sight: an earlier process may have found that this lease counts elections.
    components = (draft.known(value.component) for value in lease.written.values())
    elections = (known.elections for known in components if known and known.elections)
    return replace(lease, counts=any(term.uid == lease.uid and term.sure for term in elections) or None)


def _last(known: ComponentState | None) -> Held | None:
    return Held(known.last_known, known.last_position) if known and known.last_known and known.last_position else None


def _covered(draft: Draft, name: str) -> Iterable[ComponentId]:
    """The components whose leaders may be in the ConfigMap `name`."""
    if owner := configmaps.owner_of(draft.cluster_id, name):
        return (owner,)
    lease = draft.state.leases.get(name)
    written = (value.component for value in lease.written.values()) if lease else ()
    return {**draft.components(), **dict.fromkeys(written)}


def _judge(draft: Draft, component: ComponentId, *, complete: bool) -> None:
    """Determine who leads `component` and apply it. `complete`: everything has been read since the last reconnect."""
    known = draft.known(component)
    held = known.leadership.position if known and isinstance(known.leadership, Held) else None
    verdict = leases.judge(draft.cluster_id, draft.state.leases, component, held)
    if known is None:
        if verdict.leader is None:
            return
        known = draft.newcomer()
    known = _looked_at(draft, known, verdict)
    if verdict.leader is None and _is_left_behind(draft.state, component, known):
        known = replace(known, registered=False)
    if verdict.leader is None and isinstance(known.leadership, Unknown) and not complete:
        # One of several places is empty: whether there is a leader is known when all have been read.
        _keep(draft, component, replace(known, leadership=Unknown()))
        return
    seen = _seen(known, verdict)
    if _is_quiet(known, seen):
        _keep(draft, component, known)
    else:
        apply(draft, component, known, seen)


def _is_left_behind(state: ClusterState, component: ComponentId, known: ComponentState) -> bool:
    """Whether a job had ended before we observed it: up to Flink 1.14 its ConfigMap stays. The job stores do not have it, and its lease has
    expired without having been renewed once."""
    place = known.last_position
    if not component.job_id or known.registered or not isinstance(place, ConfigMapPosition):
        return False
    stored = any(component.job_id in job_ids for job_ids in state.jobs.values())
    lease = state.leases.get(place.name)
    return bool(state.jobs) and not stored and lease is not None and lease.lapsed and lease.renewed_at is None


def _looked_at(draft: Draft, known: ComponentState, verdict: LeaseVerdict) -> ComponentState:
    """`known`, the same object where there is nothing new: a renewal writes nothing down."""
    if known.seen_at < draft.state.view.connected_at:
        known = replace(known, seen_at=draft.at.steady)
    if verdict.position:
        lease = draft.state.leases[verdict.position.name]
        elections = unobserved.counted(known.elections, lease.uid, lease.elections, sure=bool(lease.counts))
        if elections != known.elections:
            known = replace(known, elections=elections)
    return known


def _keep(draft: Draft, component: ComponentId, known: ComponentState) -> None:
    if known != draft.known(component):
        draft.keep(component, known)


def _seen(known: ComponentState, verdict: LeaseVerdict) -> Seen:
    match verdict.leader:
        case LeaderInformation() as leader:
            assert verdict.position  # noqa: S101  a leader stands somewhere
            position = replace(verdict.position, returned=_returned(known, leader, verdict.position))
            return Seen(compare(known.leadership, leader), leader, position, verdict.path)
        case Unreadable(reason):
            return Seen(Sight.NO_VIEW, position=verdict.position, path=verdict.path, obscured_by=reason)
        case None:
            return Seen(without_leader(known), position=verdict.position, path=verdict.path, vacancy=verdict.vacancy)


def _returned(known: ComponentState, leader: LeaderInformation, position: ConfigMapPosition) -> str | None:
    """Distinguishes this term of `leader` from an earlier one in the same session, so that they are two events."""
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
