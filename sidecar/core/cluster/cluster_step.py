"""One cluster: raw observations in, the next state and its records out."""

from collections.abc import Callable
from typing import assert_never

from msgspec.structs import replace

from sidecar.core.cluster import (
    configmap_leaders,
    deaths,
    ends,
    episodes,
    error_budget,
    failover_in_progress,
    leadership_changes,
    plans,
    split_leadership,
    store_view,
    unregistered,
    znode_leaders,
)
from sidecar.core.cluster.draft import ClusterStep, Draft
from sidecar.core.cluster.state import ClusterState, Confirmed, Drilled, Missing, Sighting, TooOld, View, as_last_known
from sidecar.core.cluster.store_view import COVERAGE_INTERVAL
from sidecar.core.flink.leadership import ComponentId
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    NodeObserved,
    NodeRefused,
    NothingFound,
    NotProcessed,
    PlaceRemoved,
    SnapshotCompleted,
    StoreObserved,
    StoreRefused,
    ViewConfirmed,
    ViewObserved,
    is_trace,
)
from sidecar.core.policy.policy import Policy, Store

Act = Callable[[Policy, str, ClusterState, Moment], ClusterStep]


def observe(
    policy: Policy, cluster_id: str, cluster: ClusterState, observation: ClusterObservation | NotProcessed
) -> ClusterStep:
    """The cluster after `observation`, and what is to be recorded of it."""
    of_view = isinstance(observation, ViewObserved | StoreRefused)
    if not of_view and cluster.view.connection is not ConnectionState.CONNECTED:
        return cluster, []  # a late answer of a connection that is gone: all of it is read again on the next one
    draft = Draft(policy, cluster_id, cluster, observation.at)
    if is_trace(observation) and not isinstance(cluster.missing, TooOld):
        store_view.something_found(draft)
    match observation:
        case ViewObserved() | StoreRefused():
            store_view.view_changed(draft, observation)
        case SnapshotCompleted():
            if policy.store_of(cluster_id) is Store.KUBERNETES:
                configmap_leaders.snapshot_completed(draft)
            store_view.snapshot_completed(draft)
        case NodeObserved() | PlaceRemoved() | NodeRefused() | ChildrenObserved():
            znode_leaders.observed(draft, observation)
        case NotProcessed():
            _not_processed(draft, observation, policy.store_of(cluster_id))
        case ViewConfirmed():
            until = observation.at.steady + observation.again_within + policy.trust_window
            draft.update(confirmed=Confirmed(observation.at, until))
            unregistered.forget(draft)
        case NothingFound() if not cluster.ever_led:
            store_view.nothing_found(draft, Missing(observation.place, observation.beside))
        case StoreObserved():
            draft.update(zxid=observation.zxid)
        case ConfigMapObserved():
            configmap_leaders.config_map_observed(draft, observation)
    store_view.judge_version(draft)
    return draft.outcome()


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster when nothing but time has passed: a view that is lost, or not confirmed in time, is trusted no longer than the trust
    window.
    """
    view = cluster.view
    stale = view.complete and cluster.is_overdue(now)
    in_sight = view.complete and not stale
    obscured = view.obscure_at is not None and now.steady >= view.obscure_at
    calm = [component for component in cluster.contested if in_sight and _is_calm(cluster, component, now)]
    over = in_sight and cluster.episode is not None and episodes.is_over(cluster.episode, now)
    blind = in_sight and cluster.episode is None and view.loss is not None and view.loss.is_past(now)
    alone = [component for component in cluster.departed if _left_alone(cluster, component, now)]
    died = deaths.is_due(cluster, now)
    turned = stale is not cluster.stale
    long = now.steady - view.since.steady >= COVERAGE_INTERVAL
    burning = error_budget.burning(policy, cluster_id, cluster, now)
    burns = burning is not cluster.burning
    unheard = cluster.peers.is_old(now)
    if not (obscured or calm or over or blind or alone or died or turned or long or burns or unheard):
        return cluster, []
    draft = Draft(policy, cluster_id, cluster, now)
    draft.update(burning=burning)
    if unheard:
        draft.update(peers=replace(cluster.peers, opinions=()))
    failover_in_progress.record_departed(draft, *alone)
    if turned:
        store_view.aged(draft, stale=stale)
    if obscured:
        store_view.obscure(draft)
    for component in calm:
        leadership_changes.reconciled(draft, component)
    if died or over:  # of the last failover, before another one takes its place
        deaths.record(draft)
    if over:
        failover_in_progress.close_episode(draft)
    if blind:
        failover_in_progress.close_blindness(draft)
    store_view.cover(draft, draft.state.view.sighting, now)
    return draft.outcome()


def restart(policy: Policy, cluster_id: str, cluster: ClusterState, alive: Moment, now: Moment) -> ClusterStep:
    """The cluster as a new process finds it in the journal: nothing has been read yet, what was known is kept as last known."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_in_progress.record_departed(draft, *cluster.departed)
    store_view.cover(draft, Sighting.BLIND, max(alive, cluster.view.since))
    for component, known in cluster.components.items():
        draft.keep(component, as_last_known(known, now))
    since = draft.state.view.since
    draft.update(
        view=View(since=since, turned_at=since),
        operated=plans.unread(cluster.operated, alive),
        ends=ends.restarted(cluster.ends),
        drilled=cluster.drilled if cluster.drilled.since else Drilled(since=now.wall),
    )
    return draft.outcome()


def stop(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> ClusterStep:
    """The cluster at an orderly end: what was covered until now is recorded."""
    draft = Draft(policy, cluster_id, cluster, now)
    failover_in_progress.record_departed(draft, *cluster.departed)
    store_view.cover(draft, Sighting.BLIND, now)
    return draft.outcome()


def _left_alone(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    """Whether a job left too long ago to be the first of a failover."""
    absence = cluster.components[component].absence
    return absence is None or now.steady - absence.left_at > episodes.LOOK_BACK


def _is_calm(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    return split_leadership.is_calm(cluster.components[component].contest, cluster.view.turned_at.steady, now)


def _not_processed(draft: Draft, observation: NotProcessed, store: Store) -> None:
    match store:
        case Store.KUBERNETES:
            configmap_leaders.not_processed(draft, observation)
        case Store.ZOOKEEPER:
            znode_leaders.not_processed(draft, observation)
        case _:
            assert_never(store)
