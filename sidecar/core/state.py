"""The state of the owner's thread: immutable values, of which a step makes new ones and shares those that stay the same."""

from collections.abc import Mapping

from sidecar.core.alerting.alerting_step import AlertingState
from sidecar.core.captures import Capture
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.failover.plans import Operated
from sidecar.core.finder import Finder
from sidecar.core.flink.deployments import Candidate, Maker, Seen
from sidecar.core.moment import Moment


class State(AlertingState, frozen=True):
    """The owner's state. The journal keeps all that a new process does not observe itself: see `journal_rows`."""

    clusters: Mapping[str, ClusterState] = {}
    captures: Mapping[str, Capture] = {}
    """Requests for evidence that are not answered yet."""
    alive: Moment | None = None
    """The last moment at which the sidecar is known to have run."""
    unclaimed: Mapping[str, Operated] = {}
    """FlinkDeployments by the id of a cluster that is not found yet, or has been removed."""
    makers: Mapping[tuple[str, Maker, str], Seen] = {}
    """The makers of JobManagers in Kubernetes, by the clusters that they may belong to, their kind and their name."""
    listed: Mapping[str, Mapping[str, frozenset[Candidate]]] = {}
    """All that may make JobManagers in Kubernetes, by the clusters that it may be of, and by namespace. Absent: not all of it was read."""
    finder: Finder | None = None
    """None: clusters are not found, or nothing is known of it yet."""
    drills: Mapping[str, RunningDrill] = {}
    """The drills by id: from when a drill becomes known until its end is recorded. At most one of each cluster."""
    stated: Mapping[str, ClusterState] = {}
    """The clusters as they were when their status was last decided; without those of which it could not be."""
    status_due: int | None = None
    """When (steady) time alone may change the status of a cluster. None: never."""
