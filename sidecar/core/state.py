"""The state of the owner's thread. Immutable values: a step makes new ones and shares those that stay the same."""

from collections.abc import Mapping

from msgspec import Struct

from sidecar.core.alerting.alerts import Alerts
from sidecar.core.alerting.silences import Silences
from sidecar.core.cluster.failover.plans import Operated
from sidecar.core.cluster.state import ClusterState
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.evidence import Capture
from sidecar.core.moment import Moment


class Finder(Struct, frozen=True):
    """Where clusters are looked for, and whether that can be read."""

    place: str
    connected: bool = False
    """Everything has been read since it connected."""
    left_out: int = 0
    """Clusters that exist and are not watched: there are too many."""
    refused: str = ""
    """Why they cannot be found, although the store can be reached."""

    def problem(self, watched: int) -> str | None:
        """What an operator may want to change; `watched`: how many clusters are watched."""
        if self.left_out:
            return f"{self.left_out} clusters in {self.place} are not watched: {watched} are the most"
        return None if watched else f"no Flink cluster was found in {self.place}"


class State(Struct, frozen=True):
    """The owner's state. The journal keeps all that a new process does not observe itself: see `journal_rows`."""

    clusters: Mapping[str, ClusterState] = {}
    alerts: Alerts = Alerts()
    outbox: Mapping[str, Delivery] = {}
    """Deliveries in progress, oldest first."""
    captures: Mapping[str, Capture] = {}
    """Requests for evidence that are not answered yet."""
    alive: Moment | None = None
    """The last moment at which the sidecar is known to have run."""
    unclaimed: Mapping[str, Operated] = {}
    """FlinkDeployments by the id of a cluster that is not found yet, or has been removed."""
    finder: Finder | None = None
    """None: clusters are not found, or nothing is known of it yet."""
    silences: Mapping[str, Silences] = {}
    """By document."""
    drills: Mapping[str, RunningDrill] = {}
    """By id: from when a drill becomes known until its end is recorded. At most one of each cluster."""
    stated: Mapping[str, ClusterState] = {}
    """By cluster: as it was when its status was last decided."""
