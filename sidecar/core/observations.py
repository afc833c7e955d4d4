"""Observations: what drivers and sinks report to the core, raw and undecoded, with the time of observation."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from sidecar.core.agreement import Opinion
from sidecar.core.captures import EvidenceItem
from sidecar.core.flink.deployments import Candidate, FlinkDeployment, Maker, Seen
from sidecar.core.flink.leadership import Births, ZNodePosition
from sidecar.core.ha.results import CheckResult
from sidecar.core.moment import Moment
from sidecar.core.pictures import Picture
from sidecar.core.pods import Pod
from sidecar.core.policy.policy import Policy
from sidecar.core.process_end import LogEnd, PodStatus, ProcessEnd, RunningProcess, SeenEvent
from sidecar.core.reach import Reach


class ConnectionState(StrEnum):
    """This observer's connection to the store. Mirrors Curator's `ConnectionState`."""

    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    LOST = "LOST"


class DeliveryOutcome(StrEnum):
    """How one attempt to deliver a notification ended."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """The service was unreachable or reported an error of its own. Retried soon."""
    RATE_LIMITED = "rate_limited"
    """The service asks to retry later."""
    TIMED_OUT = "timed_out"
    """No answer within the time limit: it may have arrived, so the next attempt is a possible duplicate."""
    REJECTED = "rejected"
    """Refused because of an address, a token or a limit that the operator may repair. Retried slowly."""
    UNDELIVERABLE = "undeliverable"
    """A retry cannot succeed: no such receiver, or a URL of an unknown kind."""
    NOT_SENT = "not_sent"
    """The service's plugin sends nothing for such a message. Not retried."""
    ALREADY_TOLD = "already_told"
    """Another observer has sent the notification: nothing was sent."""
    HELD = "held"
    """Another observer is sending the notification: nothing was sent yet."""
    NO_LEDGER = "no_ledger"
    """The ledger cannot be read: nothing was sent yet."""


class Observed(Struct, frozen=True):
    """An observation, and when it was made."""

    at: Moment


class SeenInCluster(Observed, frozen=True):
    """A driver's observation of one cluster's store."""

    cluster_id: str


class ViewObserved(SeenInCluster, frozen=True):
    """The connection to the store changed. CONNECTED begins a re-read of everything, which `SnapshotCompleted` ends."""

    connection: ConnectionState


class SnapshotCompleted(SeenInCluster, frozen=True):
    """Every existing and every known path has been reported since the last CONNECTED. A path that was not reported does not exist."""


class ViewConfirmed(SeenInCluster, frozen=True):
    """The view is no older than `at`: everything that was in the store at that moment has been observed.

    A connected driver confirms again within `again_within` microseconds. Observations arrive in order, so a late confirmation means that
    the view is old, wherever the delay is.
    """

    again_within: int


class NodeObserved(SeenInCluster, frozen=True):
    """The value of a path that may hold leader information. `position` None: the path does not exist."""

    path: str
    data: bytes = b""
    position: ZNodePosition | None = None
    writes: int | None = None
    """How often the path was created, set or deleted since it was last reported; None: not counted."""
    births: Births | None = None
    """How often a node was created at this path, if its parent counts nothing else."""


class PlaceRemoved(SeenInCluster, frozen=True):
    """The parent of a leader's path was removed. Since 1.15 a leader removes it on a clean shutdown; if its session expires, it stays."""

    path: str


class NodeRefused(SeenInCluster, frozen=True):
    """The path, of a leader or of a job store, exists and could not be read (for example: no permission)."""

    path: str
    reason: str


class StoreRefused(SeenInCluster, frozen=True):
    """The store can be reached and does not let us find the leaders: no permission, or no valid credentials.

    It ends with the next ViewObserved or SnapshotCompleted.
    """

    reason: str


class LeftOut(SeenInCluster, frozen=True):
    """The part of the cluster that is not observed from now on, because it exceeds a bound. Neither `jobs` nor `lists`: nothing is left out
    any more.

    A job that is observed stays observed. While a list of leaders is too long, a job whose leader was not read may have one.
    """

    jobs: int = 0
    """The least number of jobs that are not observed."""
    lists: tuple[str, ...] = ()
    """Paths whose children are too many to be read."""


class ChildrenObserved(SeenInCluster, frozen=True):
    """The children of a path: contenders of a latch, or the jobs in a job store. Empty if the path does not exist."""

    path: str
    names: tuple[str, ...] = ()


class ClusterFound(SeenInCluster, frozen=True):
    """A Flink cluster was found: from now on it is observed like a configured one."""


class ClusterRemoved(SeenInCluster, frozen=True):
    """Nothing of a found cluster exists in the store any more. If it comes back it is found again."""

    on_purpose: bool = False
    """Whether it is known that somebody removed it. False: that is concluded from what it left behind."""


class ClustersListed(Observed, frozen=True):
    """The clusters that the finder knows: reported whenever they change."""

    place: str
    """The place where the finder looks, as text."""
    cluster_ids: frozenset[str] | None
    """All clusters that exist and are watched; None: the store has not been read completely since it connected."""
    left_out: int = 0
    """Clusters that exist and are not watched: there are too many."""
    unlisted: int = 0
    """Paths that exist and were not searched for clusters: there are too many."""
    beyond: tuple[str, ...] = ()
    """The folders or namespaces in which those are, the first ones."""
    refused: str = ""
    """Why the store, which can be reached, does not let us find them."""


class NothingFound(SeenInCluster, frozen=True):
    """Everything was read, and no trace of a Flink cluster was found since the driver started."""

    place: str
    """Where the driver looked, as text."""
    beside: tuple[str, ...] | None = None
    """The ids of other clusters in the same place; None: they could not be read."""


class ConfigMapObserved(SeenInCluster, frozen=True):
    """One ConfigMap. `uid` None: it does not exist. A read that finds no change reports it again, unchanged.

    `data` holds the relevant keys; the values of those whose name is enough (job graphs) are empty. `leader`: the annotation
    `control-plane.alpha.kubernetes.io/leader`, if there is one.
    """

    name: str
    uid: str | None = None
    resource_version: str = ""
    data: Mapping[str, str] = {}
    leader: str | None = None


class StoreObserved(SeenInCluster, frozen=True):
    """ZooKeeper's newest transaction. Reported on connecting, in a new epoch, and periodically."""

    zxid: int


class NotProcessed(SeenInCluster, frozen=True):
    """An observation could not be processed: the state of its path is unknown from then on."""

    path: str
    """The znode's, or the name of the ConfigMap."""
    reason: str


class HandoverRead(SeenInCluster, frozen=True):
    """The handover that another sidecar left in the store for its successor: reported before anything of the cluster is observed, and later
    while that sidecar is still running.
    """

    content: bytes


class SilencesRead(Observed, frozen=True):
    """A document of silences was read. `content` None: it could not be, because of `problem`. `at`: when the read began."""

    document: str
    """`Policy.silences_of` a cluster."""
    content: bytes | None
    problem: str | None = None


class PodNamed(SeenInCluster, frozen=True):
    """The pod at whose address a leader of this cluster is, or may be. `pod` None: it cannot be found out."""

    host: str
    pod: Pod | None


ANY: Final = "*"
"""The end of a cluster id that stands for each cluster whose id begins so: the observer does not know which of them it is about."""


class DeploymentObserved(SeenInCluster, frozen=True):
    """The FlinkDeployment that has the cluster's id as its name. None: there is none."""

    deployment: FlinkDeployment | None
    namespace: str = ""
    """The namespace of the FlinkDeployment, if that is being deleted."""


class MakerObserved(SeenInCluster, frozen=True):
    """A Deployment, StatefulSet or Job that makes JobManagers, perhaps the cluster's."""

    seen: Seen


class MakersListed(SeenInCluster, frozen=True):
    """All that may make JobManagers was read, in the namespaces of the cluster: whenever that changes."""

    there: Mapping[str, frozenset[Candidate]]
    """The candidates by namespace, where ids of clusters have it; else by "". A namespace that is not named has none."""


class RightRefused(SeenInCluster, frozen=True):
    """The API server refuses to list what says whether a leader is wanted, or allows it again."""

    right: str
    """`deployments.apps`"""
    refused: bool = True


class DeploymentUnreadable(SeenInCluster, frozen=True):
    """The cluster's FlinkDeployment, or another kind, cannot be read any more: what it says from now on is not known."""

    kind: Maker = Maker.FLINK_DEPLOYMENT


class PodDisrupted(SeenInCluster, frozen=True):
    """One of the cluster's JobManagers is being evicted, or is deleted from a cordoned node."""

    uid: str
    pod: str
    address: str = ""
    """The pod's IP address. Empty: not known."""
    node: str | None = None
    evicted: bool = True
    """False: it was deleted, and its node is cordoned."""


class PodObserved(SeenInCluster, frozen=True):
    """One of the cluster's JobManager pods, whenever its status changes."""

    pod: PodStatus
    gone: bool = False
    """The pod was removed: this is its last status."""


class EventObserved(SeenInCluster, frozen=True):
    """An Event of Kubernetes that may say why a JobManager ended."""

    event: SeenEvent


class ProcessSeen(SeenInCluster, frozen=True):
    """One of the cluster's JobManagers runs on this machine, or in this pod. Reported when that is first known, when it changes, and again
    now and then.
    """

    process: RunningProcess


class ProcessEnded(SeenInCluster, frozen=True):
    """One of the cluster's JobManagers on this machine, or in this pod, ended."""

    end: ProcessEnd


class LogEndRead(SeenInCluster, frozen=True):
    """The end of a JobManager's log was read after its end. `pod_uid` None: of the JobManager beside this sidecar."""

    log: LogEnd
    pod_uid: str | None = None


class HostRestarted(SeenInCluster, frozen=True):
    """The machine of this sidecar was started anew since the sidecar last ran: another boot id."""

    booted_at: int
    """Wall microseconds."""


class PictureTaken(SeenInCluster, frozen=True):
    """A request for a picture is done. `picture` None: it could not be taken, because of `problem`."""

    address: str
    """The REST server that was asked."""
    picture: Picture | None
    problem: str | None = None
    """Why there is no picture: one line for people."""
    reach: Reach | None = None
    """None: nothing was sent, or another cluster's server answered."""
    asked_at: Moment | None = None
    """When the first request was sent. None: none was sent."""


class HaChecked(SeenInCluster, frozen=True):
    """The checks of high availability were made."""

    results: tuple[CheckResult, ...]


class PeersAsked(SeenInCluster, frozen=True):
    """The other observers of the cluster were asked what they see."""

    known: int
    """The number of observers."""
    opinions: tuple[Opinion, ...] = ()
    """The answers, one of each observer that answered."""


class FailoverAnnotated(SeenInCluster, frozen=True):
    """An operator has annotated a failover, and the journal has the note."""

    episode_id: str
    noted_at: int
    """Wall microseconds."""


class DeliverySettled(Observed, frozen=True):
    """An attempt to deliver ended. `detail` is one line for people, without secrets."""

    delivery_id: str
    outcome: DeliveryOutcome
    detail: str = ""
    retry_after: int | None = None
    """The pause that the service asks for, in microseconds."""
    possible_duplicate: bool = False
    """Whether another observer may have sent the notification before."""


class EvidenceGathered(Observed, frozen=True):
    """A request to capture evidence was answered, successfully or not."""

    capture_id: str
    pieces: tuple[EvidenceItem, ...]


class Started(Observed, frozen=True):
    """The sidecar started, with the state of an earlier process if there is one."""


class PolicyLoaded(Observed, frozen=True):
    """The configuration was reloaded: from now on `policy` applies."""

    policy: Policy


class Ticked(Observed, frozen=True):
    """Time passed."""


class Stopped(Observed, frozen=True):
    """The sidecar shuts down cleanly."""


ClusterObservation = (
    ViewObserved
    | SnapshotCompleted
    | ViewConfirmed
    | NodeObserved
    | PlaceRemoved
    | NodeRefused
    | StoreRefused
    | LeftOut
    | ChildrenObserved
    | StoreObserved
    | ConfigMapObserved
    | NothingFound
)
"""Every observation that a driver may report of one cluster."""
FinderObservation = ClusterObservation | ClusterFound | ClusterRemoved | ClustersListed
"""Every observation of a driver that finds clusters."""


PlanObservation = DeploymentObserved | MakerObserved | MakersListed | RightRefused | DeploymentUnreadable | PodDisrupted
"""Every observation of what is meant to happen to a cluster."""
EndObservation = PodObserved | EventObserved | ProcessSeen | ProcessEnded | LogEndRead | HostRestarted
"""Every observation of how a JobManager's process ended, or that it runs."""


def is_trace(observation: "Observation") -> bool:
    """Whether the observation shows that the Flink cluster exists, with a leader or without."""
    match observation:
        case NodeObserved(position=None) | ChildrenObserved(names=()) | ConfigMapObserved(uid=None):
            return False
    return isinstance(observation, NodeObserved | NodeRefused | ChildrenObserved | ConfigMapObserved)


Observation = (
    FinderObservation
    | NotProcessed
    | HandoverRead
    | PodNamed
    | SilencesRead
    | PlanObservation
    | EndObservation
    | PictureTaken
    | HaChecked
    | PeersAsked
    | FailoverAnnotated
    | DeliverySettled
    | EvidenceGathered
    | Started
    | PolicyLoaded
    | Ticked
    | Stopped
)
