"""A `FlinkDeployment` of Flink's Kubernetes operator: whether its cluster is wanted, and what the operator does to it.

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


class FlinkDeployment(Struct, frozen=True):
    """One FlinkDeployment. Its name is the id of its cluster."""

    uid: str
    generation: int
    """Rises with each change of the spec."""
    observed_generation: int | None = None
    """The generation that the operator has processed. None: this operator does not say."""
    reconciliation: Reconciliation | None = None
    reconciled_at: int | None = None
    """When the operator last began or finished to deploy a spec, by its own clock (wall)."""
    suspended: bool = False
    """`spec.job.state` is `suspended`."""
    deleting: bool = False
    """It has a deletion timestamp."""
    owner: str | None = None
    """The FlinkBlueGreenDeployment of which it is one colour."""

    @property
    def is_wanted(self) -> bool:
        """Whether its cluster is meant to have a leader."""
        return not (self.suspended or self.deleting)
