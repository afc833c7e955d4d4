"""Our view of one cluster's store: connection, completeness, age, the time it covers, and the jobs in Flink's job stores.

A job that is in no job store any more has ended. So has a job without a leader that is in none now, and has never been in one while we
looked, once its leader's place is gone too. Flink registers
a job before its leader is elected, so it does not recover this one: it began and ended between two reads, or somebody published a leader
for a job that there is not.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import (
    Beyond,
    ClusterState,
    ComponentState,
    Missing,
    Sighting,
    TooOld,
    contending,
)
from sidecar.core.cluster.draft import Draft
from sidecar.core.flink import configmaps, znode_paths
from sidecar.core.flink.leadership import Blindness, Component, ComponentId, Unknown, Vacant, ZNodePosition
from sidecar.core.flink.znode_paths import JOB_STORES, ZNodeLayout
from sidecar.core.leadership import unobserved
from sidecar.core.leadership.leadership_changes import Reading, apply, sight_of_nobody
from sidecar.core.leadership.transitions import Sight
from sidecar.core.leadership.unobserved import Loss
from sidecar.core.moment import SECOND, Moment
from sidecar.core.observations import ConnectionState, LeftOut, NodeObserved

KEPT_FOR: Final = 3600 * SECOND
"""How long a job in no store may be without a leader until it counts as ended, even if its leader's node is still there."""
MOST: Final = 200
"""The most jobs of a cluster that are kept like this. Of more, those that lost their leader first count as ended at once."""


def jobs_listed(draft: Draft, store: str, job_ids: frozenset[str]) -> None:
    """The jobs in one of Flink's job stores: a job that is in none any more has ended. Where not all of them are observed, that is known
    only of one that was observed there.
    """
    before = draft.state.stored_jobs if draft.state.beyond else None
    draft.update(jobs={**draft.state.jobs, store: job_ids})
    all_ids = draft.state.stored_jobs
    for job_id in all_ids:
        component = ComponentId(Component.JOB, job_id)
        state = draft.before.components.get(component) or draft.newcomer()
        if not state.registered:
            draft.keep(component, replace(state, registered=True, unregistered_at=None))
    for component, state in draft.before.components.items() if knows_stores(draft.state) else ():
        if state.registered and component.job_id not in all_ids and (before is None or component.job_id in before):
            ended = replace(state, registered=False, unregistered_at=draft.at.steady)
            draft.keep(component, ended)
            if isinstance(state.leadership, Vacant):
                apply(draft, component, ended, Reading(Sight.JOB_ENDED))


def forget(draft: Draft) -> None:
    """Retire jobs without a leader that were never registered, now that the view is known to be fresh: all job stores are as they were read
    last, after the loss of the leader.
    """
    if not draft.state.view.complete:
        return
    unled = {
        component: state
        for component, state in draft.before.components.items()
        if isinstance(state.leadership, Vacant)
        and state.since.steady <= draft.at.steady
        and is_unregistered(draft.state, component, state)
    }
    newest_first = sorted(unled, key=lambda component: unled[component].since.steady, reverse=True)
    for place, component in enumerate(newest_first):
        is_old = place >= MOST or draft.at.steady - unled[component].since.steady >= KEPT_FOR
        if is_old or not has_place(draft, component):
            apply(draft, component, unled[component], Reading(Sight.JOB_ENDED))


def is_unregistered(cluster: ClusterState, component: ComponentId, state: ComponentState) -> bool:
    """Whether a job is in no job store, and never was in one while we looked. False where a store cannot be read, or not all of it."""
    if component.job_id is None or state.registered is not None:
        return False
    return knows_stores(cluster) and not cluster.may_be_beyond(component)


def has_place(draft: Draft, component: ComponentId) -> bool:
    """Whether something stands where the leader of `component` would be published. In ZooKeeper nothing does without a leader."""
    leases = draft.state.leases
    places = configmaps.places(draft.cluster_id, component) if leases else ()
    return any(name in leases and key in leases[name].written for name, key in places)


def knows_stores(cluster: ClusterState) -> bool:
    """Whether every place was read in which a job could be registered."""
    in_zookeeper = cluster.jobs.keys() & {*JOB_STORES}
    return bool(cluster.jobs) and len(in_zookeeper) in {0, len(JOB_STORES)}


_OLD_JOB_MANAGER: Final = ComponentId(Component.JOB, znode_paths.OLD_JOB_MANAGER)
COVERAGE_INTERVAL = 3600 * SECOND
"""A long period of coverage is recorded in parts of this length, so that the audit need not wait for its end."""


def connection_changed(draft: Draft, connection: ConnectionState) -> None:
    view = draft.state.view
    # A view that was stale has been gone since it was confirmed last.
    gone_at = view.turned_at if draft.state.stale else draft.at
    draft.update(confirmed=None, stale=False, refused=None)
    if connection is ConnectionState.CONNECTED:
        # Everything is read again: unreadable data may have changed. What is left out is reported again.
        for component, state in draft.before.components.items():
            if isinstance(state.leadership, Unknown) and state.leadership != Unknown():
                draft.keep(component, replace(state, leadership=Unknown()))
        view = replace(view, connection=connection, connected_at=draft.at.steady, complete=False)
        draft.update(view=view, beyond=None)
        return
    deadline = view.obscure_at
    if deadline is None and view.connection is not None:
        deadline = gone_at.steady + draft.policy.trust_window
    loss = view.loss
    if view.connection is ConnectionState.CONNECTED and (loss is None or loss.ended is not None):
        loss = Loss(gone_at)
    cover(draft, Sighting.BLIND, draft.at)
    view = replace(draft.state.view, connection=connection, complete=False, obscure_at=deadline, loss=loss)
    draft.update(view=view)


def left_out(draft: Draft, observation: LeftOut) -> None:
    """Note which part of the cluster is not observed, or that all of it is again."""
    since = draft.state.beyond.since if draft.state.beyond else draft.at
    is_any = observation.jobs or observation.lists
    draft.update(beyond=Beyond(observation.jobs, observation.lists, since) if is_any else None)


def nothing_found(draft: Draft, missing: Missing | TooOld) -> None:
    """Note that there is no cluster to watch. No time is covered by that, not even since the snapshot: no observer could see a leader."""
    draft.update(missing=missing, view=replace(draft.state.view, sighting=Sighting.BLIND))


def something_found(draft: Draft) -> None:
    """The cluster exists. If it did not before, its vacancies begin now."""
    if draft.state.missing:
        draft.update(missing=None)
        if draft.state.is_in_sight:
            cover(draft, Sighting.SEEING, draft.at)
        for component, state in draft.before.components.items():
            if isinstance(state.leadership, Vacant):
                draft.keep(component, replace(state, since=draft.at))


def judge_version(draft: Draft) -> None:
    """Note that a Flink is too old to be watched, or that it was upgraded."""
    was_too_old = isinstance(draft.state.missing, TooOld)
    if draft.state_of(_OLD_JOB_MANAGER) is None and not was_too_old:
        return
    too_old = _is_too_old(draft)
    if too_old and draft.state.missing is None and draft.state.view.complete:
        nothing_found(draft, TooOld())
    elif was_too_old and not too_old:
        something_found(draft)


def _is_too_old(draft: Draft) -> bool:
    """Whether the only leader that there ever was is the JobManager of Flink up to 1.4. A job of that id is in a job store, and its Flink
    has other components.
    """
    job_manager = draft.state_of(_OLD_JOB_MANAGER)
    place = job_manager and job_manager.last_position
    if not isinstance(place, ZNodePosition) or znode_paths.layout_of(place.path) is not ZNodeLayout.Z1:
        return False
    led = {component for component, state in draft.all_states() if state.last_known}
    is_in_store = znode_paths.OLD_JOB_MANAGER in draft.state.stored_jobs
    return led == {_OLD_JOB_MANAGER} and not is_in_store and not contending(draft.state.contenders)


def aged(draft: Draft, *, stale: bool) -> None:
    """The view became `stale` (since its last confirmation), or fresh again."""
    draft.update(stale=stale)
    confirmed = draft.state.confirmed
    if stale and confirmed:
        cover(draft, Sighting.BLIND, confirmed.at)
    else:
        cover(draft, Sighting.SEEING, draft.at)


def snapshot_completed(draft: Draft) -> None:
    for component in draft.before.components:
        state = draft.state_of(component)
        if state is None or draft.state.may_be_beyond(component):
            continue
        if isinstance(state.leadership, Unknown) and state.leadership.reason is not Blindness.UNREADABLE:
            ended = is_unregistered(draft.state, component, state)
            sight = Sight.JOB_ENDED if ended else sight_of_nobody(state)
            apply(draft, component, _looked_for(draft, state), Reading(sight))
    cover(draft, Sighting.SEEING, draft.at)
    loss = draft.state.view.loss
    if loss and loss.ended is None:
        loss = replace(loss, ended=draft.at)
    draft.update(
        view=replace(draft.state.view, complete=True, obscure_at=None, loss=loss), handed_over_by=None, refused=None
    )


def _looked_for(draft: Draft, state: ComponentState) -> ComponentState:
    """`state` after a snapshot without its path: there is no leader node."""
    if state.look is None or state.seen_at >= draft.state.view.connected_at:
        return state
    absent = NodeObserved(draft.at, "", state.look.path)
    return replace(state, look=unobserved.look(state.look, absent), seen_at=draft.at.steady)


def obscure(draft: Draft) -> None:
    """Leaders that were not read again within the trust window become unknown."""
    view = draft.state.view
    connected = view.connection is ConnectionState.CONNECTED
    why = "not read again yet" if connected else f"the store cannot be read: {view.connection}"
    for component, state in draft.before.components.items():
        if not connected or state.seen_at < view.connected_at:
            apply(draft, component, state, Reading(Sight.NO_VIEW, obscured_by=why))
    loss = draft.state.view.loss and replace(draft.state.view.loss, obscured=True)
    draft.update(view=replace(draft.state.view, obscure_at=None, loss=loss))


def cover(draft: Draft, sighting: Sighting, until: Moment) -> None:
    """Record the period until `until`, and begin one of `sighting`; of BLIND, if there is no such cluster."""
    view = draft.state.view
    if draft.state.missing:
        sighting = Sighting.BLIND
    # The wall clock may jump back: stretches never overlap.
    until = Moment(until.steady, max(view.since.wall, until.wall))
    suspended = draft.state.wants_no_leader
    if view.sighting is not sighting:
        draft.update(view=replace(view, sighting=sighting, turned_at=until, suspended=suspended))
    elif view.suspended is not suspended:
        draft.update(view=replace(view, suspended=suspended))
    elif until.steady - view.since.steady < COVERAGE_INTERVAL:
        return
    if until.steady > view.since.steady:
        draft.happened.append(draft.writer.coverage(view, until))
        draft.update(view=replace(draft.state.view, since=until))
