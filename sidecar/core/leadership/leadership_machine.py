"""The leadership machine: raw observations of a store in; transitions, gaps and views out.

`observe` applies one observation to the draft of a cluster. The driver's bytes are decoded here (`stored_leaders`, in Kubernetes
with `leases`), compared with what is known, and THE table (in `transitions`) gives what happened: a transition, or nothing.
`leadership_changes` makes it, with the changes that nobody could see (`unobserved`), and updates the component. `store_view` keeps the view
itself: connection, completeness, age, jobs in Flink's stores, and the times that are covered. `leadership_account` adds up who led.

For one observation, in this order: late answers are dropped; a cluster that was missing exists; the observation is applied, component by
component; a Flink that is too old is noted. With time: a view turns stale or fresh, leaders become unknown, splits end, coverage is
recorded.

1. Only a complete and fresh view knows vacancies. Before, an empty place leaves the leader unknown, because another place may have it.
2. When the connection is lost, leaders stay known for the trust window, then they become unknown: OBSCURED is about the view, and not a
   change of Flink's. On the next connection everything is read again, and what was missed is counted.
3. In an upgrade two layouts exist at once: the empty place of one layout says nothing about the leader at another.
4. A restored store shows old writes again, and a deposed leader may come back: `returned` tells these events from the first ones.
5. In Kubernetes a dead leader's address stays. Its lease shows that it leads no more, measured by this observer's clock alone.
6. A job that is in no job store any more has ended; whether its leader's place or its plan goes first, it is RETIRED once.

This folder knows the failover machine by its entrance alone, and calls it where an order cannot be had otherwise: `follow` for each
transition at once (its story 1), `withdrew` where ZooKeeper shows that a leader removed its own address, `ended_for_good` where Flink
deletes its ConfigMap. It reads of the other's state: whether a component is away, and whether no leader is wanted (coverage says so).
"""

from msgspec.structs import replace

from sidecar.core.cluster.cluster_state import (
    ClusterState,
    Confirmed,
    Missing,
    Sighting,
    TooOld,
    View,
    last_known_state,
)
from sidecar.core.cluster.draft import Draft
from sidecar.core.flink.leadership import CLUSTER_COMPONENTS, Held, Unknown, Vacant
from sidecar.core.leadership import store_view, stored_leaders
from sidecar.core.leadership.leadership_account import Standing, changed, opened
from sidecar.core.leadership.leadership_changes import Reading, apply
from sidecar.core.leadership.store_view import cover
from sidecar.core.leadership.transitions import Contest, Sight, is_split_over
from sidecar.core.moment import Moment
from sidecar.core.observations import (
    ChildrenObserved,
    ClusterObservation,
    ConfigMapObserved,
    ConnectionState,
    LeftOut,
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
from sidecar.core.policy.policy import Store


def observe(draft: Draft, observation: ClusterObservation | NotProcessed) -> bool:
    """Update the cluster by what was read of its store. False: it is a late answer of a connection that is gone, and all of it is read
    again on the next one.
    """
    cluster = draft.before
    is_connected = cluster.view.connection is ConnectionState.CONNECTED
    if not is_connected and not isinstance(observation, ViewObserved | StoreRefused):
        return False
    if cluster.missing and is_trace(observation) and not isinstance(cluster.missing, TooOld):
        store_view.something_found(draft)
    match observation:
        case NodeObserved():
            stored_leaders.node_observed(draft, observation)
        case PlaceRemoved():
            stored_leaders.place_removed(draft, observation)
        case NodeRefused():
            stored_leaders.node_refused(draft, observation)
        case ChildrenObserved():
            stored_leaders.children_observed(draft, observation)
        case ConfigMapObserved():
            stored_leaders.config_map_observed(draft, observation)
        case NotProcessed():
            stored_leaders.not_processed(draft, observation)
        case _:
            _view_observed(draft, observation)
    store_view.judge_version(draft)
    return True


def _view_observed(draft: Draft, observation: ClusterObservation) -> None:
    match observation:
        case ViewObserved():
            store_view.connection_changed(draft, observation.connection)
        case StoreRefused():
            draft.update(refused=observation.reason)
        case LeftOut():
            store_view.left_out(draft, observation)
        case SnapshotCompleted():
            if draft.policy.store_of(draft.cluster_id) is Store.KUBERNETES:
                stored_leaders.config_maps_read(draft)
            store_view.snapshot_completed(draft)
        case ViewConfirmed():
            until = observation.at.steady + observation.again_within + draft.policy.trust_window
            draft.update(confirmed=Confirmed(observation.at, until))
            store_view.forget(draft)
        case NothingFound() if not draft.before.ever_led:
            store_view.nothing_found(draft, Missing(observation.place, observation.beside))
        case StoreObserved():
            draft.update(zxid=observation.zxid)


def tick(draft: Draft) -> None:
    """Do what time has decided: a view that is lost, or not confirmed in time, is trusted no longer than the trust window."""
    cluster, now = draft.before, draft.at
    view, stale = cluster.view, cluster.view.complete and cluster.is_overdue(now)
    in_sight = view.complete and not stale
    standby = cluster.standby.settled(now)
    if in_sight and standby is not cluster.standby:
        draft.update(standby=standby)
    if stale is not cluster.stale:
        store_view.aged(draft, stale=stale)
    if view.obscure_at is not None and now.steady >= view.obscure_at:
        store_view.obscure(draft)
    for component in cluster.contested if in_sight else ():
        state = cluster.components[component]
        if is_split_over(state.contest, view.turned_at.steady, now):
            draft.keep(component, replace(state, contest=Contest(state.contest.earlier)))
            draft.update(contested=draft.state.contested - {component})


def restart(draft: Draft, alive: Moment) -> None:
    """Begin with what an earlier process knew, which ran until `alive`: nothing has been read yet, leaders are kept as last known."""
    cluster = draft.before
    cover(draft, Sighting.BLIND, max(alive, cluster.view.since))
    for component, state in cluster.components.items():
        draft.keep(component, last_known_state(state, draft.at))
    since = draft.state.view.since
    draft.update(view=View(since=since, turned_at=since))


def removed(draft: Draft) -> None:
    """Retire all leaderships of a cluster that was removed."""
    for component, state in draft.before.components.items():
        if state.last_known or not isinstance(state.leadership, Unknown):
            apply(draft, component, state, Reading(Sight.JOB_ENDED))
        else:
            draft.remove(component)


def standing(cluster: ClusterState) -> Standing:
    """How the current moment counts in the account of leadership."""
    if cluster.view.sighting is Sighting.BLIND:
        return Standing.UNOBSERVED
    standing = Standing.LED
    for component in CLUSTER_COMPONENTS:
        state = cluster.components.get(component)
        if state and isinstance(state.leadership, Vacant):
            return Standing.SUSPENDED if cluster.view.suspended else Standing.VACANT
        if state is None or not isinstance(state.leadership, Held):
            standing = Standing.UNOBSERVED
    return standing


def accounted(before: ClusterState | None, after: ClusterState, alive: Moment | None, at: Moment) -> ClusterState:
    """`after` with its account, when the step from `before` is done. `alive`: until then a restart takes this sidecar to have run."""
    account, now = after.account or opened(at.steady), standing(after)
    turned = before is not None and before.view.sighting is not after.view.sighting
    is_blind = after.view.sighting is Sighting.BLIND
    if now is not account.now or (turned and is_blind):
        # Blind since the end of what was covered, which may be earlier than now.
        since = after.view.since.steady if is_blind else at.steady
        account = changed(account, now, since, final_until(after, alive, at))
    return after if account is after.account else replace(after, account=account)


def final_until(cluster: ClusterState, alive: Moment | None, now: Moment) -> int:
    """Until when (steady) the account is final: a view that is not confirmed in time will have been blind since its last confirmation, and
    a sidecar that is killed will have ended when it was last known to run.
    """
    until = alive.steady if alive else now.steady
    if cluster.view.sighting is Sighting.BLIND:
        return until
    return min(until, cluster.confirmed.at.steady if cluster.confirmed else cluster.view.since.steady)
