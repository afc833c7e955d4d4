"""Jobs without a leader that Flink would not recover: they are in no job store, and have never been in one while we looked.

Flink registers a job before its leader is elected. Whoever can write the store can publish a leader for any job id, and remove it again:
each would be known, and without a leader, for ever.
"""

from typing import Final

from sidecar.core.cluster.draft import Draft
from sidecar.core.cluster.leadership_changes import Seen, apply
from sidecar.core.cluster.leadership_table import Sight
from sidecar.core.cluster.state import ClusterState
from sidecar.core.flink.leadership import Vacant
from sidecar.core.flink.znode_paths import JOB_STORES
from sidecar.core.moment import SECOND

KEPT_FOR: Final = 3600 * SECOND
"""After that time without a leader such a job counts as ended."""
MOST: Final = 200
"""Such jobs of a cluster. Of more, those that lost their leader first count as ended at once."""


def forget(draft: Draft) -> None:
    """Retire such jobs, now that the view is known to be fresh."""
    if not draft.state.view.complete or not _knows_stores(draft.state):
        return
    found = {
        component: known
        for component, known in draft.before.components.items()
        if component.job_id
        and known.registered is None
        and isinstance(known.leadership, Vacant)
        and known.since.steady <= draft.at.steady
    }
    newest_first = sorted(found, key=lambda component: found[component].since.steady, reverse=True)
    for place, component in enumerate(newest_first):
        if place >= MOST or draft.at.steady - found[component].since.steady >= KEPT_FOR:
            apply(draft, component, found[component], Seen(Sight.JOB_ENDED))


def _knows_stores(cluster: ClusterState) -> bool:
    """Whether every place was read in which the job could be registered."""
    in_zookeeper = cluster.jobs.keys() & {*JOB_STORES}
    return bool(cluster.jobs) and len(in_zookeeper) in {0, len(JOB_STORES)}
