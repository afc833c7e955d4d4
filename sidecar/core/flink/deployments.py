"""The makers of a cluster's JobManagers in Kubernetes: whether the cluster is wanted, and what is being done to it.

Only what says that somebody meant it. `jobManagerDeploymentStatus` and the job's state say what became of a cluster, whoever did it.
"""

from enum import StrEnum

from msgspec import Struct


class Reconciliation(StrEnum):
    """The operator's `status.reconciliationStatus.state`."""

    DEPLOYED = "DEPLOYED"
    UPGRADING = "UPGRADING"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"


class Maker(StrEnum):
    """The kind of what makes JobManagers."""

    FLINK_DEPLOYMENT = "FlinkDeployment"
    """A FlinkDeployment, whose name is the id of its cluster."""
    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    JOB = "Job"
    FLINK = "Flink"
    """Flink itself: all that is known is that it ended in order, and deleted its ConfigMap."""
    NOTHING = "nothing"
    """All that makes JobManagers was read, and nothing makes the cluster's."""


class FlinkDeployment(Struct, frozen=True):
    """One FlinkDeployment, or another maker of JobManagers, which is read as if it were one."""

    uid: str
    generation: int
    """Rises with each change of the spec."""
    observed_generation: int | None = None
    """The generation that the operator has processed. None: this operator does not say."""
    reconciliation: Reconciliation | None = None
    reconciled_at: int | None = None
    """When the operator last began or finished to deploy a spec, by its own clock (wall)."""
    suspended: bool = False
    """`spec.job.state` is `suspended`; it is scaled to 0."""
    deleting: bool = False
    """Whether it has a deletion timestamp."""
    owner: str | None = None
    """The FlinkBlueGreenDeployment of which it is one colour."""
    kind: Maker = Maker.FLINK_DEPLOYMENT
    name: str = ""
    """The name of a maker of another kind. Empty: a FlinkDeployment, named by its cluster."""
    finished: bool = False
    """A Job that is complete."""
    stuck: str = ""
    """Why a pod that it makes cannot come: `ErrImagePull`, `CrashLoopBackOff`, `Unschedulable`, …"""

    @property
    def is_wanted(self) -> bool:
        """Whether its cluster is meant to have a leader."""
        return not (self.suspended or self.deleting or self.finished)


class Seen(Struct, frozen=True):
    """A maker of JobManagers, as it was observed."""

    kind: Maker
    name: str
    deployment: FlinkDeployment | None
    """None: it was deleted."""
    hosts: frozenset[str] = frozenset()
    """Addresses and names of its pods, also of those that have ended lately."""
    app: str = ""
    """The label of its pods."""
    alone: bool = False
    """No other one makes JobManagers where it was looked for."""
    namespace: str = ""
    """The maker's namespace, if that is being deleted."""


class Candidate(Struct, frozen=True):
    """A possible maker of a cluster's JobManagers, whether or not any run."""

    kind: str
    name: str
    """The maker's name without its namespace."""
    app: str = ""
    """The only cluster whose JobManagers it may make; empty: of any."""
