"""What a step works on, and what it asks for: the state, values of which a step makes new ones and shares those that stay the same; and
effects, which `sidecar.app.running` carries out.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from sidecar.core.alerting.alerting_step import AlertingState, Output, ReadSilences, Send
from sidecar.core.captures import Capture
from sidecar.core.cluster.cluster_state import ClusterState
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.failover.failover_events import KubernetesEvent
from sidecar.core.failover.plans import Operated
from sidecar.core.finder import Finder
from sidecar.core.flink.deployments import Candidate, Maker, Seen
from sidecar.core.moment import Moment
from sidecar.core.pictures import PictureRequest
from sidecar.core.policy.policy import ALL_FOUND
from sidecar.core.quarantine import Quarantined
from sidecar.core.records import AnyRecord


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

    def sharing(self, ledger: str) -> list[ClusterState]:
        """The clusters of this ledger: the one of that name, or all of which one ledger is for those that are found."""
        if ledger == ALL_FOUND:
            return [*self.clusters.values()]
        return [self.clusters[ledger]] if ledger in self.clusters else []


class Append(Struct, frozen=True):
    """Write a record to the journal."""

    record: AnyRecord


class Publish(Struct, frozen=True):
    """Write a Kubernetes Event."""

    event: KubernetesEvent


class NamePod(Struct, frozen=True):
    """Find out which pod has the IP address `host`. The answer is a `PodNamed`."""

    cluster_id: str
    host: str


class Gather(Struct, frozen=True):
    """Capture evidence, after the journal has recorded the request."""

    capture: Capture


class TakePicture(Struct, frozen=True):
    """Ask Flink's REST server. The answer is a `PictureTaken`."""

    request: PictureRequest


Effect = Append | Send | Gather | Publish | NamePod | ReadSilences | TakePicture | Quarantined


def effects_of(outputs: Iterable[Output | AnyRecord]) -> list[Effect]:
    """The effects of what the alerting machine puts out: records are appended."""
    return [output if isinstance(output, Send | ReadSilences | Quarantined) else Append(output) for output in outputs]
