"""The jobs in Flink's job stores: one that is in none any more has ended.

So has a job without a leader that is in none now, and has never been in one while we looked, once its leader's place is gone too. Flink
registers a job before its leader is elected, so it does not recover this one: it began and ended between two reads, or somebody published
a leader for a job that there is not.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.leadership_changes import Reading, apply
from sidecar.core.cluster.leadership_table import Sight
from sidecar.core.cluster.state import ClusterState, ComponentState
from sidecar.core.flink import configmaps
from sidecar.core.flink.leadership import Component, ComponentId, Vacant
from sidecar.core.flink.znode_paths import JOB_STORES
from sidecar.core.moment import SECOND

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
    all_ids = frozenset[str]().union(*draft.state.jobs.values())
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


def store_unreadable(draft: Draft, store: str) -> None:
    """The jobs in this store are not known any more."""
    draft.update(jobs={path: job_ids for path, job_ids in draft.state.jobs.items() if path != store})


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
