"""One cluster: raw observations in, the next state and its records out."""

from collections.abc import Callable

from msgspec.structs import replace

from sidecar.core import contest, episodes, holders, znodes
from sidecar.core.change import COVERAGE_INTERVAL, Change, Outcome
from sidecar.core.leadership import ComponentId, Unknown
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
    ViewConfirmed,
    ViewObserved,
    is_trace,
)
from sidecar.core.policy import Policy, Store
from sidecar.core.state import ClusterState, Confirmed, Missing, Sighting, View

Act = Callable[[Policy, str, ClusterState, Moment], Outcome]


def observe(
    policy: Policy, cluster_id: str, cluster: ClusterState, observation: ClusterObservation | NotProcessed
) -> Outcome:
    """The cluster after `observation`, and what is to be recorded of it."""
    if not isinstance(observation, ViewObserved) and cluster.view.connection is not ConnectionState.CONNECTED:
        return cluster, []  # a late answer of a connection that is gone: all of it is read again on the next one
    change = Change(policy, cluster_id, cluster, observation.at)
    if is_trace(observation):
        change.something_found()
    match observation:
        case ViewObserved():
            change.view_changed(observation.connection)
        case SnapshotCompleted():
            if policy.stores[cluster_id] is Store.KUBERNETES:
                holders.snapshot_completed(change)
            change.snapshot_completed()
        case NodeObserved() | PlaceRemoved() | NodeRefused() | ChildrenObserved():
            znodes.observed(change, observation)
        case NotProcessed():
            (holders if policy.stores[cluster_id] is Store.KUBERNETES else znodes).not_processed(change, observation)
        case ViewConfirmed():
            until = observation.at.steady + observation.again_within + policy.trust_window
            change.confirmed = Confirmed(observation.at, until)
        case NothingFound() if not cluster.ever_led:
            change.missing = Missing(observation.place, observation.beside)
        case StoreObserved():
            change.zxid = observation.zxid
        case ConfigMapObserved():
            holders.config_map_observed(change, observation)
    return change.outcome()


def tick(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> Outcome:
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
    turned = stale is not cluster.stale
    long = now.steady - view.since.steady >= COVERAGE_INTERVAL
    if not (obscured or calm or over or blind or alone or turned or long):
        return cluster, []
    change = Change(policy, cluster_id, cluster, now)
    change.record_departed(*alone)
    if turned:
        change.aged(stale=stale)
    if obscured:
        change.obscure()
    for component in calm:
        change.reconciled(component)
    if over:
        change.close_episode()
    if blind:
        change.close_blindness()
    change.cover(change.view.sighting, now)
    return change.outcome()


def restart(policy: Policy, cluster_id: str, cluster: ClusterState, alive: Moment, now: Moment) -> Outcome:
    """The cluster as a new process finds it in the journal: nothing of it is in sight, all of it is remembered."""
    change = Change(policy, cluster_id, cluster, now)
    change.record_departed(*cluster.departed)
    change.cover(Sighting.BLIND, max(alive, cluster.view.since))
    for component, known in cluster.components.items():
        change.components[component] = replace(
            known, leadership=Unknown(), since=now, vacated_at=None, last_led=None, published_at=None
        )
    change.view = View(since=change.view.since, turned_at=change.view.since)
    return change.outcome()


def stop(policy: Policy, cluster_id: str, cluster: ClusterState, now: Moment) -> Outcome:
    """The cluster at an orderly end: what was covered until now is recorded."""
    change = Change(policy, cluster_id, cluster, now)
    change.record_departed(*cluster.departed)
    change.cover(Sighting.BLIND, now)
    return change.outcome()


def _left_alone(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    """Whether a job left too long ago to be the first of a failover."""
    absence = cluster.components[component].absence
    return absence is None or now.steady - absence.left_at > episodes.LOOK_BACK


def _is_calm(cluster: ClusterState, component: ComponentId, now: Moment) -> bool:
    return contest.is_calm(cluster.components[component].contest, cluster.view.turned_at.steady, now)
