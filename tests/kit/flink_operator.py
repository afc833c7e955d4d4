"""What Flink's Kubernetes operator says of one cluster, in its order: it ends the JobManagers first, and says UPGRADING then."""

from collections.abc import Callable

from msgspec.structs import replace

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation


class Operator:
    """A FlinkDeployment that is stable, and what becomes of it. `report` is called with each state that is written."""

    def __init__(self, report: Callable[[FlinkDeployment | None], object], wall: Callable[[], int]) -> None:
        """`wall`: the operator's clock, in microseconds."""
        self._report = report
        self._wall = wall
        self.deployment = FlinkDeployment("uid-1", 1, 1, Reconciliation.DEPLOYED, reconciled_at=wall() - 3_600_000_000)

    def reports(self) -> "Operator":
        """It is read, as it is."""
        self._report(self.deployment)
        return self

    def is_changed(self) -> None:
        """Somebody applies another spec."""
        self._write(generation=self.deployment.generation + 1)

    def upgrades(self) -> None:
        """The JobManagers have ended."""
        self._reconciles(Reconciliation.UPGRADING)

    def deploys(self) -> None:
        self._reconciles(Reconciliation.DEPLOYED)

    def ignores(self) -> None:
        """The change does not matter to Flink: it is processed, and nothing is deployed."""
        self._write(observed_generation=self.deployment.generation)

    def rolls_back(self) -> None:
        self._reconciles(Reconciliation.ROLLING_BACK)

    def has_rolled_back(self) -> None:
        self._reconciles(Reconciliation.ROLLED_BACK)

    def is_suspended(self) -> None:
        self._write(suspended=True, generation=self.deployment.generation + 1)

    def is_resumed(self) -> None:
        self._write(suspended=False, generation=self.deployment.generation + 1)

    def is_deleted(self) -> None:
        """It is about to be: the operator removes the cluster first."""
        self._write(deleting=True)

    def is_gone(self) -> None:
        self._report(None)

    def is_made_anew(self) -> None:
        self.deployment = FlinkDeployment("uid-2", 1, 1, Reconciliation.UPGRADING, reconciled_at=self._wall())
        self.reports()

    def _reconciles(self, state: Reconciliation) -> None:
        observed = self.deployment.generation
        self._write(reconciliation=state, reconciled_at=self._wall(), observed_generation=observed)

    def _write(self, **fields: object) -> None:
        self.deployment = replace(self.deployment, **fields)
        self.reports()
