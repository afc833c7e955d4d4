"""What drivers and sinks report to the core: raw, undecoded, with the time of observation."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from sidecar.core.evidence import EvidenceItem
from sidecar.core.flink.leadership import Births, ZNodePosition
from sidecar.core.moment import Moment
from sidecar.core.policy.policy import Policy


class ConnectionState(StrEnum):
    """Our own connection to the store, in the words of Curator's `ConnectionState`."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


class DeliveryOutcome(StrEnum):
    """How one attempt to deliver a notification ended."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """Not reached, or the service is in trouble: tried again soon."""
    RATE_LIMITED = "rate_limited"
    """The service asks to retry later."""
    TIMED_OUT = "timed_out"
    """Cut off at the time limit or while the answer was awaited: it may have arrived, so the next attempt is a possible duplicate."""
    REJECTED = "rejected"
    """Refused: an address, a token or a limit that somebody may repair. Retried slowly."""
    UNDELIVERABLE = "undeliverable"
    """Trying again cannot help: no such receiver, or a URL that nothing can send to."""
    NOT_SENT = "not_sent"
    """The service's plugin sends nothing for such a message: nothing went out, and trying again changes nothing."""
    ALREADY_TOLD = "already_told"
    """Another observer has sent it: nothing was sent."""
    HELD = "held"
    """Another observer is sending it: nothing was sent yet."""
    NO_LEDGER = "no_ledger"
    """The ledger cannot be read: nothing was sent yet."""


class Observed(Struct, frozen=True):
    """Anything that was observed, and when."""

    at: Moment


class SeenInCluster(Observed, frozen=True):
    """Anything that a driver saw in one cluster's store."""

    cluster_id: str


class ViewObserved(SeenInCluster, frozen=True):
    """Our connection to the store changed. CONNECTED begins a re-read of everything, which `SnapshotCompleted` ends."""

    connection: ConnectionState


class SnapshotCompleted(SeenInCluster, frozen=True):
    """Every path that exists, and every one that was known, has been told of since the last CONNECTED: of what was not, there is
    nothing.
    """


class ViewConfirmed(SeenInCluster, frozen=True):
    """The view is no older than `at`: everything that was in the store at that moment has been observed.

    A driver confirms again within `again_within` microseconds while it can see. Observations arrive in order, so that a confirmation that
    is late, wherever it is delayed, means that the view is old.
    """

    again_within: int


class NodeObserved(SeenInCluster, frozen=True):
    """The value of a path that may hold leader information, or that there is nothing (`position` None)."""

    path: str
    data: bytes = b""
    position: ZNodePosition | None = None
    writes: int | None = None
    """How often the path was created, set or deleted since it was last reported; None if that could not be counted."""
    births: Births | None = None
    """How often there was a new node at this path until now, where its parent counts nothing else."""


class PlaceRemoved(SeenInCluster, frozen=True):
    """The parent of a leader's path is gone too. Since 1.15 a leader that ends in order removes it; when its session ends, it stays."""

    path: str


class NodeRefused(SeenInCluster, frozen=True):
    """The store has the path and would not show it (for example: no permission)."""

    path: str
    reason: str


class ChildrenObserved(SeenInCluster, frozen=True):
    """The children of a path: contenders of a latch, or the jobs in a job store. None where the path does not exist."""

    path: str
    names: tuple[str, ...] = ()


class NothingFound(SeenInCluster, frozen=True):
    """Everything was read, and nothing of a Flink cluster has been there since the driver began."""

    place: str
    """Where it was looked for, in words."""
    beside: tuple[str, ...] | None = None
    """The ids of the clusters that are beside it; None: which there are cannot be read."""


class ConfigMapObserved(SeenInCluster, frozen=True):
    """One ConfigMap as it stands, or that there is none (`uid` None). Told again, unchanged, when somebody looked and nothing had changed.

    `data` holds the keys that matter; of those that are there for their name alone (job graphs), the values are left out. `leader`: the
    annotation `control-plane.alpha.kubernetes.io/leader`, or None where there is none.
    """

    name: str
    uid: str | None = None
    resource_version: str = ""
    data: Mapping[str, str] = {}
    leader: str | None = None


class StoreObserved(SeenInCluster, frozen=True):
    """How far the store is: ZooKeeper's newest transaction. Told when the connection is made, in a new epoch, and now and then."""

    zxid: int


class NotProcessed(SeenInCluster, frozen=True):
    """An observation of a cluster that could not be processed: what it was about is not known from then on."""

    path: str
    """The znode's, or the name of the ConfigMap."""
    reason: str


class HandoverRead(SeenInCluster, frozen=True):
    """What another sidecar left in the store for its successor, before anything of the cluster is observed."""

    content: bytes


class DeliverySettled(Observed, frozen=True):
    """One attempt to deliver ended. `detail` is one line for people, free of secrets."""

    delivery_id: str
    outcome: DeliveryOutcome
    detail: str = ""
    retry_after: int | None = None
    """How long the service asks us to wait, in microseconds."""
    possible_duplicate: bool = False
    """Somebody else may have sent it before."""


class EvidenceGathered(Observed, frozen=True):
    """A request to capture was answered, in whichever way."""

    capture_id: str
    pieces: tuple[EvidenceItem, ...]


class Started(Observed, frozen=True):
    """The sidecar began, with whatever state an earlier one left."""


class PolicyLoaded(Observed, frozen=True):
    """The operator decided anew: from here on `policy` counts."""

    policy: Policy


class Ticked(Observed, frozen=True):
    """Time passed."""


class Stopped(Observed, frozen=True):
    """The sidecar is about to end, in order."""


ClusterObservation = (
    ViewObserved
    | SnapshotCompleted
    | ViewConfirmed
    | NodeObserved
    | PlaceRemoved
    | NodeRefused
    | ChildrenObserved
    | StoreObserved
    | ConfigMapObserved
    | NothingFound
)
"""What a driver may report."""


def is_trace(observation: "Observation") -> bool:
    """Whether it shows that the Flink cluster exists, with a leader or without."""
    match observation:
        case NodeObserved(position=None) | ChildrenObserved(names=()) | ConfigMapObserved(uid=None):
            return False
        case NodeObserved() | NodeRefused() | ChildrenObserved() | ConfigMapObserved():
            return True
        case _:
            return False


Observation = (
    ClusterObservation
    | NotProcessed
    | HandoverRead
    | DeliverySettled
    | EvidenceGathered
    | Started
    | PolicyLoaded
    | Ticked
    | Stopped
)
