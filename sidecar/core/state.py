"""The state of the owner's thread. Immutable values: a step makes new ones and shares those that stay the same."""

from collections.abc import Mapping

from msgspec import Struct

from sidecar.core.alerting.alerts import Alerts
from sidecar.core.alerting.silences import Silences
from sidecar.core.cluster.failover.plans import Operated
from sidecar.core.cluster.state import ClusterState
from sidecar.core.counted import counted
from sidecar.core.delivery.outbox import Delivery
from sidecar.core.drills.drill import RunningDrill
from sidecar.core.evidence import Capture
from sidecar.core.moment import Moment
from sidecar.core.observations import ClustersListed
from sidecar.core.sanitize import clean


class Finder(Struct, frozen=True):
    """Where clusters are looked for, and whether that can be read."""

    place: str
    connected: bool = False
    """Everything has been read since it connected."""
    left_out: int = 0
    """Clusters that exist and are not watched: there are too many."""
    refused: str = ""
    """Why they cannot be found, although the store can be reached."""
    unlisted: int = 0
    """Paths that were not searched for clusters: there are too many."""
    beyond: tuple[str, ...] = ()
    """The folders or namespaces in which those are, the first ones."""

    @classmethod
    def of(cls, listed: ClustersListed) -> "Finder":
        """The finder after what it has listed."""
        connected = listed.cluster_ids is not None
        return cls(listed.place, connected, listed.left_out, listed.refused, listed.unlisted, listed.beyond)

    @property
    def leaves_out(self) -> bool:
        """Whether there are clusters that are not watched, or may be."""
        return bool(self.left_out or self.unlisted)

    def problem(self, watched: int) -> str | None:
        """What an operator may want to change; `watched`: how many clusters are watched."""
        if not self.leaves_out:
            return None if watched else f"no Flink cluster was found in {self.place}"
        parts = [counted(self.left_out, "cluster", thousands=True)] if self.left_out else []
        if self.unlisted:
            parts.append(f"{counted(self.unlisted, 'znode', thousands=True)} that may lead to clusters")
        where = f" of {', '.join(map(clean, self.beyond))}" if self.beyond else ""
        return f"too many in {self.place}: left out {' and '.join(parts)}{where}; watched: {watched:,}"


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
