"""A simulated FlinkDeployment, and a driver's observations of it."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from sidecar.core.flink.deployments import FlinkDeployment, Reconciliation
from sidecar.core.moment import Moment
from sidecar.core.observations import DeploymentObserved
from sidecar.settings.rule_tests import OperatorAct

_STATES: Final = {
    OperatorAct.UPGRADING: Reconciliation.UPGRADING,
    OperatorAct.DEPLOYED: Reconciliation.DEPLOYED,
    OperatorAct.ROLLING_BACK: Reconciliation.ROLLING_BACK,
    OperatorAct.ROLLED_BACK: Reconciliation.ROLLED_BACK,
}


class SimulatedDeployment:
    """The FlinkDeployment of one cluster. There is none until something happens to it."""

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._deployment: FlinkDeployment | None = None

    def observed(self, at: Moment) -> Iterator[DeploymentObserved]:
        """The observation of a driver that reads it, if there is one."""
        if self._deployment:
            yield DeploymentObserved(at, self._cluster_id, self._deployment)

    def apply(self, act: OperatorAct, at: Moment) -> Iterator[DeploymentObserved]:
        """Change it; a driver's observations."""
        if self._deployment is None:  # until now it was deployed, and stable
            self._deployment = FlinkDeployment(self._cluster_id, 1, 1, Reconciliation.DEPLOYED)
            yield from self.observed(at)
        deployment = self._deployment
        if state := _STATES.get(act):
            deployment = replace(
                deployment, reconciliation=state, reconciled_at=at.wall, observed_generation=deployment.generation
            )
        elif act is OperatorAct.DELETED:
            deployment = replace(deployment, deleting=True)
        else:
            suspended = act is OperatorAct.SUSPENDED
            deployment = replace(deployment, generation=deployment.generation + 1, suspended=suspended)
        self._deployment = deployment
        yield from self.observed(at)
