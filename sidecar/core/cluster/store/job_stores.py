"""The jobs in Flink's job stores: one that is in none any more has ended.

So has a job without a leader that has never been in one while we looked. Flink registers a job before its leader is elected, so it does
not recover this one: whoever can write the store can publish a leader for any job id, and remove it again.
"""

from typing import Final

from msgspec.structs import replace

from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.leadership_changes import Reading, apply
from sidecar.core.cluster.leadership_table import Sight
from sidecar.core.cluster.state import ClusterState
from sidecar.core.flink.leadership import Component, ComponentId, Vacant
from sidecar.core.flink.znode_paths import JOB_STORES
from sidecar.core.moment import SECOND

KEPT_FOR: Final = 3600 * SECOND
"""After that time without a leader such a job counts as ended."""
MOST: Final = 200
"""Such jobs of a cluster. Of more, those that lost their leader first count as ended at once."""


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
    for component, state in draft.before.components.items():
        if state.registered and component.job_id not in all_ids and (before is None or component.job_id in before):
            ended = replace(state, registered=False, unregistered_at=draft.at.steady)
            draft.keep(component, ended)
            if isinstance(state.leadership, Vacant):
                apply(draft, component, ended, Reading(Sight.JOB_ENDED))


def forget(draft: Draft) -> None:
    """Retire jobs without a leader that were never registered, now that the view is known to be fresh."""
    if not draft.state.view.complete or not _knows_stores(draft.state):
        return
    unled = {
        component: state
        for component, state in draft.before.components.items()
        if component.job_id
        and state.registered is None
        and isinstance(state.leadership, Vacant)
        and state.since.steady <= draft.at.steady
    }
    newest_first = sorted(unled, key=lambda component: unled[component].since.steady, reverse=True)
    for place, component in enumerate(newest_first):
        if place >= MOST or draft.at.steady - unled[component].since.steady >= KEPT_FOR:
            apply(draft, component, unled[component], Reading(Sight.JOB_ENDED))


def _knows_stores(cluster: ClusterState) -> bool:
    """Whether every place was read in which the job could be registered."""
    in_zookeeper = cluster.jobs.keys() & {*JOB_STORES}
    return bool(cluster.jobs) and len(in_zookeeper) in {0, len(JOB_STORES)}
